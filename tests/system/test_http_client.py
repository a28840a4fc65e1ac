"""The blocking client against a real server on loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from corral.core.errors import CorralError, NotFound, OutcomeUnknown, Unavailable
from corral.system.http_client import Declined, EventStream, ServerEvent, Unreachable, call_json, read_server_time


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hold: ClassVar[threading.Event]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(200, b"", "text/plain")

    def do_GET(self) -> None:
        match self.path:
            case "/missing":
                self._answer(404, json.dumps({"error": {"message": "there is no such node"}}).encode())
            case "/busy":
                self._answer(503, b'{"error": "busy"}')
            case "/page":
                self._answer(200, b"<html>")
            case "/empty":
                self._answer(200, b"")
            case "/events?kinds=a":
                self._events(b": ping\n\nevent: nodes\ndata: [1]\n\ndata: one\ndata: two\n\n")
            case "/cut":
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b"data: 1\n\n")
                self.close_connection = True
            case "/held":
                self._events(b"data: first\n\n", hold=True)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/events":
            self._events(f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n".encode())
        else:
            self._answer(200, json.dumps({"body": body, "key": self.headers["Authorization"]}).encode())

    def _answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _events(self, content: bytes, *, hold: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.send_header("X-Node", "barn")
        self.end_headers()
        self.wfile.write(content)
        if hold:
            self.hold.wait(30)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    Handler.hold = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    Handler.hold.set()
    server.shutdown()
    thread.join()
    server.server_close()


def open_stream(url: str, *, body: Any = None) -> EventStream:
    return EventStream(url, bearer=None, body=body, answer_within_s=5.0, silence_s=5.0)


def test_a_call_sends_the_body_and_the_key_and_returns_the_decoded_answer(url: str) -> None:
    answer = call_json("POST", f"{url}/echo", bearer="secret", body={"a": 1})
    assert answer == {"body": {"a": 1}, "key": "Bearer secret"}
    assert call_json("GET", f"{url}/empty") is None


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        pytest.param("missing", NotFound, "there is no such node", id="the-server's-message-is-kept"),
        pytest.param("busy", Declined, "busy", id="a-busy-server-is-not-an-unreachable-one"),
        pytest.param("page", Unavailable, "does not answer like a Corral frontend", id="another-program-is-reported"),
    ],
)
def test_an_error_answer_is_raised(url: str, path: str, error: type[CorralError], text: str) -> None:
    with pytest.raises(error, match=text):
        call_json("GET", f"{url}/{path}")


def test_a_closed_port_is_unreachable(url: str) -> None:
    with pytest.raises(Unreachable, match="Connection refused"):
        call_json("GET", "http://127.0.0.1:1/")
    with pytest.raises(Unreachable, match="Connection refused"):
        open_stream("http://127.0.0.1:1/")


def test_the_server_s_time_is_its_date_header(url: str) -> None:
    assert read_server_time(url).endswith("GMT")


def test_events_are_read_in_order_with_their_names(url: str) -> None:
    with open_stream(f"{url}/events?kinds=a") as events:
        events.check_status()
        assert (events.status, events.headers["x-node"]) == (200, "barn")
        assert list(events) == [ServerEvent("nodes", "[1]"), ServerEvent("", "one\ntwo")]


def test_a_stream_with_a_body_is_a_post(url: str) -> None:
    with open_stream(f"{url}/events", body={"model": "tiny"}) as events:
        first, last = list(events)
    assert (first.decode(), last.data) == ({"model": "tiny"}, "[DONE]")


def test_a_stream_that_is_cut_off_has_an_unknown_outcome(url: str) -> None:
    with open_stream(f"{url}/cut") as events, pytest.raises(OutcomeUnknown, match="cut off"):
        events.read()


def test_get_returns_none_while_nothing_happens_and_raises_when_the_stream_ended(url: str) -> None:
    with open_stream(f"{url}/held") as events:
        assert events.get(within_s=5.0) == ServerEvent("", "first")
        assert events.get(within_s=0.01) is None
    with open_stream(f"{url}/events?kinds=a") as events:
        assert [events.get(within_s=5.0) for _ in range(2)] == [
            ServerEvent("nodes", "[1]"),
            ServerEvent("", "one\ntwo"),
        ]
        with pytest.raises(Unreachable, match="the server closed it"):
            events.get(within_s=5.0)


def test_an_error_answer_to_a_stream_is_raised_by_its_check(url: str) -> None:
    with open_stream(f"{url}/missing") as events, pytest.raises(NotFound, match="there is no such node"):
        events.check_status()
