"""TODO-DOOR model."""
