"""A real browser without a window: Debian's Chromium, told what to do over its own protocol.

It reaches nothing but addresses of loopback. It ends with `close`, and with its temporary folder.
"""

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import websocket

from rekindle_local import process_sets

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
LOUD = "TESTS OF THE CONSOLE IN A BROWSER WERE LEFT OUT"
START_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 60.0
LOADS_MAX = 5
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)


def find() -> str | None:
    """The browser's program, None where there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Refused(Exception):
    """The browser did not carry out a command."""


class Browser:
    """One page of one browser. `script=False` turns scripts off."""

    def __init__(self, program: str, *, script: bool = True, size: Sequence[int] = (1280, 1400)):
        self._folder = Path(tempfile.mkdtemp(prefix="rekindle-chromium-"))
        self._process = subprocess.Popen(
            [
                program,
                *OPTIONS,
                f"--window-size={size[0]},{size[1]}",
                f"--user-data-dir={self._folder / 'profile'}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._numbers = itertools.count(1)
        self.said: list[dict[str, Any]] = []
        try:
            self._socket = websocket.create_connection(
                self._address(), timeout=ANSWER_SECONDS_MAX, suppress_origin=True
            )
            target = self._browser("Target.createTarget", url="about:blank")["targetId"]
            attached = self._browser("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.do(f"{domain}.enable")
            self.do("Emulation.setScriptExecutionDisabled", value=not script)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser, and remove what it has written."""
        # its other processes would write into the folder while that is removed
        process_sets.kill_all(
            lambda: process_sets.session_processes(self._process.pid),
            limit_seconds=START_SECONDS_MAX,
        )
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is there."""
        self.said.clear()
        self.do("Page.navigate", url=url)
        self._await_event("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript on the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def document(self) -> str:
        """The page as it is now, as HTML; also where scripts are off."""
        for _ in range(LOADS_MAX):
            root = self.do("DOM.getDocument")["root"]["nodeId"]
            with suppress(Refused):  # it has loaded itself again in between
                return str(self.do("DOM.getOuterHTML", nodeId=root)["outerHTML"])
        raise AssertionError("the page loads itself again all the time")

    def wait_until(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true on the page."""
        until = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < until, f"never: {expression}\n{self.document()[:4_000]}"
            time.sleep(0.2)

    def screenshot(self, file: Path, *, dark: bool = False) -> None:
        """A picture of the whole page."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        shot = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command to the page, and its answer."""
        return self._call({"method": method, "params": parameters, "sessionId": self._session})

    def _browser(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call({"method": method, "params": parameters})

    def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, **message}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                if "error" in answer:
                    raise Refused(answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.said.append(answer)

    def _await_event(self, name: str) -> None:
        while not any(item.get("method") == name for item in self.said):
            self.said.append(json.loads(self._socket.recv()))

    def _address(self) -> str:
        """Where it listens: its file has the port, and below it the path."""
        file = self._folder / "profile" / "DevToolsActivePort"
        until = time.monotonic() + START_SECONDS_MAX
        while not (file.exists() and len(file.read_text().split()) == 2):
            assert self._process.poll() is None, "the browser has ended"
            assert time.monotonic() < until, "the browser does not listen"
            time.sleep(0.1)
        port, path = file.read_text().split()
        return f"ws://127.0.0.1:{port}{path}"
