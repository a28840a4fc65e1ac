"""A LocalAI gRPC backend as its images hold one: `run.sh` and a server that follows backend.proto's facts.

The server is written without generated code: the messages it needs have one or two fields.
"""

import sys
from pathlib import Path

SERVER = '''
import argparse, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
import grpc

TOKEN = os.environ.get("LOCALAI_GRPC_AUTH_TOKEN", "")
VERSION = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "VERSION")).read().strip()
loaded = {}

def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data

def read_text(message, wanted):
    """The first string of a field; enough of the wire format for short messages."""
    at = 0
    while at < len(message):
        number, kind = message[at] >> 3, message[at] & 7
        if kind != 2:
            return ""
        size = message[at + 1]
        if number == wanted:
            return message[at + 2 : at + 2 + size].decode()
        at += 2 + size
    return ""

def health(request, context):
    return field(1, b"OK")

def load_model(request, context):
    loaded["model"] = read_text(request, 1)
    print("loaded", loaded["model"], flush=True)
    return field(1, b"loaded") + b"\\x10\\x01"

def free(request, context):
    print("freed", flush=True)
    loaded.clear()
    return b"\\x10\\x01"

def predict(request, context):
    if not loaded:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "model not loaded")
    answer = f"{loaded['model']} {VERSION} says {read_text(request, 1)}"
    return field(1, answer.encode())

class Authorised(grpc.ServerInterceptor):
    def intercept_service(self, proceed, call):
        given = dict(call.invocation_metadata).get("authorization", "")
        if TOKEN and given != f"Bearer {TOKEN}":
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "token"))
        return proceed(call)

parser = argparse.ArgumentParser()
parser.add_argument("--addr", required=True)
address = parser.parse_args().addr
server = grpc.server(ThreadPoolExecutor(4), interceptors=[Authorised()])
methods = {"Health": health, "LoadModel": load_model, "Free": free, "Predict": predict}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("backend.Backend", {
    name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()})])
if not server.add_insecure_port(address):
    sys.exit(f"cannot listen on {address}")
server.start()
print("serving", VERSION, "on", address, flush=True)
print("environment", *sorted(os.environ), file=sys.stderr, flush=True)
server.wait_for_termination()
'''


def localai_files(version: str = "1") -> dict[str, bytes]:
    return {
        "run.sh": f'#!/bin/sh\nexec {sys.executable} -I "$(dirname "$0")/backend.py" "$@"\n'.encode(),
        "backend.py": SERVER.encode(),
        "VERSION": version.encode(),
    }


def write_localai_backend(directory: Path, version: str = "1") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in localai_files(version).items():
        (directory / name).write_bytes(data)
        (directory / name).chmod(0o755)
    return directory


HTTP_SERVER = """
import http.server, json, os, sys, time
host, port, model = sys.argv[1], int(sys.argv[2]), sys.argv[3]
token = os.environ.pop("TEST_TOKEN", "")
here = os.path.dirname(os.path.abspath(__file__))
version = open(os.path.join(here, "VERSION")).read().strip()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/health" and self.headers.get("Authorization") != f"Bearer {token}":
            return self.answer(401, {"error": "token"})
        if self.path == "/environment":
            fds = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                   if os.path.exists(f"/proc/self/fd/{name}")]
            return self.answer(200, {"environ": dict(os.environ), "argv": sys.argv, "cwd": os.getcwd(),
                                     "uid": os.getuid(), "fds": fds})
        if self.path == "/stream":
            return self.stream()
        if self.path == "/grow":
            kept = []
            while True:
                kept.append(bytearray(os.urandom(1 << 20)))
        if self.path.startswith("/read/"):
            return self.read(self.path[5:])
        self.answer(200, {"version": version, "model": model, "pid": os.getpid(), "options": sys.argv[4:]})
    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def stream(self):
        self.send_response(200)
        self.end_headers()
        for number in range(30):
            self.wfile.write(b"%d\\n" % number)
            time.sleep(0.1)
    def read(self, path):
        try:
            found = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read().decode(errors="replace")
        except OSError as problem:
            found = None
        self.answer(200, {"found": found})
    def log_message(self, *words):
        pass

print("serving", version, flush=True)
http.server.ThreadingHTTPServer((host, port), Handler).serve_forever()
"""


def http_files(version: str = "1", python: str = sys.executable) -> dict[str, bytes]:
    manifest = (
        "protocol: openai\n"
        f'start: ["{python}", "-I", "-S", "{{dir}}/server.py", "{{host}}", "{{port}}", "{{model}}"]\n'
        "readiness: {path: /health, stall_s: 20}\n"
        "token_env: TEST_TOKEN\n"
        'options: {flavour: ["--flavour={value}"]}\n'
    )
    return {"corral.yaml": manifest.encode(), "server.py": HTTP_SERVER.encode(), "VERSION": version.encode()}


def write_http_backend(directory: Path, version: str = "1", python: str = sys.executable) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in http_files(version, python).items():
        (directory / name).write_bytes(data)
    return directory
