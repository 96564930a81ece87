"""TODO-DOOR processes."""
