"""Access control: token in the address, Host and Origin checks, and a limit on the size of requests."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 64 << 10  # bytes
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none at all, browsers keep from us whence the form with the name was sent
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Refusal(NamedTuple):
    """Status and message of a refused request."""

    status: int
    words: str


NO_TOKEN = Refusal(403, "This address lacks the token that `pals review` printed. Open the address that it printed.")
FOREIGN = Refusal(403, "This request came from another page. Open the address that `pals review` printed, and answer there.")
TOO_LARGE = Refusal(413, "The request is larger than any that this page sends.")
OTHER_NAME = Refusal(421, "This server cannot be reached under that name. Open the address that `pals review` printed.")


class AccessControl:
    """ASGI middleware: /TOKEN/... is passed on without the token, all other requests are refused.

    Args:
        app: The application.
        token: The first part of every path.
        hosts: The names under which the server may be addressed (Host): protects against DNS rebinding.
    """

    def __init__(self, app: App, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send) if scope["type"] == "lifespan" else None
        refused = self._refusal(scope)
        if refused:
            return await _refuse(send, refused)
        inner = {**scope, "root_path": f"/{self.token}"}
        return await self.app(inner, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            return OTHER_NAME
        first = scope["path"].removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(first.encode("utf-8", "replace"), self.token.encode()):
            return NO_TOKEN
        if scope["method"] not in ("GET", "HEAD") and not _same_site(headers, host):
            return FOREIGN
        length = headers.get("content-length", "0")
        return TOO_LARGE if not length.isdigit() or int(length) > MAX_BODY_BYTES else None


def _same_site(headers: dict[str, str], host: str) -> bool:
    """Browsers name the page that a request comes from; a request that names none is refused."""
    return (
        urlsplit(headers.get("origin", "")).netloc.lower() == host
        and headers.get("sec-fetch-site", "same-origin") == "same-origin"
    )


class TooLargeError(Exception):
    """The body is larger than its header declares."""


def _bounded(receive: Receive) -> Receive:
    """The same stream, which raises when it exceeds MAX_BODY_BYTES."""
    got = 0

    async def bounded() -> MutableMapping[str, Any]:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > MAX_BODY_BYTES:
            raise TooLargeError
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    """Adds the security headers to every response."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


async def _refuse(send: Send, refusal: Refusal) -> None:
    text = f"{refusal.words}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    headers.append((b"connection", b"close"))  # who may ask nothing does not keep a connection either
    sending = _with_headers(send)
    await sending({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await sending({"type": "http.response.body", "body": text})
