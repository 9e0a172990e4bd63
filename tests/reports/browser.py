"""Chromium over its debugging pipe (Chrome DevTools Protocol): keys are pressed, media and widths are emulated.

Messages are JSON, ended by a zero byte, on file descriptors 3 and 4 of the browser (--remote-debugging-pipe).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40}
PATIENCE_S = 60.0
PLACE = """
import fcntl, os, sys

for descriptor, number in [(fcntl.fcntl(int(sys.argv[1 + way]), fcntl.F_DUPFD, 64), 3 + way) for way in (0, 1)]:
    os.dup2(descriptor, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """One page of a running browser; `log` has what it printed to its console, errors and refusals among it."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, out
        self._number = 0
        self._session: str | None = None
        self._rest = b""
        self.log: list[str] = []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")

    def open(self, path: Path, *, width: int, scheme: str = "light", scripts: bool = True, media: str = "") -> None:
        """height is 900 px. `media`: print, or empty for a screen."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self._send("Emulation.setDeviceMetricsOverride", **metrics)
        self._send("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.emulate(media, scheme)
        self._send("Page.navigate", url=path.as_uri())
        deadline_s = time.monotonic() + PATIENCE_S
        while self.value("document.readyState") != "complete" or self.value("location.href") == "about:blank":
            assert time.monotonic() < deadline_s, path
            time.sleep(0.02)

    def emulate(self, media: str, scheme: str = "light") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._send("Emulation.setEmulatedMedia", media=media, features=features)

    def value(self, expression: str) -> Any:
        """Of an expression of JavaScript, which may be awaited; works where the page's own scripts may not run."""
        done = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait_for(self, expression: str, value: Any) -> None:
        """What a page does later (a chart is drawn once it is seen, a table when its details have opened) comes."""
        deadline_s = time.monotonic() + PATIENCE_S
        while (found := self.value(expression)) != value:
            assert time.monotonic() < deadline_s, f"{expression}: {found!r}, not {value!r}"
            time.sleep(0.02)

    def press(self, key: str, times: int = 1, *, shift: bool = False) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, "")
        about = {"key": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 if shift else 0}
        for _ in range(times):
            self._send("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
            self._send("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        self._send("Input.insertText", text=text)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        shot = self._send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self._send("Page.printToPDF", printBackground=True)["data"])

    def _send(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        self._number += 1
        about = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **about}
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: Mapping[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: Mapping[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.log.append(json.dumps(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            self.log.append(event["params"]["entry"]["text"])

    def _next(self) -> Mapping[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._out, 2**16)
            assert read, "the browser ended"
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        message: Mapping[str, Any] = json.loads(line)
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser of its own, whose profile is in the folder."""
    assert CHROMIUM is not None
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    placed = [sys.executable, "-c", PLACE, str(their_in), str(their_out), *command]
    process = subprocess.Popen(placed, pass_fds=(their_in, their_out), stderr=subprocess.DEVNULL)
    os.close(their_in)
    os.close(their_out)
    try:
        yield Page(our_out, our_in)
    finally:
        process.kill()
        process.wait()
        os.close(our_out)
        os.close(our_in)
