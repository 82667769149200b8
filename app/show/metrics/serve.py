"""The command `metrics`: an HTTP server for Prometheus beside a thread that reads the warehouse."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from app.config.metrics import MetricsSettings, address
from app.read.relations import Warehouse
from app.show.metrics import say_to_log
from app.show.metrics.endpoints import HEALTH, READY, endpoints
from app.show.metrics.exporter import Exporter
from app.show.metrics.listen import OF_METRICS, OF_RUN, taken
from app.show.metrics.server import start
from app.tables import manifest
from app.terminal.rows import plain

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from app.config.settings import Settings

LAST_READ_S = 1.0
"""For a read at the end, which the end of the interpreter would cut."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def print_once(settings: Settings, as_json: bool) -> int:
    """Read the warehouse and print its metrics; 2 if a part of it could not be read."""
    Warehouse.of(settings.location).require()
    manifest.load(settings.location)
    exporter = Exporter(settings, say_to_log)
    problems = exporter.refresh()
    if as_json:
        print(
            json.dumps(
                [
                    {
                        "name": name,
                        "type": metric.type,
                        "help": metric.documentation,
                        "samples": [
                            {"labels": s.labels, "value": plain(s.value)}
                            for s in metric.samples
                            if s.name == name
                        ],
                    }
                    for metric in exporter.collect()
                    for name in dict.fromkeys(s.name for s in metric.samples)
                ]
            )
        )
    else:
        sys.stdout.write(generate_latest(_registry(exporter)).decode())
    return 2 if problems else 0


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT."""
    with until_stopped() as stop, exporting(settings, say_to_log, OF_METRICS):
        stop.wait()
    return 0


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set meanwhile."""
    stop = threading.Event()
    earlier = {number: signal.signal(number, lambda *_: stop.set()) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def exporting(
    settings: Settings,
    say: Callable[[str], None],
    remedy: str = OF_RUN,
    obstacle: Callable[[], str] | None = None,
) -> Iterator[None]:
    """Serve the metrics meanwhile; a UserError if the address cannot be listened on, whose second
    line is the `remedy`. `obstacle` returns the reason why `/ready` answers 503; without it
    that is what keeps the warehouse from being read."""
    exporter = Exporter(settings, say)
    listen = (settings.metrics or MetricsSettings()).listen
    app = endpoints(make_wsgi_app(_registry(exporter)), obstacle or exporter.obstacle)
    stop = threading.Event()
    # A read that hangs must not keep the process from ending.
    reader = threading.Thread(
        target=exporter.keep_current, args=(stop,), daemon=True, name="weir-metrics"
    )
    with served(listen, app, (HEALTH, READY), remedy) as url:
        say(f"metrics of {settings.warehouse} on {url}/metrics")
        reader.start()
        try:
            yield
        finally:
            stop.set()
    reader.join(LAST_READ_S)


@contextmanager
def served(
    listen: str, app: WSGIApplication, at_once: Sequence[str], remedy: str = OF_METRICS
) -> Iterator[str]:
    """Serve an application on HOST:PORT meanwhile, at the address that is given back. A UserError with
    the `remedy` if it cannot be listened on."""
    host, port = address(listen)
    try:
        server, thread = start(host, port, app, at_once)
    except OSError as error:
        raise taken(listen, error, remedy) from error
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


def _registry(exporter: Exporter) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)
    return registry
