"""TODO-DOOR ghost."""
