"""A headless Chromium, driven over two pipes with the DevTools protocol.

with Chromium() as chromium:
    page = chromium.open(path.as_uri(), width=400, dark=True)
    page.evaluate("document.title")     # the value of an expression; errors are raised
    page.press("Enter")
    page.screenshot(Path("page.png"))
    page.console_messages, page.requested_urls
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
# No sandbox (tests may run as root), and no background services that use the network.
_CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and responds on 4.
_PIPE_SHELL_PREFIX = ("/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh")
_ELEMENT_CENTER_JS = """(selector) => {
  const box = document.querySelector(selector);
  box.scrollIntoView({block: "center", behavior: "instant"});
  const {x, y, width, height} = box.getBoundingClientRect();
  return [x + width / 2, y + height / 2];
}"""
_TIMEOUT_S = 120.0  # for one response; generous, for a busy machine
_KEY_CODES = {"Enter": ("\r", 13), "Tab": ("", 9), " ": (" ", 32)}


def _post_install(new: Path, final: Path) -> None:
    """Configure bundled fonts, so that pages look the same on any machine."""
    (new / "fonts.conf").write_text(_FONTCONFIG_XML.format(final=final))


PACKAGE_SPEC = debian.PackageSpec(
    "bookworm", ("chromium-headless-shell", "chromium-common", "fonts-inter", "fonts-dejavu-core"), _post_install
)


def install_dir() -> Path:
    """Return the folder of Chromium, installed if needed."""
    return debian.install(debian.cache_dir() / "chromium", PACKAGE_SPEC)


def chromium_path() -> Path:
    """Return the path of the browser."""
    return install_dir() / "usr/lib/chromium/chromium-headless-shell"


class Chromium:
    """A browser process. Raises TimeoutError if a response or a page takes longer than `timeout_s`."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self.timeout_s = timeout_s

    def __enter__(self) -> Chromium:
        self._home = Path(tempfile.mkdtemp(prefix="testbed-chromium-"))
        env = {
            **os.environ,
            "FONTCONFIG_FILE": str(install_dir() / "fonts.conf"),
            "HOME": str(self._home),
            # One library loads another from there.
            "LD_LIBRARY_PATH": str(install_dir() / debian.LIBRARY_DIR / "pulseaudio"),
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
        """Open a page and wait until it has loaded."""
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
        """Wait until a page has loaded."""
        deadline = time.monotonic() + self.timeout_s
        while not page.is_loaded:
            self._read_message(deadline, "the page")

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._last_message_id += 1
        message = {
            "id": self._last_message_id,
            "method": method,
            "params": params,
            **({"sessionId": session} if session else {}),
        }
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout_s
        while (response := self._read_message(deadline, method)).get("id") != self._last_message_id:
            pass
        if "error" in response:
            raise RuntimeError(f"Chromium rejected {method}: {response['error']}")
        return dict(response["result"])

    def _read_message(self, deadline: float, awaited: str) -> dict[str, Any]:
        """Return the next message, and pass it to the page it belongs to."""
        while b"\0" not in self._buffer:
            self._buffer += self._read_chunk(deadline, awaited)
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if page := self._pages.get(message.get("sessionId", "")):
            page.handle_message(message)
        return message

    def _read_chunk(self, deadline: float, awaited: str) -> bytes:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"Chromium did not respond within {self.timeout_s:g} s: {awaited}. {self._log()}")
        chunk: bytes = self._process.stdout.read(1 << 20)
        if not chunk:
            raise RuntimeError(f"Chromium exited: {self._log()}")
        return chunk

    def _log(self) -> str:
        return (self._home / "log").read_text(errors="replace")[-2000:]


class BrowserPage:
    """One page, with its console messages and the URLs it requested."""

    def __init__(self, chromium: Chromium, session: str) -> None:
        self._chromium, self._session = chromium, session
        self.is_loaded = False
        self.console_messages: list[str] = []
        self.requested_urls: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command for this page."""
        return self._chromium.call(method, self._session, **params)

    def handle_message(self, message: dict[str, Any]) -> None:
        """Record an event of this page."""
        params = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self.is_loaded = True
            case "Network.requestWillBeSent":
                self.requested_urls.append(params["request"]["url"])
            case "Runtime.consoleAPICalled":
                self.console_messages.append(" ".join(str(part.get("value", part)) for part in params["args"]))
            case "Runtime.exceptionThrown":
                self.console_messages.append(str(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.console_messages.append(params["entry"]["text"])

    def set_viewport(self, width: int, height: int, dark: bool = False, media: str = "screen") -> None:
        """Set the window size, the colour scheme and the medium."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        color_scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[color_scheme])

    def reload(self) -> None:
        self.is_loaded = False
        self.call("Page.reload")
        self._chromium.wait_for_load(self)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        text, code = _KEY_CODES[key]
        event = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector: str) -> None:
        """Click the centre of an element."""
        x, y = self.evaluate(f"({_ELEMENT_CENTER_JS})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, full_page: bool = True) -> None:
        """Write a PNG of the window, or of the full page."""
        options: dict[str, Any] = {}
        if full_page:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
            options = {"captureBeyondViewport": True, "clip": clip}
        result = self.call("Page.captureScreenshot", format="png", **options)
        path.write_bytes(base64.b64decode(result["data"]))

    def print_pdf(self, path: Path) -> None:
        """Write a PDF of the page as printed."""
        self.call("Emulation.setEmulatedMedia", media="print")
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
