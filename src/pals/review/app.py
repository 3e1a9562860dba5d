"""The web application: addresses and responses. The logic is in `session`, access control in `security`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeGuard
from urllib.parse import parse_qs, quote, unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from pals.review.answer_log import ANSWER_KINDS
from pals.review.image_files import NoImageError
from pals.review.orders import ItemOrder
from pals.review.security import TOO_LARGE, AccessControl, App, TooLargeError
from pals.review.session import BROWSED_KINDS, GRID_ITEMS, ReviewSession
from pals.review.store import LockedError, NewAnswer
from pals.review.template_values import card_values, change_values, common_values, tile_values, undone_values
from pals.review.web.page import STATIC, page, static_file
from pals.runs.rounds import use_round
from pals.util.errors import InputError

MAX_ANNOTATOR_NAME = 60
MAX_KEY_LENGTH = 80
MAX_ITEMS_AT_ONCE = 500
KEEP_ALIVE_SECONDS = 15.0  # seconds without a change after which a comment keeps the stream open
POLL_SECONDS = 0.25  # seconds between two reads of the state
IMAGE_POLICY = "default-src 'none'; sandbox"
REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts allow-popups allow-modals"
)
"""The report allows its own scripts by their hashes; as a page of another origin they cannot act here."""


class WebApp:
    """The application for one session. `annotator`: the name used unless the browser's cookie has another."""

    def __init__(self, session: ReviewSession, annotator: str = "") -> None:
        self.session, self.annotator = session, annotator
        self.closing: Callable[[], bool] = lambda: False

    def app(self, token: str, hosts: frozenset[str]) -> App:
        routes = [
            Route("/", self.start),
            Route("/who", self.who, methods=["GET", "POST"]),
            Route("/item", self.next_item),
            Route("/item/{key}", self.one_item),
            Route("/grid", self.grid),
            Route("/overview", self.overview),
            Route("/changes", self.changes),
            Route("/report", self.report),
            Route("/choices", self.choices),
            Route("/answer", self.answer, methods=["POST"]),
            Route("/undo", self.undo, methods=["POST"]),
            Route("/class", self.new_class, methods=["POST"]),
            Route("/trust", self.trust, methods=["POST"]),
            Route("/update", self.update, methods=["POST"]),
            Route("/round", self.use_round, methods=["POST"]),
            Route("/events", self.events),
            Route("/answers.csv", self.answers_csv),
            Route("/none-of-these.txt", self.missing_class),
            Route("/image/{key}", self.image),
            Route("/thumbnail/{key}", self.thumbnail),
            Route("/static/{name}", self.static),
        ]
        handlers: Mapping[Any, Callable[..., Any]] = {
            InputError: self._refused,
            HTTPException: self._failed,
            TooLargeError: self._too_large,
            LockedError: self._locked,
            ClientDisconnect: self._gone,
        }
        return AccessControl(Starlette(routes=routes, exception_handlers=dict(handlers)), token, hosts)

    # ---- annotators

    def _who(self, request: Request) -> str:
        return _name(unquote(request.cookies.get("annotator", ""))) or self.annotator

    def start(self, request: Request) -> Response:
        given = _name(request.query_params.get("name", ""))
        annotator = given or self._who(request)
        target = f"{_root(request)}/item" if annotator else f"{_root(request)}/who"
        return self._seated(request, RedirectResponse(target, 303), given)

    async def who(self, request: Request) -> Response:
        if request.method == "GET":
            return self._page(request, "who.html")
        fields = parse_qs((await request.body()).decode("utf-8", "replace"))
        name = _name(fields.get("name", [""])[0])
        if not name:
            return self._page(request, "who.html", problem="Enter a name, so that everyone knows whose answers these are.")
        return self._seated(request, RedirectResponse(f"{_root(request)}/item", 303), name)

    def _seated(self, request: Request, response: Response, name: str) -> Response:
        """Store the annotator's name in a cookie."""
        if name:
            path = f"{_root(request)}/"
            response.set_cookie("annotator", quote(name), path=path, httponly=True, samesite="strict", max_age=90 * 86400)
        return response

    # ---- pages

    def next_item(self, request: Request) -> Response:
        order, annotator = _order(request), self._who(request)
        after = self.session.run_state().view.number.get(request.query_params.get("after", ""))
        found = self.session.next(annotator, order, after)
        if found.item is None:
            return self._card(request, "done.html", order, **found._asdict())
        return self._card(request, "card.html", order, **card_values(self.session, found.item, annotator), left=found.left)

    def one_item(self, request: Request) -> Response:
        order, annotator, item = _order(request), self._who(request), self._item(request)
        self.session.store.claim([self.session.run_state().view.items[item]], annotator)
        return self._card(request, "card.html", order, **card_values(self.session, item, annotator), left=None)

    def _card(self, request: Request, template: str, order: ItemOrder, **values: Any) -> Response:
        """The whole page, or only the part that changes from item to item."""
        part = request.headers.get("x-part") == "card"
        return self._page(request, template if part else "item.html", order=order, inner=template, **values)

    def grid(self, request: Request) -> Response:
        order, annotator = _order(request), self._who(request)
        start = _number(request.query_params.get("from")) or 0
        items, left = self.session.page(annotator, order, start)
        tiles, browsed = tile_values(self.session, items, annotator), order.kind in BROWSED_KINDS
        more = {
            "earlier": max(0, start - GRID_ITEMS) if browsed and start else None,
            "later": start + GRID_ITEMS if browsed and start + GRID_ITEMS < left else None,
            "page_size": GRID_ITEMS,
        }
        return self._page(request, "grid.html", order=order, left=left, tiles=tiles, **more)

    def overview(self, request: Request) -> Response:
        return self._page(request, "overview.html", order=ItemOrder(), **self.session.overview(self._who(request)))

    def changes(self, request: Request) -> Response:
        """The labels that a round changed, the current one by default."""
        return self._page(request, "changes.html", **change_values(self.session, _number(request.query_params.get("round"))))

    def report(self, request: Request) -> Response:
        path = self.session.run_state().view.folder / "report.html"
        if not path.is_file():
            raise HTTPException(404, "This run has no report: pals report RUN writes it.")
        headers = {"cache-control": "no-store", "content-security-policy": REPORT_POLICY}
        return Response(path.read_bytes(), media_type="text/html", headers=headers)

    def choices(self, request: Request) -> Response:
        added = [{"name": name, "depth": 0, "leaf": True} for name in self.session.new_classes()]
        return JSONResponse([*self.session.run_state().view.choices, *added])

    def _page(self, request: Request, template: str, **values: Any) -> Response:
        annotator = self._who(request)
        if not annotator and template != "who.html":
            return RedirectResponse(f"{_root(request)}/who", 303)
        common = common_values(self.session, annotator) | {"root": _root(request), "problem": ""}
        return HTMLResponse(page(template, **(common | values)), headers={"cache-control": "no-store"})

    # ---- answers and updates

    async def answer(self, request: Request) -> Response:
        """Save answers to one item or to many; the response is sent when they are on disk."""
        body = await _json(request)
        return JSONResponse(await run_in_threadpool(self._answer, self._who(request), body))

    def _answer(self, annotator: str, body: Mapping[str, Any]) -> dict[str, Any]:
        said, key = self._said(body), body.get("key")
        if not annotator:
            raise InputError("Enter your name first.")
        if not isinstance(key, str) or not 8 <= len(key) <= MAX_KEY_LENGTH:
            raise InputError("Each answer needs a key of its own.")
        return {"saved": self.session.answer(annotator, said, key)}

    def _said(self, body: Mapping[str, Any]) -> list[NewAnswer]:
        view = self.session.run_state().view
        keys, kind, labels = body.get("items", []), body.get("kind"), body.get("labels", [])
        if (
            not _texts(keys)
            or not 1 <= len(keys) <= MAX_ITEMS_AT_ONCE
            or kind not in (*ANSWER_KINDS, "as-suggested")
            or not _texts(labels)
        ):
            raise InputError("Give items, a kind of answer and its labels.")
        numbers = [view.number.get(key) for key in dict.fromkeys(keys)]
        found = [number for number in numbers if number is not None]
        if len(found) < len(numbers):
            raise InputError("One of these items is not in this run.")
        if kind == "as-suggested":
            return [NewAnswer(view.items[item], "label", (self.session.suggestion(item),)) for item in found]
        sure, settles = body.get("sure") is not False, body.get("settles") is True
        return [NewAnswer(view.items[item], kind, tuple(labels), sure, settles) for item in found]

    async def undo(self, request: Request) -> Response:
        body = await _json(request)
        key = body.get("key")
        if not isinstance(key, str) or not 8 <= len(key) <= MAX_KEY_LENGTH:
            raise InputError("Each undo needs a key of its own.")
        keys, view = body.get("items", []), self.session.run_state().view
        if not _texts(keys) or len(keys) > MAX_ITEMS_AT_ONCE or not all(item in view.number for item in keys):
            raise InputError("One of these items is not in this run.")
        items = [view.items[view.number[item]] for item in dict.fromkeys(keys)]
        taken = await run_in_threadpool(self.session.store.undo, self._who(request), key, items)
        return JSONResponse({"undone": undone_values(self.session, taken)})

    async def new_class(self, request: Request) -> Response:
        """Name a class that the run does not have."""
        name = (await _json(request)).get("name")
        if not isinstance(name, str):
            raise InputError("Give the name of the class.")
        return JSONResponse({"name": await run_in_threadpool(self.session.add_class, name)})

    async def trust(self, request: Request) -> Response:
        """Choose whether the answers given here are trusted, for the updates to come."""
        trusted = (await _json(request)).get("trusted")
        if not isinstance(trusted, bool):
            raise InputError("Answers are trusted (true) or not (false).")
        await run_in_threadpool(self.session.trust_answers, trusted)
        return JSONResponse({"trusted": trusted})

    async def update(self, request: Request) -> Response:
        await _json(request)
        started = await run_in_threadpool(self.session.update.start)
        return JSONResponse({"started": started}, 202 if started else 409)

    async def use_round(self, request: Request) -> Response:
        """Make a round current again."""
        number = _number((await _json(request)).get("round"))
        if number is None:
            raise InputError("Give the number of a round.")
        shown = await run_in_threadpool(use_round, self.session.run, number)
        return JSONResponse({"round": shown.number})

    async def events(self, request: Request) -> Response:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(request), media_type="text/event-stream", headers=headers)

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        """Server-sent events: the live state whenever it changes."""
        state: dict[str, Any] | None = None
        last, silent = state, 0.0
        while not self.closing() and not await request.is_disconnected():
            with suppress(InputError):  # other requests report what is wrong with the store
                state = await run_in_threadpool(self.session.live_state)
            if state != last:
                last, silent = state, 0.0
                yield f"data: {json.dumps(state)}\n\n"
            elif silent >= KEEP_ALIVE_SECONDS:
                silent = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(POLL_SECONDS)
            silent += POLL_SECONDS

    # ---- files

    def answers_csv(self, request: Request) -> Response:
        return _download(self.session.export(), "text/csv", f"{self.session.run.resolve().name}-answers.csv")

    def missing_class(self, request: Request) -> Response:
        return _download(self.session.missing_class(), "text/plain", "none-of-these.txt")

    def image(self, request: Request) -> Response:
        return self._image(request, small=False)

    def thumbnail(self, request: Request) -> Response:
        return self._image(request, small=True)

    def _image(self, request: Request, *, small: bool) -> Response:
        images, item = self.session.images, self.session.run_state().view.items[self._item(request)]
        if images is None:
            return Response("This run has no images.", 404, media_type="text/plain")
        try:
            data, media_type = images.thumbnail(item) if small else images.full(item)
        except NoImageError as error:
            return Response(str(error), 404, media_type="text/plain")
        headers = {"cache-control": "private, max-age=600", "content-security-policy": IMAGE_POLICY}
        return Response(data, media_type=media_type, headers=headers)

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            raise HTTPException(404)
        return Response(static_file(name), media_type=STATIC[name], headers={"cache-control": "no-cache"})

    def _item(self, request: Request) -> int:
        item = self.session.run_state().view.number.get(request.path_params["key"])
        if item is None:
            raise HTTPException(404, "There is no such item in this run.")
        return item

    # ---- what went wrong

    def _refused(self, request: Request, error: Exception) -> Response:
        return self._problem(request, str(error), 400) or JSONResponse({"error": str(error)}, 400)

    def _failed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = "There is no such page." if error.detail == HTTPStatus.NOT_FOUND.phrase else error.detail
        return self._problem(request, words, error.status_code) or Response(
            f"{words}\n", error.status_code, media_type="text/plain", headers=dict(error.headers or {})
        )

    def _problem(self, request: Request, words: str, status: int) -> Response | None:
        """An error page with a way back, for browsers; it needs neither run nor store."""
        if "text/html" not in request.headers.get("accept", ""):
            return None
        known = {"run": self.session.run.resolve().name, "root": _root(request), "round": 0, "annotator": ""}
        return HTMLResponse(page("problem.html", **known, words=words), status, headers={"cache-control": "no-store"})

    def _locked(self, request: Request, error: Exception) -> Response:
        """Nothing was saved; the script of the page tries again."""
        return self._problem(request, str(error), 503) or JSONResponse(
            {"error": str(error)}, 503, headers={"retry-after": "1", "cache-control": "no-store"}
        )

    def _gone(self, request: Request, error: Exception) -> Response:
        """The client closed the connection while the request was sent."""
        return Response(status_code=400)

    def _too_large(self, request: Request, error: Exception) -> Response:
        return Response(f"{TOO_LARGE.words}\n", TOO_LARGE.status, media_type="text/plain")


def _root(request: Request) -> str:
    return str(request.scope["root_path"])


def _name(text: str) -> str:
    """An annotator's name: one line of limited length."""
    return " ".join(text.split())[:MAX_ANNOTATOR_NAME]


def _order(request: Request) -> ItemOrder:
    query = request.query_params
    return ItemOrder.read(query.get("order", "queue"), query.get("value", "")[:200])


def _number(value: Any) -> int | None:
    """A whole number from an address or from JSON."""
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() and len(str(value)) < 10 else None


def _texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


async def _json(request: Request) -> Mapping[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "Send JSON.")
    try:
        value = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise InputError("That is not JSON.") from None
    if not isinstance(value, dict):
        raise InputError("Send a JSON object.")
    return value


def _download(text: str, media_type: str, name: str) -> Response:
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "_" for letter in name)
    headers = {"content-disposition": f'attachment; filename="{plain}"', "cache-control": "no-store"}
    return Response(text.encode("utf-8"), media_type=media_type, headers=headers)


def allowed_hosts(names: Sequence[str], port: int) -> frozenset[str]:
    """The values of the Host header that are accepted; port 80 may be left out."""
    named = [f"[{name}]" if ":" in name else name for name in names]
    return frozenset([f"{name}:{port}".lower() for name in named] + ([name.lower() for name in named] if port == 80 else []))
