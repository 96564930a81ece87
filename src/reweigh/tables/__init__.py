"""TODO-DOOR tables."""
