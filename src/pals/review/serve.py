"""The server: a socket, an address with a token, and the browser that opens it."""

from __future__ import annotations

import errno
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from pals.review.address import store_address, stored_address
from pals.review.instructions import keep_instructions
from pals.review.session import ReviewSession
from pals.util.errors import InputError
from pals.util.words import pip_install

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")


def serve(
    run: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    name: str = "",
    browser: bool = True,
    trust: Sequence[str] = (),
    trust_review: bool | None = None,
    follow_links: bool = False,
    instructions: Path | None = None,
    audit: float | None = None,
    say: Callable[[str], None],
) -> None:
    """Serve the review of a run until the process ends.

    Args:
        run: The run folder.
        host: Address to listen on.
        port: Port; 0 picks the one of the last start, or a free one.
        name: Annotator's name; "" lets the page ask.
        browser: Whether to open the page in a browser.
        trust: Annotators all of whose answers are trusted, those in the run as well.
        trust_review: Whether the answers given here are trusted; None: as chosen before (at first: yes).
        follow_links: Also show images that are links to outside the image folder.
        instructions: A Markdown file to show beside each item, now and at later starts.
        audit: Share of the queue that is drawn at random; None: a quarter where answers are trusted, else none.
        say: Receives the lines to print, once the server answers.

    Raises:
        InputError: The extra `review` is not installed, the run is not finished, or the port cannot be used.
    """
    try:
        import uvicorn

        from pals.review.app import WebApp, allowed_hosts
        from pals.review.protocol import BoundedProtocol
    except ImportError as error:
        raise InputError(f"The page needs {error.name}, which is not installed. Run: {pip_install('review')}") from None
    token, stored_port = stored_address(run)
    with (
        closing(ReviewSession(run, follow_links=follow_links, trust=trust, trust_review=trust_review, audit=audit)) as session,
        closing(_reached_again(host, port, stored_port)) as listening,
    ):
        number = listening.getsockname()[1]
        if instructions is not None:
            keep_instructions(run, instructions)
        store_address(run, token, number)
        web = WebApp(session, name)
        config = uvicorn.Config(
            web.app(token, allowed_hosts(_names(host), number)),
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            http=BoundedProtocol,
            ws="none",
            timeout_graceful_shutdown=2,
            limit_concurrency=256,
        )
        server = uvicorn.Server(config)
        web.closing = lambda: server.should_exit
        address = f"http://{_written(_names(host)[0])}:{number}/{token}/"
        for line in _words(session, host, address):
            say(line)
        if browser:
            here = f"{address}?name={quote(name)}" if name else address
            threading.Thread(target=webbrowser.open, args=(here,), daemon=True).start()
        server.run(sockets=[listening])


def _words(session: ReviewSession, host: str, address: str) -> list[str]:
    """The lines to print at the start."""
    trusted = "Answers given here are final: an update never overrules them (--no-trust turns this off)."
    counted = "Answers given here count like any others: an update may overrule them (--trust-review makes them final)."
    lines = [
        f"Reviewing {session.run} at {address}",
        trusted if session.store.trusts_answers() else counted,
        "Every answer is saved immediately. Press Ctrl-C to stop the server.",
    ]
    images = session.images
    if images is None:
        lines.insert(1, "This run has no images: items are shown by name, with what is known about them.")
    elif not images.there:
        lines.insert(1, f"The images are no longer in {images.folder}: items are shown by name. Put them back to see them.")
    if host not in LOOPBACK:
        lines.insert(
            1,
            "Other machines can reach this page. Anyone who has the address with its token can answer.",
        )
    return lines


def _reached_again(host: str, port: int, stored: int) -> socket.socket:
    """A listening socket; for port 0 on the port of the last start, if it is free."""
    if not port and stored:
        with suppress(InputError):
            return _listening(host, stored)
    return _listening(host, port)


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket; an InputError gives the reason if there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP, connections are known as such and send at once; else each answer waits 40 ms for the browser's acknowledgement.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except OverflowError:
        found.close()
        raise InputError(f"--port {port}: choose a number up to 65535, or 0 for any free port.") from None
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"Port {port} is in use. Choose another, or --port 0 for any free port.") from None
        if error.errno == errno.EACCES:
            raise InputError(f"You do not have permission to use port {port}. Choose one above 1023, or --port 0.") from None
        raise InputError(
            f"Cannot listen at {host} ({error.strerror or error}). Leave out --host to listen on this machine only."
        ) from None
    return found


def _names(host: str) -> tuple[str, ...]:
    """The names under which a browser may address the server, the one to print first."""
    if host in LOOPBACK:
        return tuple(dict.fromkeys((host, *LOOPBACK)))
    if host not in EVERYWHERE:
        return (host,)
    name = socket.gethostname()
    with suppress(OSError):
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
        return tuple(dict.fromkeys((name, *sorted(found), *LOOPBACK)))
    return (name, *LOOPBACK)


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
