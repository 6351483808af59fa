"""A fake of the Chirp proxy that HTCondor's starter runs: a cookie authenticates, then each request is one line.

It records what it receives, and can be slow, silent, or reject requests.
"""

from __future__ import annotations

import re
import socketserver
import threading

from tests.support.waiting import TIMEOUT_S

COOKIE = "c0ffee"
_ESCAPED_ARGUMENT = re.compile(rb"((?:\\.|[^\\\s])+)", re.DOTALL)
SUPPORTED_COMMANDS = ("set_job_attr", "set_job_attr_delayed", "ulog")


class _ChirpHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        authenticated = False
        for line in self._read_lines():
            arguments = [
                re.sub(rb"\\(.)", rb"\1", argument, flags=re.DOTALL).decode()
                for argument in _ESCAPED_ARGUMENT.findall(line)
            ]
            self.server.proxy.is_responding.wait()
            if not authenticated:
                authenticated = arguments == ["cookie", COOKIE]
                code = 0 if authenticated else -1
            else:
                code = self.server.proxy.handle_command(arguments)
            self.wfile.write(b"%d\n" % code)

    def _read_lines(self):
        """Yield requests; an escaped line break does not end a request."""
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
    """`with ChirpProxy(folder) as proxy:`; `proxy.config_path` is the file that $_CONDOR_CHIRP_CONFIG names."""

    def __init__(self, folder, supported_commands=SUPPORTED_COMMANDS):
        self.config_path = folder / "chirp.config"
        self.attributes, self.updates, self.log_lines = {}, [], []
        self.supported_commands = set(supported_commands)
        self.is_responding = threading.Event()  # while it is not set, the proxy sends no responses
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

    def handle_command(self, arguments):
        """Record a request and return the response code."""
        command, *values = arguments
        if command not in self.supported_commands:
            return -8
        with self._changed:
            if command == "ulog":
                self.log_lines.append(values[0])
            else:
                self.attributes[values[0]] = values[1]
                self.updates.append(values[0])
            self._changed.notify_all()
        return 0

    def wait_for(self, condition, timeout_s=TIMEOUT_S):
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), timeout_s), (self.attributes, self.log_lines)
