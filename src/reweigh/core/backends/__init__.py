"""TODO-DOOR backends."""
