"""TODO-DOOR streams."""
