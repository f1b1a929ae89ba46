"""The explorer's server: on this machine alone, for whoever has its address.

The standard library's `http.server` is enough: one person, a handful of questions a second, answered by the library's
vectorised account in about a tenth of a second. A framework would bring dependencies and routes to watch over, and
nothing that is needed. A request is answered only if it came over the loopback interface (there is no other socket),
names this server as its host (so no other site can reach it through a name of its own), holds the random token of its
address, and was not sent by a page from elsewhere. Nothing is logged, and no record is ever read: there is no way to
hand one over.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from discretion.report.explorer.model import Setting, certified, prices, world
from discretion.report.explorer.sheet import sheet

__all__ = ["Explorer"]

LOOPBACK = "127.0.0.1"
LONGEST = 4_096
"""Characters of the longest address that is read."""
WORLDS = 1_000_000
"""Seeds of simulated worlds."""


class Explorer:
    """A running explorer.

    Args:
        port: to listen at; 0 lets the system choose.

    Attributes:
        address: where it is, token and all. Whoever has it may ask for prices, and nothing else.
    """

    def __init__(self, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        self._server = ThreadingHTTPServer((LOOPBACK, port), type("Handler", (_Handler,), {"explorer": self}))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._busy = threading.Lock()

    @property
    def address(self) -> str:
        """Where the page is, with the token that opens it: whoever has it may look."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def serve(self) -> None:
        """Answer until interrupted."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()

    def answer(self, name: str, query: Mapping[str, str]) -> dict[str, Any]:
        """What is answered to the page `name`, one of `_ANSWERS`, and its query. One long computation at a time.

        Raises:
            ValueError: the query is out of range.
        """
        asked = dict(query)
        seed = asked.pop("seed", "0")
        setting = Setting.read(asked)
        if name == "prices":
            return prices(setting)
        with self._busy:
            if name == "certified":
                return certified(setting)
            return world(setting, int(seed) % WORLDS if seed.isdecimal() and len(seed) < 10 else 0)


_ANSWERS = ("prices", "certified", "world")


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    explorer: Explorer
    server_version = "discretion"
    sys_version = ""
    timeout = 30

    def handle(self) -> None:
        """Answer, unless the page was closed or loaded anew before its answer was there."""
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        """Answer, or refuse without a reason: 403; 400 for what is no address."""
        try:
            parts = urlsplit(self.path)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", "This is no address.\n")
            return
        _, token, *rest = parts.path.split("/", 2) if parts.path.count("/") >= 2 else ("", "", "")
        if not (self._own_host() and self._own_page() and hmac.compare_digest(token.encode(), self._token)):
            self._send(HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", "Refused.\n")
            return
        name = rest[0] if rest else ""
        if name == "" and not parts.query:
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", sheet())
        elif name in _ANSWERS and len(self.path) <= LONGEST:
            self._answer(lambda: self.explorer.answer(name, dict(parse_qsl(parts.query, keep_blank_values=True))))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", "There is nothing here.\n")

    @property
    def _token(self) -> bytes:
        return self.explorer.token.encode()

    def _own_host(self) -> bool:
        """Whether the request names this server: a site that points its own name here does not."""
        hosts = self.headers.get_all("Host") or []
        return len(hosts) == 1 and hosts[0] in (f"{LOOPBACK}:{self.explorer.port}", f"localhost:{self.explorer.port}")

    def _own_page(self) -> bool:
        """Whether it was typed in, or asked by the explorer's own page."""
        origin = self.headers.get("Origin")
        own = origin is None or origin in (
            f"http://{LOOPBACK}:{self.explorer.port}",
            f"http://localhost:{self.explorer.port}",
        )
        return own and self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def _answer(self, compute: Callable[[], dict[str, Any]]) -> None:
        try:
            status, found = HTTPStatus.OK, compute()
        except (ValueError, ArithmeticError) as error:
            # Everything is public here, so the message may say what was wrong.
            status, found = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        self._send(status, "application/json", json.dumps(found))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: the token stands in every address."""
