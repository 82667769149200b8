"""The server of the live page: for reading only, with a password where others can reach it."""

from __future__ import annotations

import base64
import hmac
import os
import signal
import threading
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from app.config.metrics import address
from app.errors import UserError
from app.read.relations import Warehouse
from app.show.live.live_pages import PATHS, LivePages
from app.show.metrics import say_to_log
from app.show.metrics.server import is_loopback, start
from app.tables import manifest

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from app.config.settings import Settings

PASSWORD = "WEIR_SERVE_PASSWORD"
LISTEN = "127.0.0.1:9465"
HEALTH = "/healthz"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


def serve(settings: Settings, listen: str = LISTEN) -> int:
    """Serve the pages of a warehouse until SIGTERM or SIGINT; 0. UserError where nothing can listen,
    or where others reach the address and no password is set."""
    try:
        host, port = address(listen)
    except ValueError as error:
        raise UserError(f"--listen {error}") from error
    Warehouse.of(settings.location).require()
    manifest.load(settings.location)
    password = os.environ.get(PASSWORD, "")
    if not password and host != "localhost" and not is_loopback(host):
        raise UserError(
            f"serve: {listen} can be reached from other machines\nset {PASSWORD}, for which browsers "
            "ask, or listen on 127.0.0.1 behind a proxy that asks who it is"
        )
    pages, stop = LivePages(settings), threading.Event()
    try:
        server, thread = start(host, port, guarded(application(pages), password), (HEALTH,))
    except OSError as error:
        raise UserError(
            f"serve: --listen {listen}: {error.strerror or error}\nanother program may hold the port:"
            " choose one with --listen HOST:PORT"
        ) from error
    earlier = {number: signal.signal(number, lambda *_: stop.set()) for number in SIGNALS}
    try:
        shown = f"[{host}]" if ":" in host else host
        say_to_log(f"{settings.warehouse} on http://{shown}:{server.server_port}/")
        pages.page("/", {})
        pages.keep_current(stop)
    finally:
        server.shutdown()
        thread.join()
        for number, handler in earlier.items():
            signal.signal(number, handler)
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
            elif path in PATHS:
                text = pages.page(path, dict(parse_qsl(environ["QUERY_STRING"])))
            else:
                status = "404 Not Found"
                text = 'There is no such page: <a href="/">what is wrong now</a>'
        except (UserError, ValueError) as error:
            status, text = "400 Bad Request", f"<pre>{escape(str(error))}</pre>"
        begin(status, HEADERS)
        return [text.encode()]

    return answer


def guarded(app: WSGIApplication, password: str) -> WSGIApplication:
    """The application for those who know the password, under any name; for all without one."""
    if not password:
        return app

    def answer(environ: WSGIEnvironment, begin: StartResponse) -> Iterable[bytes]:
        kind, _, given = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        try:
            known = base64.b64decode(given).partition(b":")[2] if kind.lower() == "basic" else b""
        except ValueError:
            known = b""
        if hmac.compare_digest(known, password.encode()):
            return app(environ, begin)
        begin("401 Unauthorized", [*HEADERS, ("WWW-Authenticate", 'Basic realm="Weir"')])
        return [f"The password is that of {PASSWORD}.".encode()]

    return answer
