"""TODO-DOOR sets."""
