"""TODO-DOOR clean."""
