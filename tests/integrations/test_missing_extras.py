"""Without its framework, an integration says what to install."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
for name in ("sklearn", "skorch", "lightning", "transformers", "trl"):
    sys.modules[name] = None  # as if it were not installed
from importlib import import_module
from reweigh.errors import MissingExtraError
for module in ("sklearn", "skorch_net", "lightning", "transformers", "trl", "pair_loss"):
    try:
        import_module(f"reweigh.integrations.{module}")
    except MissingExtraError as error:
        print(error)
import reweigh.integrations.numbered
reweigh.pseudo_clean, reweigh.suggest_clean
"""


def test_the_install_command_is_named():
    found = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [line.rpartition("run: ")[2] for line in found] == [
        "pip install 'reweigh[skorch]'",
        "pip install 'reweigh[skorch]'",
        "pip install 'reweigh[lightning]'",
        "pip install 'reweigh[transformers]'",
        "pip install 'reweigh[trl]'",
    ]
    assert found[0].startswith("this integration needs sklearn")
