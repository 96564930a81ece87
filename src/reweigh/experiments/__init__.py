"""Experiments: the demonstration, and the paper's tables and figures as data."""
