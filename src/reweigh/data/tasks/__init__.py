"""TODO-DOOR tasks."""
