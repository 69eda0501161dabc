"""A real headless Chromium, driven over its debugging pipe: the displayed page and its network requests."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.waiting import HANGING

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
PROGRAM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), "")


class Browser:
    """Chromium with a new profile, as a context manager. `flags` are further options of its command line."""

    def __init__(self, *flags: str) -> None:
        self._flags = (*FLAGS, *flags)
        self.events: list[dict[str, Any]] = []
        self._count = 0
        self._rest = b""

    def __enter__(self) -> Browser:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        words = shlex.join([PROGRAM, *self._flags, f"--user-data-dir={self._profile.name}"])
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {words} 3<&{theirs_in} 4>&{theirs_out}"],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.call("Browser.close")
        self._process.wait(HANGING)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def open(self, location: Path | str, width: int = 1100, height: int = 900, dark: bool = False) -> Page:
        """The page in this file or at this address, once it has loaded."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        page.listen()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.call("Emulation.setEmulatedMedia", {"features": scheme})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", size)
        page.call("Page.navigate", {"url": location if isinstance(location, str) else location.as_uri()})
        self.wait("Page.loadEventFired", session)
        # Two frames: the page has been laid out and painted once.
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return page

    def call(self, method: str, parameters: Any = None, session: str = "") -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters or {}}
        message |= {"sessionId": session} if session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def wait(self, method: str, session: str) -> dict[str, Any]:
        """The first event of this name in this session."""
        checked = 0
        while True:
            for event in self.events[checked:]:
                if (event["method"], event.get("sessionId")) == (method, session):
                    return event
            checked = len(self.events)
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + HANGING
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser has not answered for {HANGING:g} s"
            got = os.read(self._in, 1 << 20)
            assert got, "the browser has ended"
            self._rest += got
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


class Page:
    """An open page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session

    def call(self, method: str, parameters: Any = None) -> Any:
        return self.browser.call(method, parameters, self.session)

    def listen(self) -> None:
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True})

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        parameters = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", parameters)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of a JavaScript expression once it is true. The page may reload in between."""
        deadline = time.monotonic() + HANGING
        while True:
            with suppress(AssertionError):  # the queried page has been replaced
                if value := self.evaluate(script):
                    return value
            assert time.monotonic() < deadline, self.evaluate("document.body.innerText")
            time.sleep(0.05)

    def requests(self) -> list[str]:
        """The addresses that the page has requested."""
        result = []
        for event in self._events("Network.requestWillBeSent"):
            result.append(event["params"]["request"]["url"])
        return result

    def complaints(self) -> list[str]:
        """The browser's log of the page: errors, and requests refused by its security policy."""
        logged = self._events("Log.entryAdded") + self._events("Runtime.exceptionThrown")
        return [json.dumps(event["params"]) for event in logged]

    def frame(self) -> Page:
        """The frame of the page that has its own process, as sandboxed frames have."""
        attached = self.browser.wait("Target.attachedToTarget", self.session)
        inside = Page(self.browser, attached["params"]["sessionId"])
        inside.listen()
        return inside

    def tab(self) -> None:
        """Press the Tab key."""
        self._press("Tab", 9)

    def enter(self) -> None:
        """Press the Enter key."""
        self._press("Enter", 13, "\r")

    def escape(self) -> None:
        """Press the Escape key."""
        self._press("Escape", 27)

    def click(self, x: float, y: float) -> None:
        """Press and release the mouse at a position."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})

    def _press(self, key: str, number: int, text: str = "") -> None:
        key_event = {"key": key, "code": key, "windowsVirtualKeyCode": number}
        self.call(
            "Input.dispatchKeyEvent",
            key_event | {"type": "keyDown", "text": text} if text else key_event | {"type": "rawKeyDown"},
        )
        self.call("Input.dispatchKeyEvent", key_event | {"type": "keyUp"})

    def _events(self, method: str) -> list[dict[str, Any]]:
        self.call("Runtime.evaluate", {"expression": "0"})  # its reply comes after all earlier events
        result = []
        for event in self.browser.events:
            if (event["method"], event.get("sessionId")) == (method, self.session):
                result.append(event)
        return result
