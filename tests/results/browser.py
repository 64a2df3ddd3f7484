"""A headless Chromium, driven by its DevTools protocol over two pipes.

Messages are JSON and end with a NUL. No port is open.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = (
    "there is no Chromium here: apt-get install --no-install-recommends chromium-headless-shell "
    "(100 MB)"
)
WAIT_S = 60
"""Seconds for the start of the browser, also on a busy machine."""


def program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Tab:
    """A page.

    ``complaints`` has console output, exceptions, and refusals by the page's policy.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._unread, self._number = write, read, b"", 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method, and return the browser's answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters} | (
            {"sessionId": self._session} if self._session else {}
        )
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (told := self._next()).get("id") != self._number:
            self._note(told)
        assert "error" not in told, told
        return told["result"]

    def open(self, path: Path, fragment: str = "") -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{path.as_uri()}{fragment}")
        while self._next_event("Page.loadEventFired") is None:
            pass

    def value(self, expression: str) -> Any:
        """Evaluate JavaScript; an exception raises an error."""
        told = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({json.dumps(selector)}).textContent"))

    def select(self, id: str, option: str) -> None:
        """Choose an option as a user does."""
        chosen = (
            f"const select = document.getElementById({json.dumps(id)}); select.value = "
            f"{json.dumps(option)};"
        )
        self.value(f"(() => {{ {chosen} select.dispatchEvent(new Event('change')); }})()")

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    def picture(self, path: Path) -> None:
        """Write a screenshot of the whole page."""
        height = self.value("document.documentElement.scrollHeight")
        width = self.value("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        path.write_bytes(
            base64.b64decode(
                self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
            )
        )

    def _next_event(self, name: str) -> dict[str, Any] | None:
        told = self._next()
        self._note(told)
        return told if told.get("method") == name else None

    def _note(self, told: dict[str, Any]) -> None:
        about = told.get("params", {})
        match told.get("method"):
            case "Runtime.consoleAPICalled":
                self.complaints.append(" ".join(str(each.get("value")) for each in about["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(about["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(about["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])

    def _next(self) -> dict[str, Any]:
        # select takes no descriptor above 1,023
        end, poll = (
            time.monotonic() + WAIT_S,
            select.poll(),
        )
        poll.register(self._read, select.POLLIN)
        while b"\0" not in self._unread:
            ready = poll.poll(1000 * max(0.0, end - time.monotonic()))
            piece = os.read(self._read, 1 << 20) if ready else b""
            assert piece, "Chromium ended, or said nothing for a minute"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))


@contextlib.contextmanager
def tab(home: Path) -> Iterator[Tab]:
    """Run a separate browser with its files in ``home``; end it by its process id."""
    orders, answers = os.pipe(), os.pipe()
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-pipe",
        f"--user-data-dir={home}",
    )
    shell = f'exec "$@" 3<&{orders[0]} 4>&{answers[1]}'
    command = ["bash", "-c", shell, "bash", str(program()), *options]
    with subprocess.Popen(
        command,
        pass_fds=(orders[0], answers[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as browser:
        os.close(orders[0])
        os.close(answers[1])
        try:
            made = Tab(orders[1], answers[0])
            yield made
            made._session = None
            made.call("Browser.close")
        finally:
            os.close(orders[1])
            os.close(answers[0])
            with contextlib.suppress(subprocess.TimeoutExpired):
                browser.wait(5)
            if browser.poll() is None:
                browser.kill()
