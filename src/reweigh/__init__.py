"""Train any PyTorch model on data you do not fully trust, guided by a handful of examples you do."""

__version__ = "0.1.0"
