"""A small web server for texts, such as a gallery."""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebFiles:
    def __init__(self, files: Mapping[str, str]) -> None:
        texts = dict(files)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = texts.get(self.path)
                data = (text or "nothing here").encode()
                self.send_response(200 if text is not None else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.files = texts
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
