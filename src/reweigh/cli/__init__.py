"""The command line: `reweigh COMMAND`.

Thin: a command reads its options, calls the library and prints. This module and those of the
commands import nothing heavy at their top, so that `--help` is instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..errors import ReweighError

BAD_INPUT, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 2 bad input, 130 interrupted.

    Whatever a user can act on ends in one line on standard error; a traceback is a bug of ours.
    """
    sys.exit(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    try:
        from typer import Abort

        from .commands import root
    except ModuleNotFoundError as error:
        return _fail(
            f"the command line needs {error.name}, which is not installed; "
            f"run: pip install 'reweigh[app]'"
        )
    try:
        code = root().main(arguments or ["--help"], prog_name="reweigh", standalone_mode=False)
        sys.stdout.flush()
        return _interrupted() if code == INTERRUPTED else int(code or 0)
    except (KeyboardInterrupt, Abort):
        return _interrupted()
    except ReweighError as error:
        return _fail(str(error))
    except BrokenPipeError:  # `reweigh ... | head`: nobody is left to read
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}")
    except Exception as error:
        # Usage errors are click's, or those of the copy of click inside newer typers; by its method
        # both can be told from a bug.
        if not hasattr(error, "format_message"):
            raise
        # A group called without a command has printed its help by now, and has nothing to say.
        message = error.format_message().strip()
        return _fail(message) if message else BAD_INPUT


def _fail(message: str) -> int:
    print(f"reweigh: error: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT


def _interrupted() -> int:
    print("reweigh: interrupted", file=sys.stderr)
    return INTERRUPTED
