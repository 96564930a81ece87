"""The former name of `reweigh.app`, kept for one release."""

import warnings

from .app import *  # noqa: F403

warnings.warn("reweigh.own is now reweigh.app", DeprecationWarning, stacklevel=2)
