"""TODO-DOOR batches."""
