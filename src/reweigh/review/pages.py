"""The addresses of the review and what they answer.

    GET  /            the page              GET  /image/INDEX  a suspect's image
    GET  /card        another suspect       GET  /files/NAME   one of the exported files
    GET  /progress    how far we are        GET  /classes      the labels to choose from
    POST /decide      keep, relabel, drop or skip
    POST /undo        take back             POST /export       write the files
    GET  /groups      suspects with the same error             POST /group   decide about one of these
    GET  /checked/INDEX/PLACE               the image of a checked row that speaks against a suspect

Nothing in an address is ever a path: images are found by row, files in a table of names.
"""

import json
import math
import threading
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from ..errors import ReweighError, SettingError, unknown
from ..runs import Json
from . import page_content, suspect_image, visible_text
from .decisions import Decision
from .exports import export, exported_files
from .gate import Gate, Keys
from .groups import SuspectGroup
from .page_content import in_words
from .review_state import ReviewState
from .suspect_selection import SHOW, STATES, SuspectSelection
from .visible_text import render

STATIC = {
    "review.css": "text/css",
    "review.js": "text/javascript",
    "relabel.js": "text/javascript",
    "entrance.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

GROUP_ACTIONS = ("relabel", "keep", "drop")


def application(review: ReviewState, keys: Keys) -> Gate:
    """The review as an ASGI application."""
    pages = Pages(review)
    routes = [
        Route("/", pages.page),
        Route("/card", pages.card),
        Route("/progress", pages.progress),
        Route("/classes", pages.classes),
        Route("/image/{index:int}", pages.image),
        Route("/checked/{index:int}/{place:int}", pages.checked_image),
        Route("/groups", pages.groups),
        Route("/files/{name}", pages.file),
        Route("/static/{name}", _static),
        Route("/decide", _posted(pages.decide), methods=["POST"]),
        Route("/group", _posted(pages.decide_group), methods=["POST"]),
        Route("/undo", _posted(pages.undo), methods=["POST"]),
        Route("/export", _posted(pages.export), methods=["POST"]),
    ]
    return Gate(Starlette(routes=routes, exception_handlers={ReweighError: _refused}), keys=keys)


class Pages:
    """What each address answers: a GET by its request, a POST by the JSON in its body."""

    def __init__(self, review: ReviewState) -> None:
        self._review = review
        self._exporting = threading.Lock()

    def page(self, request: Request) -> Response:
        """The whole page, at the row and selection of the address."""
        run, selection = self._review.run, SuspectSelection.of(request.query_params)
        content = render(
            "page.html",
            folder=run.path,
            source=run.source,
            show=SHOW,
            finite=math.isfinite,
            options=page_content.options(self._review),
            flags=self._review.suspects.flagged is not None,
            choices=page_content.choices(run.source.classes),
            **page_content.view(self._review, selection, _row(request.query_params.get("row"))),
        )
        return Response(content, media_type="text/html")

    def card(self, request: Request) -> Response:
        """The card of a row, or of the first that matches."""
        query = request.query_params
        return self._answer(SuspectSelection.of(query), _row(query.get("row")))

    def progress(self, request: Request) -> Response:
        """The counts, and the decision about a row; the page asks now and then, since other tabs decide too."""
        row = _row(request.query_params.get("row"))
        selection = SuspectSelection.of(request.query_params)
        shown = render("progress.html", **page_content.progress(self._review, selection))
        state = in_words(self._review.history.of(row)) if row is not None else None
        return JSONResponse({"progress": shown, "state": state})

    def classes(self, request: Request) -> Response:
        """Every label, and how to show it."""
        names = self._review.run.source.classes
        return JSONResponse([[name, visible_text.label(name)] for name in names])

    def image(self, request: Request) -> Response:
        """The image of a suspect."""
        source, suspects = self._review.run.source, self._review.suspects
        position = suspects.position(request.path_params["index"])
        if position is None or source.kind != "images":
            raise HTTPException(404)
        return _image(source.data, suspects.at(position).example)

    def checked_image(self, request: Request) -> Response:
        """The image of a checked row that speaks about a suspect."""
        source = self._review.run.source
        index, place = request.path_params["index"], request.path_params["place"]
        voices = self._review.voices.get(index, [])
        if place >= len(voices) or source.kind != "images":
            raise HTTPException(404)
        folder = source.data if voices[place].file == "data" else source.clean
        if folder is None:
            raise HTTPException(404)
        return _image(folder, voices[place].example)

    def groups(self, request: Request) -> Response:
        """The suspects of a selection that have the same error."""
        found = self._review.groups(SuspectSelection.of(request.query_params))
        return JSONResponse({"groups": render("groups.html", groups=found)})

    def decide_group(self, body: Json) -> Response:
        """Decide about all rows of a group, then show what is left."""
        given, suggested, source = (body.get(name) for name in ("given", "suggested", "source"))
        count, action = body.get("count"), body.get("action")
        named = isinstance(given, str) and isinstance(suggested, str)
        if not named or not isinstance(source, str | None) or not isinstance(count, int):
            raise SettingError(f"{body!r:.200} is no group; expected its labels and how many rows")
        if action not in GROUP_ACTIONS:
            raise unknown("action", action, GROUP_ACTIONS)
        asked = SuspectGroup(
            str(given), str(suggested), source, (0,) * min(count, 10**6), None, None
        )
        selection = _selection(body)
        name, done = self._review.decide_group(selection, asked, str(action))
        what = STATES[str(action)].lower()
        said = f"{done:,} rows {what}. Undo takes all of them back."
        return self._answer(selection, None, said=said, group=name)

    def file(self, request: Request) -> Response:
        """An exported file, to save."""
        names = {path.name: path for path in exported_files(self._review.run)}
        path = names.get(request.path_params["name"])
        if path is None or not path.is_file():
            raise HTTPException(404)
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    def decide(self, body: Json) -> Response:
        """Write a decision, then go on to the next row."""
        review, selection = self._review, _selection(body)
        made = Decision(body.get("index"), body.get("action"), body.get("label"))  # type: ignore[arg-type]
        made = review.decide(made)
        position = review.suspects.position(made.index)
        assert position is not None  # `decide` has refused all others
        after = review.after(selection, position)
        row = None if after is None else int(review.suspects.index[after])
        return self._answer(selection, row, said=f"Row {made.index}: {in_words(made)}.")

    def undo(self, body: Json) -> Response:
        """Take back the last decision about the row that was sent, or the last of all; show the row."""
        index = body.get("index")
        if index is not None and (not isinstance(index, int) or isinstance(index, bool)):
            raise SettingError(f"index {index!r} is no row; expected a number, or none")
        latest = self._review.latest if index is None else None
        group = body.get("group") or (latest.group if latest else None)
        if group is not None:
            return self._undo_group(str(group), _selection(body))
        undone = self._review.undo(index)
        if undone is None:
            return JSONResponse({"said": "There is nothing to undo."})
        now = in_words(self._review.history.of(undone)) or "to do again"
        return self._answer(_selection(body), undone, said=f"Undone. Row {undone}: {now}.")

    def _undo_group(self, group: str, selection: SuspectSelection) -> Response:
        rows = self._review.undo_group(group)
        if not rows:
            return JSONResponse({"said": "There is nothing to undo."})
        return self._answer(selection, rows[0], said=f"Undone: {len(rows):,} rows.")

    def export(self, body: Json) -> Response:
        """Write the files."""
        review, exact = self._review, body.get("exact") is True
        with self._exporting:
            made = export(review.run, review.suspects, review.standing(), exact=exact)
        return JSONResponse({"exported": render("exported.html", made=made, exact=exact)})

    def _answer(
        self,
        selection: SuspectSelection,
        row: int | None,
        *,
        said: str = "",
        group: str | None = None,
    ) -> Response:
        view = page_content.view(self._review, selection, row)
        shown = view["card"]
        return JSONResponse(
            {
                "row": shown.suspect.index if shown else None,
                "query": selection.query,
                "card": render("card.html", source=self._review.run.source, **view),
                "progress": render("progress.html", **view),
                "said": said,
                "group": group,
            }
        )


def _image(folder: Path, relative: str) -> Response:
    content, media_type = suspect_image.content(suspect_image.picture(folder, relative))
    return Response(content, media_type=media_type)


def _posted(answer: Callable[[Json], Response]) -> Callable[[Request], Awaitable[Response]]:
    """`answer` for requests with a JSON body; it waits for the disk, so it runs in a thread."""

    async def answered(request: Request) -> Response:
        return await run_in_threadpool(answer, await _body(request))

    return answered


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    content = files("reweigh.review").joinpath("static", name).read_bytes()
    return Response(content, media_type=STATIC[name])


def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": visible_text.visible(str(error))}, 422)


async def _body(request: Request) -> Json:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise SettingError("the request is not JSON; expected an object") from None
    if not isinstance(body, dict):
        raise SettingError(f"the request is a {type(body).__name__}; expected an object")
    return body


def _selection(body: Json) -> SuspectSelection:
    return SuspectSelection.of(dict(parse_qsl(str(body.get("query", "")))))


def _row(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None
