"""Every route of a worker's HTTP server with all that nobody should send: nothing crashes, nothing leaves its area."""

import logging
import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from harness.file_server import TOKEN, RunningFileServer
from harness.hostile_requests import Operation, Sent, requests_for, send

EXAMPLES = int(os.environ.get("CORRAL_FUZZ_EXAMPLES", "20"))
KEY = ({"name": "key", "in": "path", "schema": {"type": "string"}},)
OPERATIONS = tuple(
    Operation(method, path, parameters=KEY if "{key}" in path else ())
    for method, path in (
        ("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/v1/files/temp"), ("HEAD", "/v1/files/{key}"),
        ("GET", "/v1/files/{key}"), ("PUT", "/v1/files/{key}"), ("PUT", "/v1/files/models/{key}"),
        ("PUT", "/v1/files/data/{key}"), ("DELETE", "/v1/files/{key}"), ("DELETE", "/v1/files/ephemeral/{key}/{key}"),
        ("GET", "/v1/files-list/{key}"), ("GET", "/v1/backend-logs"), ("GET", "/v1/backend-logs/{key}"),
        ("GET", "/v1/backend-logs/{key}/ws"), ("GET", "/artifacts/blobs/{key}"), ("GET", "/{key}"),
    )
)  # fmt: skip


@pytest.mark.parametrize("who", ["nobody", "a frontend"])
def test_no_request_makes_a_worker_crash(server: RunningFileServer, caplog: pytest.LogCaptureFixture, who: str) -> None:
    for operation in OPERATIONS:

        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, derandomize=EXAMPLES == 20,
            phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(requests_for(operation, {}, key=TOKEN if who == "a frontend" else None))
        def ask(sent: Sent) -> None:
            got = send(server.port, sent)
            if got is None:
                return
            told = f"{who}: {sent} -> {got.status} {got.body[:300]!r}"
            assert got.status < 500, told
            assert b"root:" not in got.body, told
            if who == "nobody" and got.status < 300:
                assert sent.target.partition("?")[0] in ("/healthz", "/readyz"), told

        ask()
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not errors, errors
