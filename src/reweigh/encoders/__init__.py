"""TODO-DOOR encoders."""
