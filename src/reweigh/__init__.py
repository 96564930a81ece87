"""Train any PyTorch model on data you do not fully trust, guided by a handful of examples you do."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors as errors
    from .app import load
    from .clean_set import pseudo_clean, suggest_clean

    # isort: off
    from .core import (
        Choice, Finding, Reweighter, Step, Window, effective_sample_size, example_scores, gradient_rule,
        per_example, tangent_rule, validate, weights_from_scores,
    )  # fmt: skip

__version__ = "0.1.0"

__all__ = [
    "Choice", "Finding", "Reweighter", "Step", "Window", "effective_sample_size", "example_scores",
    "gradient_rule", "load", "per_example", "pseudo_clean", "suggest_clean", "tangent_rule",
    "validate", "weights_from_scores",
]  # fmt: skip


_MODULES = {
    "audit", "clean_set", "core", "data", "errors", "integrations", "methods", "models", "app",
    "own", "training",
}  # fmt: skip
_OUTSIDE_CORE = {"load": "app", "pseudo_clean": "clean_set", "suggest_clean": "clean_set"}


# The names above live in modules that import torch: seconds. They are loaded when first asked
# for, so that `reweigh --help`, whose module lies in this package, need not wait for torch.
def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _OUTSIDE_CORE.get(name, "core")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
