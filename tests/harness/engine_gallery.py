"""A gallery with one backend, a real engine, whose version a test may change."""

import http.server
import threading

# The engine is the same; a package beside it makes another version of the backend.
OLD, NEW, BROKEN, HANGING, SLOW = "1.16.0", "1.17.0", "1.15.0", "1.14.0", "1.13.0"
ENGINE = """
- name: engine
  uri: pypi://xllamacpp==2026.10.11549,six=={version}
  version: "{version}"
  corral:
    manifest:
      protocol: openai
      launcher: llama_cpp
      start: {start}
      readiness: {{path: /health}}
      token_env: CORRAL_PROCESS_TOKEN
      served_name: ["--name={{name}}"]
      context: ["--context={{context}}"]
      slots: ["--slots={{slots}}"]
      options: {{threads: ["--threads={{value}}"]}}
"""
STARTS = '["{python}", "-I", "{dir}/corral_launch.py", "--host={host}", "--port={port}", "--model={model}"]'
FAILS = '["{python}", "-c", "raise SystemExit(\'the engine is on fire\')", "{host}", "{port}", "{model}"]'
_LATER = "import runpy, sys, time; time.sleep(3); sys.argv.pop(0); runpy.run_path(sys.argv[0], None, '__main__')"
TAKES_ITS_TIME = STARTS.replace('"-I"', f'"-I", "-c", "{_LATER}"')
"""As large models do."""
HANGS = '["{python}", "-c", "import time; time.sleep(3600)", "{host}", "{port}", "{model}"]'


class EngineGallery:
    def __init__(self) -> None:
        self.version = OLD
        gallery = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                start = {BROKEN: FAILS, HANGING: HANGS, SLOW: TAKES_ITS_TIME}.get(gallery.version, STARTS)
                content = ENGINE.format(version=gallery.version, start=start).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/index.yaml"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def flags(self) -> tuple[str, ...]:
        """For a frontend that is to have it."""
        galleries = f'[{{"name": "mine", "url": "{self.url}"}}]'
        trust = ("--trusted-hosts", "127.0.0.1", "--plain-http-hosts", "127.0.0.1", "--gallery-refresh", "1s")
        return ("--backend-galleries", galleries, *trust)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
