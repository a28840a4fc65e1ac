"""Whatever comes over a wire is read or refused with one error of ours, and what passes fits the store."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from corral.bus import messages, node_api, request_trace
from corral.bus.limits import check_depth
from corral.bus.messages import (
    CommandExtras,
    InstallProgress,
    ListedBackend,
    NodeReport,
    OpenRequests,
    ProgressExtras,
    ReportedProcess,
    TrafficReport,
    decode,
    encode,
)
from corral.bus.node_api import (
    decode_heartbeat,
    decode_heartbeat_reply,
    decode_heartbeat_sender,
    decode_register,
    decode_register_reply,
)
from corral.core.errors import InvalidInput
from corral.core.nodes.history import TrafficShare
from corral.core.nodes.observed import ProcessStatus

fuzz = settings(max_examples=30, deadline=None, derandomize=True, database=None)


def _structs(*modules: Any) -> list[type[msgspec.Struct]]:
    found = {
        kind
        for module in modules
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
    }
    return sorted(found, key=lambda kind: kind.__name__)


WIRE_TYPES = _structs(messages, request_trace, node_api)
DECODERS: list[Callable[[bytes], object]] = [
    decode_register,
    decode_register_reply,
    decode_heartbeat,
    decode_heartbeat_sender,
    decode_heartbeat_reply,
]

scalars = (
    some.none()
    | some.booleans()
    | some.integers(min_value=-(10**40), max_value=10**40)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(max_size=20)
    | some.sampled_from(["\0", "a\0b", "x" * 20_000, "backend", "-1"])
)
documents = some.recursive(
    scalars,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def _fields(kind: type[msgspec.Struct]) -> some.SearchStrategy[dict[str, Any]]:
    """Mostly the type's own fields, with anything in them."""
    names = some.sampled_from([field.encode_name for field in msgspec.structs.fields(kind)] or ["x"])
    return some.dictionaries(names | some.text(max_size=5), documents, max_size=12)


def _check_fits(value: object) -> None:
    """What the databases hold."""
    match value:
        case bool() | None:
            return
        case int():
            assert -(1 << 63) <= value < 1 << 63
        case str():
            assert "\0" not in value
            value.encode()
        case dict():
            for name, inner in value.items():
                _check_fits(name)
                _check_fits(inner)
        case list() | tuple():
            for inner in value:
                _check_fits(inner)
        case _:
            return


def _try(read: Callable[[bytes], object], data: bytes) -> None:
    try:
        found = read(data)
    except InvalidInput:
        pass
    else:
        _check_fits({key: inner for key, inner in msgspec.to_builtins(found).items() if key != "manifest"})


@pytest.mark.parametrize("kind", WIRE_TYPES, ids=lambda kind: kind.__name__)
@fuzz
@given(data=some.data())
def test_any_document_is_read_or_refused(kind: type[msgspec.Struct], data: some.DataObject) -> None:
    document = data.draw(_fields(kind) | documents)
    _try(lambda body: decode(body, kind), json.dumps(document).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("kind", WIRE_TYPES, ids=lambda kind: kind.__name__)
@fuzz
@given(body=some.binary(max_size=200))
@example(body=b"")
@example(body=b"null")
@example(body=b'{"a":"\xff"}')
@example(body=b'{"a":"\\ud800"}')
@example(body=b"[" * 200_000)
@example(body=b'{"node":' + b"[" * 100_000)
@example(body=b'{"epoch":' + b"9" * 10_000 + b"}")
def test_any_bytes_are_read_or_refused(kind: type[msgspec.Struct], body: bytes) -> None:
    _try(lambda given: decode(given, kind), body)


@pytest.mark.parametrize("read", DECODERS, ids=lambda read: read.__name__)
@fuzz
@given(data=some.data())
def test_any_body_of_the_node_api_is_read_or_refused(read: Callable[[bytes], object], data: some.DataObject) -> None:
    kinds: dict[Callable[[bytes], object], type[msgspec.Struct]] = {
        decode_register: node_api.RegisterRequest,
        decode_register_reply: node_api.RegisterReply,
        decode_heartbeat: node_api.HeartbeatRequest,
        decode_heartbeat_sender: node_api.HeartbeatSender,
        decode_heartbeat_reply: node_api.HeartbeatReply,
    }
    document = data.draw(_fields(kinds[read]))
    _try(read, json.dumps(document).encode("utf-8", "surrogatepass"))
    _try(read, data.draw(some.binary(max_size=100)))


def _report(**fields: Any) -> NodeReport:
    plain: dict[str, Any] = {"node": "n", "instance": "i", "epoch": 1, "sequence": 1, "backends": [], "processes": []}
    return NodeReport(**plain | fields)


def _backend(name: str = "a", **fields: Any) -> ListedBackend:
    return ListedBackend(name=name, is_system=False, is_meta=False, **fields)


REFUSED: dict[str, NodeReport] = {
    "epoch": _report(epoch=1 << 63),
    "sequence": _report(sequence=10**40),
    "negative": _report(sequence=-1),
    "generation": _report(backends=[_backend(generation=1 << 63)]),
    "applied": _report(applied={"a": 1 << 63}),
    "endless name": _report(backends=[_backend("x" * 2000)]),
    "endless text": _report(backends=[_backend(problem="x" * 20_000)]),
    "too many backends": _report(backends=[_backend(str(number)) for number in range(4097)]),
}


@pytest.mark.parametrize("report", REFUSED.values(), ids=REFUSED)
def test_a_report_the_store_could_not_hold_is_refused(report: NodeReport) -> None:
    with pytest.raises(InvalidInput):
        decode(msgspec.json.encode(report), NodeReport)


@pytest.mark.parametrize("text", [rb"\u0000", rb"a\u0000b", rb"\\\u0000", rb"\u0000\u0000"])
def test_text_with_nul_is_refused_wherever_it_stands(text: bytes) -> None:
    body = encode(_report(backends=[_backend(problem="PROBLEM")])).replace(b"PROBLEM", text)
    with pytest.raises(InvalidInput, match="NUL"):
        decode(body, NodeReport)


def test_text_about_nul_is_not_nul() -> None:
    told = _report(backends=[_backend(problem=r"a path with \u0000 in it")])
    assert decode(encode(told), NodeReport) == told


def test_what_we_send_can_be_read_whatever_a_program_printed() -> None:
    told = decode(encode(_report(backends=[_backend(problem="it said \0\\\0 and ended")])), NodeReport)
    assert told.backends[0].problem == "it said \ufffd\\\ufffd and ended"


def test_the_report_of_a_large_node_passes() -> None:
    process = ReportedProcess(
        "m#0", "m", 0, backend="b", digest="sha256:0", protocol="http", state=ProcessStatus.READY, reason="x"
    )
    large = _report(
        backends=[_backend(f"backend-{number}", versions=["sha256:" + "0" * 64] * 3) for number in range(2000)],
        processes=[msgspec.structs.replace(process, process_key=f"m#{number}") for number in range(2000)],
        applied={f"backend-{number}": number for number in range(2000)},
    )
    assert decode(encode(large), NodeReport) == large


def test_traffic_of_other_frontends_has_bounds() -> None:
    with pytest.raises(InvalidInput):
        decode(b'{"frontend":"f","sequence":1,"replicas":{"r":-1}}', OpenRequests)
    with pytest.raises(InvalidInput):
        decode(b'{"frontend":"f","nodes":{"n":{"requests":-5}}}', TrafficReport)
    good = TrafficReport(frontend="f", requests=2, nodes={"n": TrafficShare(requests=2, failed=0, busy_s=1.5)})
    assert decode(encode(good), TrafficReport) == good


def test_progress_has_bounds() -> None:
    begin = b'{"op_id":"o","node_id":"n","backend":"b","percentage":1,"corral":'
    with pytest.raises(InvalidInput):
        decode(begin + b'{"sequence":9223372036854775808}}', InstallProgress)
    with pytest.raises(InvalidInput):
        decode(begin + b'{"sequence":1,"transfer":{"rate_bytes_per_s":1e300}}}', InstallProgress)


@pytest.mark.parametrize(
    "transfer",
    [
        pytest.param({"phase": "p" * 2000}, id="a-long-phase"),
        pytest.param({"file_name": "f" * 20_000}, id="a-long-file-name"),
        pytest.param({"bytes_done": -1}, id="a-negative-count"),
        pytest.param({"bytes_total": 1 << 63}, id="a-count-that-no-store-holds"),
        pytest.param({"file_index": -1}, id="a-negative-index"),
        pytest.param({"percentage": 1e9}, id="a-percentage-far-out-of-range"),
        pytest.param({"eta_s": -1.0}, id="a-negative-time"),
    ],
)
def test_a_transfer_has_bounds(transfer: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        decode(msgspec.json.encode({"sequence": 1, "transfer": transfer}), ProgressExtras)


def test_a_manifest_has_a_depth() -> None:
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"a": deep}
    check_depth({"a": [{"b": [1, 2, {"c": "d"}]}]})
    with pytest.raises(InvalidInput, match="deep"):
        decode(msgspec.json.encode({"build": {"manifest": json.dumps(deep)}}), CommandExtras)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param({"name": "n" * 2000}, id="a-long-name"),
        pytest.param({"uris": ["u" * 20_000]}, id="a-long-source"),
        pytest.param({"uris": ["u"] * 70_000}, id="many-sources"),
        pytest.param({"manifest": " " * (1 << 20) + "{}"}, id="a-long-manifest"),
        pytest.param({"manifest": "no JSON"}, id="a-manifest-that-is-no-JSON"),
    ],
)
def test_a_build_has_bounds(build: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        decode(msgspec.json.encode({"build": build}), CommandExtras)
