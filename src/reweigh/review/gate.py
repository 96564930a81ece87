"""Who may ask: only the person at this computer who was shown the address, and only from our pages.

- The token of the printed address, once; from then on a cookie that no script can read and no other
  site's page can make the browser send.
- The Host must be this computer, so that no name on the net can be pointed here; what changes
  something must come from a page of ours (Origin).
- Bodies are bounded. Every answer forbids inline script, foreign content, framing and type guessing.
"""

import hmac
import secrets

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .visible_text import render

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
LARGEST_BODY = 64 << 10
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Keys:
    """The token, and tickets that open once: a browser's command line is for all on a computer to see."""

    def __init__(self, *, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self.cookie = f"reweigh-{port}"  # cookies do not tell ports apart
        self._tickets: set[str] = set()

    def ticket(self) -> str:
        """A new ticket."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return ticket

    def opens(self, key: str) -> bool:
        """Whether `key` is the token or an unused ticket, which is then used."""
        if key in self._tickets:
            self._tickets.remove(key)
            return True
        return self.holds(key)

    def holds(self, key: str) -> bool:
        """Whether `key` is the token; takes the same time for every wrong one."""
        return hmac.compare_digest(key.encode(), self.token.encode())


class Gate:
    """Lets requests through to `app`, or answers them itself."""

    def __init__(self, app: ASGIApp, *, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._answer(scope)
        if answer is None:
            answer = await _bounded(self._app, scope, receive, guarded)
        if answer is not None:
            await answer(scope, receive, guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """The gate's own answer; None lets the request through."""
        headers = Headers(scope=scope)
        refused = _refused(scope["method"], headers)
        if refused is not None:
            return PlainTextResponse(*refused)
        if scope["path"].startswith("/static/"):
            return None  # the package's own files
        key = QueryParams(scope["query_string"]).get("token")
        if scope["path"] == "/" and key is not None and self._keys.opens(key):
            return self._entrance()
        cookies = cookie_parser(headers.get("cookie", ""))
        if not self._keys.holds(cookies.get(self._keys.cookie, "")):
            return Response(render("denied.html"), 403, media_type="text/html")
        return None

    def _entrance(self) -> Response:
        """Hand out the cookie, and lead on to the bare address.

        By a page of ours and not by a redirect: a strict cookie is not sent along a chain of
        redirects that began in another program's page, such as a terminal in a browser.
        """
        response = Response(render("entrance.html"), media_type="text/html")
        response.set_cookie(
            self._keys.cookie, self._keys.token, httponly=True, samesite="strict", path="/"
        )
        return response


def _refused(method: str, headers: Headers) -> tuple[str, int] | None:
    """Why a request is none of ours, and the status that says so."""
    host = headers.get("host", "")
    if host not in LOOPBACK and host.rpartition(":")[0] not in LOOPBACK:
        return "unknown host", 421
    if method in ("GET", "HEAD"):
        return None
    if headers.get("origin") != f"http://{host}":
        return "this request comes from another site", 403
    if headers.get("content-type", "").partition(";")[0] != "application/json":
        return "expected application/json", 415
    return None


async def _bounded(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> Response | None:
    """Read the body up to the bound, and only then let `app` have it."""
    body = b""
    try:
        async for piece in Request(scope, receive).stream():
            body += piece
            if len(body) > LARGEST_BODY:
                return PlainTextResponse(f"expected at most {LARGEST_BODY} bytes", 413)
    except ClientDisconnect:
        return None
    read = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return read.pop() if read else await receive()

    await app(scope, replay, send)
    return None
