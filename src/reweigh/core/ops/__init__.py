"""TODO-DOOR ops."""
