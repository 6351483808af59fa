"""A Chirp proxy as HTCondor's starter runs one: a cookie first, then a line a request and a line an answer.

It keeps what it was told, and can be slow, silent, forgetful of requests, or gone.
"""

from __future__ import annotations

import re
import socketserver
import threading

COOKIE = "c0ffee"
_ESCAPED_WORD = re.compile(rb"((?:\\.|[^\\\s])+)", re.DOTALL)
SUPPORTED_COMMANDS = ("set_job_attr", "set_job_attr_delayed", "ulog")


class _ChirpHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        trusted = False
        for line in self._read_lines():
            words = [re.sub(rb"\\(.)", rb"\1", word, flags=re.DOTALL).decode() for word in _ESCAPED_WORD.findall(line)]
            self.server.proxy.is_responding.wait()
            if not trusted:
                trusted = words == ["cookie", COOKIE]
                code = 0 if trusted else -1
            else:
                code = self.server.proxy.handle_command(words)
            self.wfile.write(b"%d\n" % code)

    def _read_lines(self):
        """An escaped end of line does not end the line."""
        line = b""
        while piece := self.rfile.readline():
            line += piece
            if not re.search(rb"(?<!\\)(\\\\)*\\\n$", line):
                yield line
                line = b""


class _ChirpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class ChirpProxy:
    """`with ChirpProxy(folder) as proxy:` its `config` is what $_CONDOR_CHIRP_CONFIG names."""

    def __init__(self, folder, supported_commands=SUPPORTED_COMMANDS):
        self.config_path = folder / "chirp.config"
        self.attributes, self.updates, self.log_lines = {}, [], []
        self.supported_commands = set(supported_commands)
        self.is_responding = threading.Event()  # while it is not set, nothing is answered
        self.is_responding.set()
        self._changed = threading.Condition()

    def __enter__(self):
        self._server = _ChirpServer(("127.0.0.1", 0), _ChirpHandler)
        self._server.proxy = self
        self.config_path.write_text(f"127.0.0.1 {self._server.server_address[1]} {COOKIE}\n")
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.is_responding.set()
        self._server.shutdown()
        self._server.server_close()

    def handle_command(self, words):
        verb, *rest = words
        if verb not in self.supported_commands:
            return -8
        with self._changed:
            if verb == "ulog":
                self.log_lines.append(rest[0])
            else:
                self.attributes[rest[0]] = rest[1]
                self.updates.append(rest[0])
            self._changed.notify_all()
        return 0

    def wait_for(self, condition, timeout_s=20):
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), timeout_s), (self.attributes, self.log_lines)
