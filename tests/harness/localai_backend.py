"""A LocalAI gRPC backend as its images hold one: `run.sh` and a server that follows backend.proto's facts.

What it answers is plain to see: it repeats what it was asked. The question can ask for something special: `tool`,
`think`, `options?`, `files?`, `slow`, `endless`, `hang`, `break`, `fail`, `refuse`, `unload`, `empty`.
"""

import inspect
import json
import sys
from pathlib import Path

from corral.formats import localai_proto, protobuf

SERVER = '''
import argparse, json, os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import grpc
import messages as m

TOKEN = os.environ.get("LOCALAI_GRPC_AUTH_TOKEN", "")
VERSION = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "VERSION")).read().strip()
FLAWS = json.loads(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "FLAWS")).read())
loaded = {}

def check(request, context):
    if not loaded:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "model not loaded")
    asked = request.get("ModelIdentity", "")
    if asked and asked != loaded["model"]:
        context.abort(grpc.StatusCode.NOT_FOUND, f"model identity mismatch: {asked} is not {loaded['model']}")
    if "mute" in loaded["options"].get("Options", []):
        context.abort(grpc.StatusCode.INTERNAL, "the weights are damaged")

def health(request, context):
    return {"message": b"OK"}

FILES = ("ModelFile", "MMProj", "DraftModel", "LoraAdapter", "LoraBase", "LoraAdapters", "Tokenizer", "CLIPModel",
         "AudioPath")

def read_all(path):
    """What is in a file, or in every file below a directory."""
    if not os.path.isdir(path):
        return open(path, "rb").read().decode("latin-1")
    found = {}
    for directory, _, names in os.walk(path):
        for name in names:
            whole = os.path.join(directory, name)
            found[os.path.relpath(whole, path)] = open(whole, "rb").read().decode("latin-1")
    return found

def read_files(request):
    """Every file it was told of; what an option names, in the models directory."""
    found = {name: [read_all(path) for path in value] if isinstance(value, list) else read_all(value)
             for name, value in request.items() if name in FILES and value}
    for option in request.get("Options", []):
        name, _, value = option.partition(":")
        if name.endswith("_file"):
            found[name] = read_all(os.path.join(request["ModelPath"], value))
    return found

def load_model(request, context):
    options = request.get("Options", [])
    if "fail" in options:
        return {"message": "there is not enough memory"}
    if "read" in options:
        try:
            loaded["files"] = read_files(request)
        except OSError as problem:
            return {"message": str(problem)}
    for option in options:
        if option.startswith("counted:"):
            with open(option[8:], "a") as calls:
                calls.write("called\\n")
    for option in options:
        while option.startswith("until:") and context.is_active() and not os.path.exists(option[6:]):
            time.sleep(0.05)
    loaded.update(model=request.get("Model", ""), options=request)
    if "dies_after_s" in FLAWS:
        threading.Timer(FLAWS["dies_after_s"], lambda: os._exit(7)).start()
    print("loaded", loaded["model"], flush=True)
    return {"message": "loaded", "success": True}

def free(request, context):
    print("freed", flush=True)
    loaded.clear()
    return {"success": True}

def question_of(request):
    if request.get("UseTokenizerTemplate"):
        return request["Messages"][-1].get("content", "")
    return request.get("Prompt", "")

def trouble(question, context):
    time.sleep(FLAWS.get("delay_s", 0))
    if question == "fail":
        context.abort(grpc.StatusCode.INTERNAL, "the model fell over")
    if question == "refuse":
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the prompt is too long")
    if question == "unload":
        loaded.clear()
    if question == "hang":
        while context.is_active():
            time.sleep(0.02)

def deltas_of(request, question):
    """What a backend with a template of its own finds in the model's text."""
    if question == "tool":
        name = json.loads(request["Tools"])[0]["function"]["name"]
        return [{"tool_calls": [{"index": 0, "id": "call_7", "name": name}]},
                {"tool_calls": [{"index": 0, "arguments": \'{"city": \'}]},
                {"tool_calls": [{"index": 0, "arguments": \'"Paris"}\'}]}]
    if question == "think":
        return [{"reasoning_content": "hmm, "}, {"reasoning_content": "yes"}, {"content": "thought"}]
    return None

def answer_of(request, question):
    if question == "options?":
        return json.dumps({"request": request, "loaded": loaded["options"]}, default=lambda b: b.decode("latin-1"))
    if question == "files?":
        return json.dumps(loaded["files"])
    if question == "call?":
        return json.dumps({"name": "weather", "arguments": {"city": "Paris"}})
    if question == "empty":
        return ""
    return f"{loaded['model']} {VERSION} says {question}"

LOGPROBS = json.dumps({"content": [{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}]}).encode()

def predict(request, context):
    check(request, context)
    question = question_of(request)
    trouble(question, context)
    reply = {"tokens": 3, "prompt_tokens": 11}
    if request.get("Logprobs"):
        reply["logprobs"] = LOGPROBS
    deltas = deltas_of(request, question)
    if deltas:
        return {**reply, "chat_deltas": deltas}
    return {**reply, "message": answer_of(request, question).encode()}

def predict_stream(request, context):
    check(request, context)
    question = question_of(request)
    trouble(question, context)
    deltas = deltas_of(request, question)
    if deltas:
        for at, delta in enumerate(deltas, 1):
            yield {"chat_deltas": [delta], "tokens": at, "prompt_tokens": 11}
        return
    while question == "endless" and context.is_active():
        yield {"message": b"and ", "tokens": 1, "prompt_tokens": 11}
        time.sleep(0.1)
    data = answer_of(request, question).encode()
    for at in range(0, len(data), 3):
        if question == "break" and at > 3:
            context.abort(grpc.StatusCode.INTERNAL, "the model fell over in the middle")
        if question == "slow":
            time.sleep(0.2)
            if not context.is_active():
                print("left", flush=True)
                return
        reply = {"message": data[at : at + 3], "tokens": at // 3 + 1, "prompt_tokens": 11}
        if request.get("Logprobs"):
            reply["logprobs"] = LOGPROBS
        yield reply

def embedding(request, context):
    check(request, context)
    if request.get("Embeddings") == "per token":
        return {"embeddings": [1.0, 2.0, 3.0, 4.0], "tokens": 2, "dim": 2, "layout": 2}
    size = len(request.get("Embeddings", "")) or sum(request.get("EmbeddingTokens", []))
    return {"embeddings": [float(size), 0.5, -1.0], "prompt_tokens": 2}

def rerank(request, context):
    check(request, context)
    scored = [(len(set(request["query"].split()) & set(text.split())), -at, text)
              for at, text in enumerate(request["documents"])]
    best = sorted(scored, reverse=True)[: request.get("top_n", 0) or None]
    return {"usage": {"prompt_tokens": 5, "total_tokens": 5},
            "results": [{"index": -at, "text": text, "relevance_score": score / 4} for score, at, text in best]}

def transcription(request, context):
    check(request, context)
    text = open(request["dst"], "rb").read().decode("latin-1")
    second = 1_000_000_000
    language = "translated" if request.get("translate") else request.get("language", "en")
    return {"text": text, "language": language, "duration": 2.5, "segments": [
        {"id": 0, "start": 0, "end": second, "text": text, "tokens": [1, 2],
         "words": [{"start": 0, "end": second, "text": text}]},
        {"id": 1, "start": second, "end": 2 * second + 500_000_000, "text": "end", "tokens": [3]}]}

def transcription_stream(request, context):
    check(request, context)
    for word in open(request["dst"], "rb").read().decode("latin-1").split():
        yield {"delta": word + " "}
    yield {"final_result": {"text": "the whole"}}

def speech_stream(request, context):
    check(request, context)
    yield {"audio": b"RIFF"}
    for word in request["text"].split():
        yield {"audio": word.encode()}

def speech(request, context):
    check(request, context)
    if request["text"] == "fail":
        return {"message": "no such voice"}
    with open(request["dst"], "wb") as file:
        file.write(b"RIFF" + request.get("voice", "").encode() + b":" + request["text"].encode())
    return {"success": True}

def image(request, context):
    check(request, context)
    with open(request["dst"], "wb") as file:
        file.write(b"\\x89PNG" + json.dumps({key: value for key, value in request.items()}).encode())
    return {"success": True}

def metadata(request, context):
    check({}, context)
    return {"media_marker": "[pic]"}

class Authorised(grpc.ServerInterceptor):
    def intercept_service(self, proceed, call):
        given = dict(call.invocation_metadata).get("authorization", "")
        if TOKEN and given != f"Bearer {TOKEN}":
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "token"))
        return proceed(call)

EMPTY = m.schema("HealthMessage")
METHODS = {
    "Health": (health, EMPTY, m.REPLY),
    "LoadModel": (load_model, m.MODEL_OPTIONS, m.RESULT),
    "Free": (free, EMPTY, m.RESULT),
    "Predict": (predict, m.PREDICT_OPTIONS, m.REPLY),
    "PredictStream": (predict_stream, m.PREDICT_OPTIONS, m.REPLY),
    "Embedding": (embedding, m.PREDICT_OPTIONS, m.EMBEDDING_RESULT),
    "Rerank": (rerank, m.RERANK_REQUEST, m.RERANK_RESULT),
    "AudioTranscription": (transcription, m.TRANSCRIPT_REQUEST, m.TRANSCRIPT_RESULT),
    "AudioTranscriptionStream": (transcription_stream, m.TRANSCRIPT_REQUEST, m.TRANSCRIPT_STREAM_RESPONSE),
    "TTSStream": (speech_stream, m.TTS_REQUEST, m.REPLY),
    "TTS": (speech, m.TTS_REQUEST, m.RESULT),
    "ModelMetadata": (metadata, m.MODEL_OPTIONS, m.MODEL_METADATA_RESPONSE),
    "GenerateImage": (image, m.GENERATE_IMAGE_REQUEST, m.RESULT),
}

def handler(name, method, request, reply):
    kind = grpc.unary_stream_rpc_method_handler if name.endswith("Stream") else grpc.unary_unary_rpc_method_handler
    return kind(method, request_deserializer=request.decode, response_serializer=reply.encode)

parser = argparse.ArgumentParser()
parser.add_argument("--addr", required=True)
parser.add_argument("--without", default="", help="calls that this backend does not have")
arguments = parser.parse_args()
address = arguments.addr
server = grpc.server(ThreadPoolExecutor(8), interceptors=[Authorised()])
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("backend.Backend", {
    name: handler(name, *parts) for name, parts in METHODS.items() if name not in arguments.without.split(",")})])
if not server.add_insecure_port(address):
    sys.exit(f"cannot listen on {address}")
server.start()
print("serving", VERSION, "on", address, flush=True)
print("environment", *sorted(os.environ), file=sys.stderr, flush=True)
server.wait_for_termination()
'''


def _message_files() -> dict[str, bytes]:
    """The backend runs alone, in a clean environment: it gets the wire format along."""
    text = inspect.getsource(localai_proto)
    text = text.replace("from corral.formats.protobuf import", "from wire import")
    return {"wire.py": inspect.getsource(protobuf).encode(), "messages.py": text.encode()}


def localai_files(version: str = "1", **flaws: float) -> dict[str, bytes]:
    """`flaws`: `delay_s` before each answer, `dies_after_s` after its model was loaded."""
    return {
        "FLAWS": json.dumps(flaws).encode(),
        "run.sh": f'#!/bin/sh\nexec {sys.executable} -I "$(dirname "$0")/backend.py" "$@"\n'.encode(),
        "backend.py": SERVER.encode(),
        **_message_files(),
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
        if self.path.startswith("/write/"):
            return self.attempt(lambda: os.close(os.open(self.path[6:], os.O_WRONLY | os.O_CREAT, 0o600)))
        if self.path.startswith("/signal/"):
            return self.attempt(lambda: os.kill(int(self.path[8:]), 0))
        if self.path == "/name/thread-of-a-child":
            return self.attempt(name_in_child)
        if self.path.startswith("/trace/"):
            return self.attempt(lambda: trace(int(self.path[7:])))
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
    def attempt(self, action):
        try:
            action()
        except OSError as problem:
            return self.answer(200, {"refused": str(problem)})
        self.answer(200, {"refused": None})
    def read(self, path):
        try:
            found = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read().decode(errors="replace")
        except OSError as problem:
            found = None
        self.answer(200, {"found": found})
    def log_message(self, *words):
        pass

def name_in_child():
    child = os.fork()
    if child == 0:
        try:
            with open(f"/proc/{os.getpid()}/task/{os.getpid()}/comm", "w") as file:
                file.write("cuda")
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("refused")

def trace(pid):
    import ctypes
    if ctypes.CDLL(None, use_errno=True).ptrace(16, pid, None, None) < 0:  # attach
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

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


TINY_HTTP_SERVER = """
import os, socket, sys
token = os.environ.pop("TEST_TOKEN", "")
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            asked = connection.recv(65536).decode(errors="replace")
            known = asked.startswith("GET /health ") or f"Bearer {token}\\r\\n" in asked
            line = "200 OK" if known else "401 Unauthorized"
            connection.sendall(f"HTTP/1.1 {line}\\r\\nContent-Length: 0\\r\\n\\r\\n".encode())
"""


def tiny_http_files() -> dict[str, bytes]:
    """For tests that start hundreds: of two processors' time, most would go into importing an HTTP server."""
    return {**http_files(), "server.py": TINY_HTTP_SERVER.encode()}


def write_http_backend(directory: Path, version: str = "1", python: str = sys.executable) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in http_files(version, python).items():
        (directory / name).write_bytes(data)
    return directory
