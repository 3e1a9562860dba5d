"""HTTP connections with a time limit for the request, so that unfinished requests do not block others (slow loris)."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_REQUEST_SECONDS = 10.0
"""For a request to be there, its head and its body."""
MAX_OPEN_REQUESTS = 64
"""Connections whose request is not there yet. A browser sends it at once: beyond that the oldest is closed, not the newest."""


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, which alone waits for a request without a limit."""

    _waiting: ClassVar[dict[BoundedProtocol, asyncio.TimerHandle]] = {}  # the oldest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """The time runs from the connection, or the last response, until the request is complete."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._stop_watching()
        elif self not in self._waiting:
            self._waiting[self] = self.loop.call_later(MAX_REQUEST_SECONDS, self.transport.abort)
            if len(self._waiting) > MAX_OPEN_REQUESTS:
                oldest = next(iter(self._waiting))
                oldest._stop_watching()  # at once: `connection_lost` is called later
                oldest.transport.abort()

    def _stop_watching(self) -> None:
        timer = self._waiting.pop(self, None)
        if timer is not None:
            timer.cancel()
