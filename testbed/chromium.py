"""A real Chromium without a screen, driven over two pipes by its own protocol (the DevTools protocol).

with Chromium() as chromium:
    page = chromium.open(path.as_uri(), width=400, dark=True)
    page.run("document.title")          # the value of an expression; errors are raised
    page.press("Enter")
    page.screenshot(Path("page.png"))
    page.said, page.asked               # what stood on its console, and which addresses it asked for
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from testbed import debian

_FONTCONFIG_XML = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{final}/usr/share/fonts</dir><cachedir>{final}/fontcache</cachedir>
<alias><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
<alias><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""
# Nothing but the page: no sandbox (tests may run as root), no services that call home.
_CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# It reads commands from descriptor 3 and answers on 4.
_PIPE_SHELL_PREFIX = ("/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh")
_ELEMENT_CENTER_JS = """(selector) => {
  const box = document.querySelector(selector);
  box.scrollIntoView({block: "center", behavior: "instant"});
  const {x, y, width, height} = box.getBoundingClientRect();
  return [x + width / 2, y + height / 2];
}"""
_TIMEOUT_S = 120.0  # for one answer, on a machine that is busy
_KEY_CODES = {"Enter": ("\r", 13), "Tab": ("", 9), " ": (" ", 32)}


def _post_install(new: Path, final: Path) -> None:
    """Fonts of its own, so that it draws the same on any machine."""
    (new / "fonts.conf").write_text(_FONTCONFIG_XML.format(final=final))


PACKAGE_SPEC = debian.PackageSpec(
    "bookworm", ("chromium-headless-shell", "chromium-common", "fonts-inter", "fonts-dejavu-core"), _post_install
)


def install_dir() -> Path:
    return debian.install(debian.cache_dir() / "chromium", PACKAGE_SPEC)


def chromium_path() -> Path:
    return install_dir() / "usr/lib/chromium/chromium-headless-shell"


class Chromium:
    """Raises TimeoutError where an answer, or a page, does not come within its patience."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self.timeout_s = timeout_s

    def __enter__(self) -> Chromium:
        self._home = Path(tempfile.mkdtemp(prefix="testbed-chromium-"))
        env = {
            **os.environ,
            "FONTCONFIG_FILE": str(install_dir() / "fonts.conf"),
            "HOME": str(self._home),
            "LD_LIBRARY_PATH": str(
                install_dir() / debian.LIBRARY_DIR / "pulseaudio"
            ),  # one library looks for another there
        }
        command = [
            *_PIPE_SHELL_PREFIX,
            str(chromium_path()),
            *_CHROMIUM_FLAGS,
            f"--user-data-dir={self._home / 'profile'}",
        ]
        pipe = subprocess.PIPE
        with open(self._home / "log", "wb") as log:
            self._process = subprocess.Popen(
                command, env=env, stdin=pipe, stdout=pipe, stderr=log, bufsize=0, start_new_session=True
            )
        self._buffer, self._last_message_id = b"", 0
        self._pages: dict[str, BrowserPage] = {}
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        shutil.rmtree(self._home, ignore_errors=True)

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> BrowserPage:
        """A new page that has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = BrowserPage(self, session)
        page.set_viewport(width, height, dark)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Page.navigate", url=url)
        self.wait_for_load(page)
        return page

    def wait_for_load(self, page: BrowserPage) -> None:
        until = time.monotonic() + self.timeout_s
        while not page.is_loaded:
            self._read_message(until, "the page")

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The answer to a command."""
        self._last_message_id += 1
        said = {
            "id": self._last_message_id,
            "method": method,
            "params": params,
            **({"sessionId": session} if session else {}),
        }
        assert self._process.stdin
        self._process.stdin.write(json.dumps(said).encode() + b"\0")
        until = time.monotonic() + self.timeout_s
        while (answer := self._read_message(until, method)).get("id") != self._last_message_id:
            pass
        if "error" in answer:
            raise RuntimeError(f"Chromium refused {method}: {answer['error']}")
        return dict(answer["result"])

    def _read_message(self, deadline: float, what: str) -> dict[str, Any]:
        """The next message; a page hears of its own events."""
        while b"\0" not in self._buffer:
            self._buffer += self._read_chunk(deadline, what)
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if page := self._pages.get(message.get("sessionId", "")):
            page.handle_message(message)
        return message

    def _read_chunk(self, deadline: float, what: str) -> bytes:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"Chromium did not answer within {self.timeout_s:g} s: {what}. {self._log()}")
        piece: bytes = self._process.stdout.read(1 << 20)
        if not piece:
            raise RuntimeError(f"Chromium is gone: {self._log()}")
        return piece

    def _log(self) -> str:
        return (self._home / "log").read_text(errors="replace")[-2000:]


class BrowserPage:
    def __init__(self, chromium: Chromium, session: str) -> None:
        self._chromium, self._session = chromium, session
        self.is_loaded = False
        self.console_messages: list[str] = []
        self.requested_urls: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._chromium.call(method, self._session, **params)

    def handle_message(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self.is_loaded = True
            case "Network.requestWillBeSent":
                self.requested_urls.append(about["request"]["url"])
            case "Runtime.consoleAPICalled":
                self.console_messages.append(" ".join(str(part.get("value", part)) for part in about["args"]))
            case "Runtime.exceptionThrown":
                self.console_messages.append(str(about["exceptionDetails"]))
            case "Log.entryAdded":
                self.console_messages.append(about["entry"]["text"])

    def set_viewport(self, width: int, height: int, dark: bool = False, media: str = "screen") -> None:
        """The size of the window, and what its person prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        prefers = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[prefers])

    def reload(self) -> None:
        self.is_loaded = False
        self.call("Page.reload")
        self._chromium.wait_for_load(self)

    def evaluate(self, expression: str) -> Any:
        """Its value; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        text, code = _KEY_CODES[key]
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def click(self, selector: str) -> None:
        """With the mouse, in its middle."""
        x, y = self.evaluate(f"({_ELEMENT_CENTER_JS})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, full_page: bool = True) -> None:
        """A PNG; `whole`: of the page from top to bottom."""
        more: dict[str, Any] = {}
        if full_page:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
            more = {"captureBeyondViewport": True, "clip": clip}
        answer = self.call("Page.captureScreenshot", format="png", **more)
        path.write_bytes(base64.b64decode(answer["data"]))

    def print_pdf(self, path: Path) -> None:
        """As it is printed."""
        self.call("Emulation.setEmulatedMedia", media="print")
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
