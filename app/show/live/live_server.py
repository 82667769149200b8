"""The server of the live page: for reading only, with a password where others can reach it."""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from app.config.metrics import address
from app.errors import NotNow, UserError
from app.read.relations import Warehouse
from app.show.live.live_pages import PAGES, LivePages
from app.show.metrics import say_to_log
from app.show.metrics.endpoints import HEALTH
from app.show.metrics.serve import served, until_stopped
from app.show.metrics.server import is_loopback
from app.tables import manifest

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from app.config.settings import Settings

PASSWORD = "WEIR_SERVE_PASSWORD"
HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


def serve(settings: Settings) -> int:
    """Serve the pages of a warehouse at `metrics.listen` until SIGTERM or SIGINT; 0. UserError where
    nothing can listen, or where others reach the address and no password is set."""
    assert settings.metrics is not None
    listen, password = settings.metrics.listen, os.environ.get(PASSWORD, "")
    host, _ = address(listen)
    Warehouse.of(settings.location).require()
    manifest.load(settings.location)
    if not password and host != "localhost" and not is_loopback(host):
        raise UserError(
            f"serve: {listen} can be reached from other machines\nset {PASSWORD}, for which browsers "
            "ask, or listen on 127.0.0.1 behind a proxy that asks who it is"
        )
    pages = LivePages(settings)
    app = guarded(application(pages), password)
    with until_stopped() as stop, served(listen, app, (HEALTH,)) as url:
        say_to_log(f"{settings.warehouse} on {url}/")
        pages.page("/", {})
        pages.keep_current(stop)
    return 0


def application(pages: LivePages) -> WSGIApplication:
    """The pages as an application."""

    def answer(environ: WSGIEnvironment, begin: StartResponse) -> Iterable[bytes]:
        path, status = environ["PATH_INFO"], "200 OK"
        try:
            if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
                status, text = "405 Method Not Allowed", "GET or HEAD"
            elif path == HEALTH:
                text = "ok"
            elif path == "/" or path in PAGES:
                text = pages.page(path, dict(parse_qsl(environ["QUERY_STRING"])))
            else:
                status = "404 Not Found"
                text = 'There is no such page: <a href="/">what is wrong now</a>'
        except NotNow as error:
            status, text = "503 Service Unavailable", f"<pre>{escape(str(error))}</pre>"
        except (UserError, ValueError) as error:
            status, text = "400 Bad Request", f"<pre>{escape(str(error))}</pre>"
        except Exception as error:  # noqa: BLE001 - an answer, where a connection would only end
            status, text = "500 Internal Server Error", f"<pre>{escape(repr(error))}</pre>"
        begin(status, HEADERS)
        return [text.encode()]

    return answer


def guarded(app: WSGIApplication, password: str) -> WSGIApplication:
    """The application for those who know the password, under any name; for all without one. Whether
    it serves is for probes, which know none."""
    if not password:
        return app

    def answer(environ: WSGIEnvironment, begin: StartResponse) -> Iterable[bytes]:
        kind, _, given = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        try:
            known = base64.b64decode(given).partition(b":")[2] if kind.lower() == "basic" else b""
        except ValueError:
            known = b""
        if environ["PATH_INFO"] == HEALTH or hmac.compare_digest(known, password.encode()):
            return app(environ, begin)
        begin("401 Unauthorized", [*HEADERS, ("WWW-Authenticate", 'Basic realm="Weir"')])
        return [f"The password is that of {PASSWORD}.".encode()]

    return answer
