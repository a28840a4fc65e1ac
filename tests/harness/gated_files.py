"""A web server whose files come only when they are let go, one by one."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class GatedFiles:
    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self._gates = {name: threading.Event() for name in files}
        self.under_way: list[str] = []
        """What is being downloaded now, as often as it is."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._head()

            def do_GET(self) -> None:
                self._head()
                name = self.path.lstrip("/")
                outer.under_way.append(name)
                try:
                    self._send(name)
                except OSError:
                    self.close_connection = True
                finally:
                    outer.under_way.remove(name)

            def _send(self, name: str) -> None:
                # The first half is on its way at once; a byte now and then says that the rest will come.
                body = outer.files[name]
                half = len(body) // 2
                self.wfile.write(body[:half])
                while not outer._gates[name].wait(0.5) and half < len(body) - 1:
                    self.wfile.write(body[half : half + 1])
                    half += 1
                self.wfile.write(body[half:])

            def _head(self) -> None:
                body = outer.files.get(self.path.lstrip("/"))
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def let_go(self, *names: str) -> None:
        for name in names or tuple(self.files):
            self._gates[name].set()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{name}"

    def download(self, filename: str, name: str) -> str:
        """A line of `download_files`."""
        return (
            f"{{filename: {filename}, uri: '{self.url(name)}', sha256: {hashlib.sha256(self.files[name]).hexdigest()}}}"
        )

    def stop(self) -> None:
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
