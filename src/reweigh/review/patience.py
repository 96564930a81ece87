"""Connections that ask nothing are closed, so that they keep nobody out.

A connection that has not sent the head of a request within PATIENCE seconds is closed. At most WAITING of
them are kept; of more, the one that has waited longest is closed at once. So any number of half-open
connections leaves room for the person, whose browser asks as soon as it is connected.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 20.0
WAITING = 64


class PatientProtocol(H11Protocol):
    """HTTP, with a bound on how long and how many connections may wait before their first request."""

    _waiting: dict[PatientProtocol, None] = {}  # noqa: RUF012 (all connections of the server share it)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new one waits."""
        super().connection_made(transport)
        self._waiting[self] = None
        self._patience = self.loop.call_later(PATIENCE, self._give_up)
        if len(self._waiting) > WAITING:
            next(iter(self._waiting))._give_up()

    def data_received(self, data: bytes) -> None:
        """With the head of a request the waiting is over."""
        super().data_received(data)
        if self.cycle is not None:
            self._stop_waiting()

    def connection_lost(self, exc: Any) -> None:
        """It went away."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        self._patience.cancel()

    def _give_up(self) -> None:
        self._stop_waiting()
        self.transport.close()
