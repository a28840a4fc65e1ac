"""Requests that a route's description allows, and ones that nobody should ever send, as bytes.

Made by Hypothesis, so that a failure comes down to the least that still fails."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

ANSWER_WITHIN_S = 30.0
ANSWER_MOST_BYTES = 16 << 20
DEEP = 20_000

_TEXTS = (
    "", "\0", "a\0b", "..", "../../etc/passwd", "a/b", "x" * 5000, "-", "*", ">", "é", "😀", "\u202e", "%", "null", "0",
    "-1", "true", "' OR 1=1 --", "{}", "[]", "a b", "a\r\nX: y", "00000000-0000-4000-8000-000000000000", "#0", "@", ":",
    "sha256:" + "0" * 64, "tiny", "smollm2", "http://127.0.0.1:1/", "file:///etc/passwd", "\ud800",
)  # fmt: skip
_NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 10**5000, 0.5, 1e308, float("inf"), float("nan"))
_PATHS = (
    "%00", "%ff", "%C3%28", "%", "%zz", "%2e%2e", "%2F", "..", "a%0d%0aX:y", "%F0%9F%98%80", "a" * 3000, "",
    "%ED%A0%80",
    "+", "~", "a;b", "%25", "a%00b", "..%2f..%2fetc%2fpasswd",
)  # fmt: skip
_TYPES = (
    "application/json", "application/json; charset=utf-16", "application/json; charset=klingon", "text/plain", "",
    "application/x-www-form-urlencoded", "multipart/form-data", "multipart/form-data; boundary=b",
    "application/xml", "\xff",
)  # fmt: skip
_BODIES = (
    b"", b"{", b"\xff\xfe", b"null", b"[]", b'"text"', b"1e999", b"NaN", b"{}", b'{"a":1}{"b":2}', b"\0",
    b'{"model":"\\ud800"}',
    b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b'{"model":' + b"9" * 5000 + b"}",
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n\xff\r\n--b--\r\n', b"x" * 100_000,
)  # fmt: skip
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "M-SEARCH", "CONNECT", "X")
_HEADERS = (
    ("Host", ""), ("Host", "\xff"), ("Host", "a b"), ("Host", "evil.example:99999999"), ("Host", "[::1"),
    ("Cookie", "\xff=;;;\0"),
    ("Cookie", "corral_session=x"), ("Cookie", 'a="\\'), ("Idempotency-Key", "\xff" * 300), ("Idempotency-Key", ""),
    ("If-Match", '"x"'), ("If-Match", "\xff"), ("Range", "bytes=-1,5-2,x"), ("Range", "bytes=0-" + "9" * 40),
    ("Content-Range", "bytes 9-1/0"), ("Content-Range", "bytes 0-" + "9" * 40 + "/*"), ("X-Content-SHA256", "\xff"),
    ("Accept-Encoding", "gzip;q=x,*"), ("Last-Event-ID", "-1"), ("Last-Event-ID", "9" * 40), ("Origin", "null"),
    ("Origin", "http://[::1"), ("X-Forwarded-For", "\xff,,,"), ("Forwarded", 'for="'), ("X-Corral-Client", ""),
    ("Upgrade", "h2c"), ("Connection", "upgrade"), ("Expect", "200-ok"), ("X-Corral-Instance", "\xff"),
    ("Accept", "application/json"), ("X-Model-Load-Wait", "nan"), ("Date", "x"), ("X-Session-Id", "\xff" * 2000),
)  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """One route with one method, and what its description says of it."""

    method: str
    path: str
    parameters: tuple[Mapping[str, Any], ...] = ()
    body: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Sent:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def as_bytes(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace") + self.body


@dataclass(frozen=True)
class Got:
    status: int
    content_type: str
    body: bytes


def described(openapi: Mapping[str, Any]) -> Iterator[Operation]:
    for path, methods in openapi["paths"].items():
        for method, told in methods.items():
            content = told.get("requestBody", {}).get("content", {}).get("application/json", {})
            yield Operation(method.upper(), path, tuple(told.get("parameters", ())), content.get("schema"))


def requests_for(operation: Operation, openapi: Mapping[str, Any], *, key: str | None) -> st.SearchStrategy[Sent]:
    """`key`: whose; None for nobody's."""
    schemas = openapi.get("components", {}).get("schemas", {})
    body = _bodies(operation.body, schemas)
    return st.builds(
        _assemble,
        method=st.one_of(st.just(operation.method), st.just(operation.method), st.sampled_from(_METHODS)),
        target=_targets(operation, schemas),
        content_type=st.one_of(st.just("application/json"), st.sampled_from(_TYPES)),
        more=st.lists(st.sampled_from(_HEADERS), max_size=3, unique_by=lambda header: header[0]),
        body=body,
        key=st.just(key),
        is_chunked=st.booleans(),
    )


def _assemble(
    method: str,
    target: str,
    content_type: str,
    more: list[tuple[str, str]],
    body: bytes,
    key: str | None,
    is_chunked: bool,
) -> Sent:
    headers = [("Content-Type", content_type), *more]
    if not any(name == "Host" for name, _ in more):
        headers.append(("Host", "127.0.0.1"))
    if key is not None:
        headers.append(("Authorization", f"Bearer {key}"))
    if is_chunked and body:
        headers.append(("Transfer-Encoding", "chunked"))
        body = b"%x\r\n%b\r\n0\r\nX-Trailer: x\r\n\r\n" % (len(body), body)
    else:
        headers.append(("Content-Length", str(len(body))))
    if not any(name == "Connection" for name, _ in more):
        headers.append(("Connection", "close"))
    return Sent(method, target, tuple(headers), body)


@st.composite
def _targets(draw: st.DrawFn, operation: Operation, schemas: Mapping[str, Any]) -> str:
    target, query = operation.path, []
    for parameter in operation.parameters:
        schema = parameter.get("schema", {})
        if parameter["in"] == "path":
            raw = draw(st.one_of(st.sampled_from(_PATHS), _plain(schema, schemas).map(_quoted)))
            target = target.replace("{" + parameter["name"] + "}", raw)
        elif parameter["in"] == "query" and draw(st.booleans()):
            raw = draw(st.one_of(st.sampled_from(_PATHS), _plain(schema, schemas).map(_quoted)))
            query.append(f"{parameter['name']}={raw}")
    return target + ("?" + "&".join(query) if query else draw(st.sampled_from(("", "", "?", "?%00=%ff", "?a=1&a=2"))))


def _quoted(value: Any) -> str:
    return quote(str(value)[:6000].encode("utf-8", "surrogatepass"), safe="")


def _bodies(schema: Mapping[str, Any] | None, schemas: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    wild = st.sampled_from(_BODIES)
    if schema is None:
        return st.one_of(st.just(b""), wild)
    fitting = _values(schema, schemas, depth=0).map(_encoded)
    return st.one_of(fitting, fitting, fitting, wild)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).replace('"HUGE"', "9" * 5000).encode()


def _plain(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    return _values(schema, schemas, depth=3)


def _values(schema: Mapping[str, Any], schemas: Mapping[str, Any], *, depth: int) -> st.SearchStrategy[Any]:
    numbers = [number if not isinstance(number, int) or abs(number) < 10**100 else "HUGE" for number in _NUMBERS]
    wrong: st.SearchStrategy[Any] = st.sampled_from((*_TEXTS, *numbers, None, True, [], {}, [[]], {"a": {}}))
    return st.one_of(_fitting(schema, schemas, depth), _fitting(schema, schemas, depth), wrong)


def _fitting(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return st.one_of(*(_fitting(one, schemas, depth) for one in schema[union]))
    match schema.get("type"):
        case "string":
            return st.one_of(st.sampled_from(_TEXTS), st.text(max_size=20))
        case "integer":
            return st.integers(min_value=schema.get("minimum", -5), max_value=schema.get("maximum", 100_000))
        case "number":
            return st.floats(0, 1e6)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            items = (
                st.just([])
                if depth > 3
                else st.lists(_values(schema.get("items", {}), schemas, depth=depth + 1), max_size=3)
            )
            return items
        case "object":
            return _objects(schema, schemas, depth)
    return st.sampled_from(_TEXTS)


def _objects(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int) -> st.SearchStrategy[dict[str, Any]]:
    properties = schema.get("properties", {})
    if depth > 3:
        return st.just({})
    if not properties:
        return st.dictionaries(st.sampled_from(_TEXTS), st.sampled_from((*_TEXTS, 1, None)), max_size=3)
    required = set(schema.get("required", ()))
    values = {name: _values(told, schemas, depth=depth + 1) for name, told in properties.items()}
    return st.fixed_dictionaries(
        {name: value for name, value in values.items() if name in required},
        optional={name: value for name, value in values.items() if name not in required},
    )


def send(port: int, sent: Sent) -> Got | None:
    """None where the server closed the connection without an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_WITHIN_S) as connection:
        with contextlib.suppress(ConnectionError):  # it need not hear everything to answer
            connection.sendall(sent.as_bytes())
        try:
            response = http.client.HTTPResponse(connection, method=sent.method)
            response.begin()
            content_type = response.headers.get("content-type", "")
            if content_type.startswith("text/event-stream"):
                return Got(response.status, content_type, b"")  # which has no end
            body = response.read(ANSWER_MOST_BYTES + 1)
        except (ConnectionError, http.client.RemoteDisconnected, http.client.IncompleteRead):
            return None
        assert len(body) <= ANSWER_MOST_BYTES, f"{sent}: an answer of more than {ANSWER_MOST_BYTES} bytes"
        return Got(response.status, content_type, body)
