"""The command line: `reweigh COMMAND`.

Thin: a command reads its options, calls the library and prints. This module and those of the
commands import nothing heavy at their top, so that `--help` is instant.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..errors import Interrupted, ReweighError

BAD_INPUT, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 2 bad input, 130 or 143 interrupted.

    Whatever a user can act on ends in one line on standard error; a traceback is a bug of ours.
    """
    for stream in (sys.stdout, sys.stderr):  # names of files may hold bytes that are no text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
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
    except Interrupted as stopped:
        print(f"reweigh: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except BrokenPipeError:  # `reweigh ... | head`: nobody is left to read
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        message = _message(error)
        if message is None:
            raise
        return _fail(message) if message else BAD_INPUT


def _message(error: Exception) -> str | None:
    """What to tell the user; "" if that has been done; None if the error is a bug of ours."""
    if isinstance(error, ReweighError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    # Usage errors are click's, or those of the copy of click inside newer typers; their method
    # tells both. A group called without a command has printed its help, and has nothing to add.
    if hasattr(error, "format_message"):
        said = str(error.format_message()).strip()
        # The shell has made several files of one pattern.
        hint = "; a pattern of files has to be in quotes, as --data 'part-*.csv'"
        return said + (hint if "extra argument" in said else "")
    return None


def _fail(message: str) -> int:
    print(f"reweigh: error: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT


def _interrupted() -> int:
    print("reweigh: interrupted", file=sys.stderr)
    return INTERRUPTED
