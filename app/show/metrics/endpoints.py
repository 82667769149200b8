"""The paths of the exporter's server: `/metrics`, `/healthz`, `/ready`, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

METRICS, HEALTH, READY = "/metrics", "/healthz", "/ready"


def endpoints(metrics: WSGIApplication, obstacle: Callable[[], str]) -> WSGIApplication:
    """`metrics` at its path; `/healthz` answers 200 while the process serves; `/ready` answers 200,
    or 503 with the `obstacle` where that is not empty."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == METRICS:
            return metrics(environ, start)
        status, text = "404 Not Found", f"paths: {METRICS}, {HEALTH}, {READY}"
        if path in (HEALTH, READY):
            found = obstacle() if path == READY else ""
            status, text = ("503 Service Unavailable", found) if found else ("200 OK", "ok")
            if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
                status, text = "405 Method Not Allowed", "GET or HEAD"
        body = f"{text}\n".encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
        ]
        start(status, headers)
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]

    return answer
