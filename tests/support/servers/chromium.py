"""A real headless Chromium, driven through the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--remote-debugging-pipe",
)
HEARD = (
    "Network.requestWillBeSent",
    "Runtime.exceptionThrown",
    "Runtime.consoleAPICalled",
    "Log.entryAdded",
)
# What a command is refused with while the page gives way to the next one.
LEFT = ("navigated", "context")


class BrowserFailed(Exception):
    """Chromium did not start, ended, or refused a command."""


def executable() -> str | None:
    """Chromium's path; None if it is not installed."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Chromium:
    """One browser with one page; commands wait for their answer, events are kept in order."""

    def __init__(self, profile: Path, *, patience_s: float = 60.0) -> None:
        found = executable()
        assert found is not None
        self._patience_s = patience_s
        commands_in, self._commands = os.pipe()
        self._answers, answers_out = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        shell = 'in=$1 out=$2; shift 2; eval "exec \\"\\$@\\" 3<&$in 4>&$out"'
        line = [
            "bash",
            "-c",
            shell,
            "bash",
            str(commands_in),
            str(answers_out),
            found,
            *OPTIONS,
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            line,
            pass_fds=(commands_in, answers_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands_in)
        os.close(answers_out)
        self._number = 0
        self._unread = b""
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of one command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self._patience_s
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserFailed(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, address: str, width: int, height: int = 844, dark: bool = False) -> None:
        """Load a page at a width (CSS pixels) and wait until it is there; events begin anew."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.events.clear()
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + self._patience_s
        while all(name != "Page.loadEventFired" for name, _ in self.events):
            self._next(deadline)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, when the page is there.

        A page that loads itself again has no body for a moment: it is waited for.
        """
        asked = f"document.readyState == 'complete' ? [{script}] : null"
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            try:
                answer = self.call("Runtime.evaluate", expression=asked, returnByValue=True)
            except BrowserFailed as error:
                if not any(each in str(error) for each in LEFT):
                    raise
                continue
            if "exceptionDetails" in answer:
                raise BrowserFailed(f"{script}: {answer['exceptionDetails']}")
            if (value := answer["result"].get("value")) is not None:
                return value[0]
            time.sleep(0.02)
        raise BrowserFailed(f"{script}: the page is not loaded in {self._patience_s} s")

    def heard(self) -> list[tuple[str, dict[str, Any]]]:
        """Requests, console messages, log entries and exceptions since the page was opened."""
        self.evaluate("1")  # what the page has said until now comes before this answer
        return [event for event in self.events if event[0] in HEARD]

    def screenshot(self, whole: bool = False) -> bytes:
        """The page as PNG: what is seen, or all of it."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        """End the browser."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, BrowserFailed, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._commands)
            os.close(self._answers)

    def _next(self, deadline: float) -> dict[str, Any]:
        """The next message; an event is kept as well."""
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], deadline - time.monotonic())
            block = os.read(self._answers, 1 << 20) if ready else b""
            if not block:
                raise BrowserFailed("Chromium ended" if ready else "Chromium does not answer")
            self._unread += block
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append((message["method"], message.get("params", {})))
        return message


def loaded(events: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """The addresses that were asked for."""
    return [
        params["request"]["url"] for name, params in events if name == "Network.requestWillBeSent"
    ]
