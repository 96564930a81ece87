"""TODO-DOOR update."""
