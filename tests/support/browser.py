"""A real browser for tests: Chromium without a screen, driven over the pipe of its DevTools protocol.

No driver and no library is needed: messages are JSON, ended by a zero byte, on the file descriptors 3 and 4 of the
browser. https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-dev-shm-usage",
    "--force-device-scale-factor=1", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Escape": 27, "Enter": 13, "Tab": 9, " ": 32}
PATIENCE_S = 20


class Browser:
    """One Chromium with one tab. Use inside ``with``.

    ``requests`` are the addresses that the tab asked for, ``complaints`` its errors and warnings. Both hold everything
    up to the last command's answer.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._events: list[dict] = []
        self._number = 0
        self._read = b""
        self._session: str | None = None

    def __enter__(self) -> "Browser":
        # what the browser reads (3) and writes (4)
        child_in, self._out = os.pipe()
        self._in, child_out = os.pipe()
        command = ["bash", "-c", f'exec "$0" "$@" 3<&{child_in} 4>&{child_out}', CHROMIUM, *FLAGS]
        command += [f"--user-data-dir={self.folder / 'profile'}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(child_in, child_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(child_in)
        os.close(child_out)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        downloads = str(self.folder / "downloads")
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=downloads)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.send("Browser.close")  # so that what the page stored is on the disk
            self._process.wait(10)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **params: object) -> dict:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _next(self) -> dict:
        while b"\0" not in self._read:
            if not select.select([self._in], [], [], PATIENCE_S)[0]:
                raise TimeoutError("the browser says nothing")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self._read += data
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([part.get("value") for part in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        else:
            self._events.append(event)

    def open(self, path: Path) -> None:
        """Open a file and wait until it has loaded."""
        self.go(path.as_uri())

    def go(self, address: str) -> None:
        """Open an address and wait until it has loaded."""
        self._events.clear()
        self.send("Page.navigate", url=address)
        self._wait_for("Page.loadEventFired")

    def _wait_for(self, method: str) -> None:
        while not any(event.get("method") == method for event in self._events):
            self._note(self._next())

    def run(self, expression: str) -> object:
        """Return the value of a JavaScript expression; a promise is awaited."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']['exception'].get('description')}")
        return found["result"].get("value")

    def until(self, expression: str) -> object:
        """Wait until an expression is true, and return its value."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if value := self.run(expression):
                return value
            time.sleep(0.02)
        raise TimeoutError(f"never true: {expression}")

    def key(self, key: str, modifiers: int = 0) -> None:
        """Press and release a key: a letter, or a name such as ArrowRight; modifiers 2 is Ctrl, 8 Shift."""
        text = {} if len(key) > 1 or modifiers & 2 else {"text": key}
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 and key.isalnum() else 0)
        press = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code} | text
        self.send("Input.dispatchKeyEvent", type="keyDown", **press)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)

    def type(self, text: str) -> None:
        """Write a text where the cursor is."""
        self.send("Input.insertText", text=text)

    def middle(self, selector: str) -> tuple[float, float]:
        """Return the middle of an element in the window, scrolled into sight."""
        found = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); "
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return found[0], found[1]

    def click(self, selector: str, count: int = 1) -> None:
        """Click the middle of an element."""
        x, y = self.middle(selector)
        for number in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=number)

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        """Send one event of the mouse."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float], **more: object) -> None:
        """Press the left button, move in four steps, release."""
        self.mouse("mousePressed", *start, button="left", buttons=1, clickCount=1, **more)
        for step in range(1, 5):
            point = [a + (b - a) * step / 4 for a, b in zip(start, end, strict=True)]
            self.mouse("mouseMoved", *point, button="left", buttons=1, **more)
        self.mouse("mouseReleased", *end, button="left", clickCount=1, **more)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Send one event of the fingers at these points."""
        named = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self.send("Input.dispatchTouchEvent", type=kind, touchPoints=named)

    def tap(self, selector: str) -> None:
        """Touch the middle of an element."""
        self.touch("touchStart", self.middle(selector))
        self.touch("touchEnd")

    def window(self, width: int, height: int, *, phone: bool = False) -> None:
        """Make the window of a size, and of a phone."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)

    def screenshot(self, path: Path) -> None:
        """Write a PNG of the window."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def downloaded(self, name: str) -> bytes:
        """Return the bytes of a file that was saved, once it is whole; it is removed."""
        path, end = self.folder / "downloads" / name, time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if path.is_file():
                data = path.read_bytes()
                path.unlink()
                return data
            time.sleep(0.02)
        raise TimeoutError(f"{name} was not saved")

    def choose_file(self, selector: str, path: Path) -> None:
        """Give a file to a file input."""
        found = self.send("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")
        self.send("DOM.setFileInputFiles", files=[str(path)], objectId=found["result"]["objectId"])
