"""Serving the review on this computer alone, until Ctrl-C."""

import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress

from ..errors import SettingError

ADDRESS = "127.0.0.1"
USUAL_PORT = 8477


def bound(port: int | None) -> socket.socket:
    """A socket on loopback at `port`; if none was asked for, at the usual one or any that is free."""
    try:
        return _bound(USUAL_PORT if port is None else port)
    except OSError as error:
        if port is None:
            return _bound(0)
        raise SettingError(
            f"port {port} cannot be used: {error.strerror or error}; "
            "give another, or leave --port out to have a free one chosen"
        ) from None


def _bound(port: int) -> socket.socket:
    fresh = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":
            fresh.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            fresh.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        fresh.bind((ADDRESS, port))
        fresh.listen(128)
    except BaseException:
        fresh.close()
        raise
    return fresh


def serve(application: object, listening: socket.socket, *, started: Callable[[], None]) -> None:
    """Answer requests until Ctrl-C, which ends this without an error; `started` is called once ready."""
    import uvicorn

    from .patience import PatientProtocol

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

    config = uvicorn.Config(
        application,  # type: ignore[arg-type]
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    with suppress(KeyboardInterrupt), listening:
        Server(config).run(sockets=[listening])


def open_browser(address: str) -> bool:
    """Open `address` where there is a screen to show it on; whether a browser was found."""
    remote = "SSH_CONNECTION" in os.environ
    headless = sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if remote or headless:
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
