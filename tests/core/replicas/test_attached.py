from dataclasses import replace
from typing import Any

import pytest

from corral.core.errors import InvalidInput
from corral.core.replicas.attached import (
    FAILURES_MAX,
    AttachedEndpoint,
    EndpointHealth,
    EndpointState,
    ProbeRecord,
    ProbeResult,
    ServerTrust,
    UpstreamProtocol,
    check_abilities,
    check_api_key,
    check_paths,
    check_pin,
    check_trust,
    describe_away,
    is_drained,
    judge_probe,
    parse_server_url,
    plan_health,
    warn_of_models,
)

HEALTHY, UNHEALTHY = EndpointHealth.HEALTHY, EndpointHealth.UNHEALTHY
WELL, ILL = ProbeResult(is_well=True), ProbeResult(is_well=False, reason="no answer")


@pytest.mark.parametrize(
    ("text", "address", "authority", "path"),
    [
        ("http://10.0.0.5:8000/v1", "10.0.0.5:8000", "10.0.0.5:8000", "/v1"),
        ("http://10.0.0.5:8000", "10.0.0.5:8000", "10.0.0.5:8000", "/v1"),
        ("http://10.0.0.5:8000/v1/", "10.0.0.5:8000", "10.0.0.5:8000", "/v1"),
        ("https://models.example/openai/v1", "models.example:443", "models.example", "/openai/v1"),
        ("http://[fd00::5]:8000/v1", "[fd00::5]:8000", "[fd00::5]:8000", "/v1"),
        ("http://[fd00::5]/v1", "[fd00::5]:80", "[fd00::5]", "/v1"),
    ],
)
def test_the_url_of_a_server_is_taken_apart(text: str, address: str, authority: str, path: str) -> None:
    url = parse_server_url(text)
    assert (url.address, url.authority, url.path) == (address, authority, path)
    assert parse_server_url(url.text) == url


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.5:8000",
        "ftp://host/v1",
        "http:///v1",
        "http://host:99999/v1",
        "http://host:0/v1",
        "http://one..two/v1",
        f"http://{'x' * 64}/v1",
        "http://host/v1?key=1",
        "http://host/v1#x",
        "http://host/v1 HTTP/1.1",
        "http://host/v1\r\nX: y",
        "http://h\u00f6st/v1",
        "http://host/" + "a" * 600,
        "http://host:8000/v1/chat/completions",
    ],
)
def test_what_is_not_the_base_of_an_api_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_server_url(text)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInput, match="api-key-file") as caught:
        parse_server_url("http://user:hunter2@host/v1")
    assert "hunter2" not in str(caught.value)


def test_keys_and_pins_have_one_form() -> None:
    assert check_pin("SHA256:" + "AB:" * 31 + "AB") == "ab" * 32
    assert check_pin("") == ""
    assert check_api_key(" sk-1\n") == "sk-1"
    for wrong in ("two words", "line\r\nX-Evil: 1", "k\u00e9y", "x" * 5000):
        with pytest.raises(InvalidInput) as caught:
            check_api_key(wrong)
        assert wrong not in str(caught.value)
    with pytest.raises(InvalidInput):
        check_pin("abc")
    with pytest.raises(InvalidInput, match="https"):
        check_trust(parse_server_url("http://host/v1"), ServerTrust(pin="ab" * 32))


def test_paths_of_a_server_have_one_form_and_others_are_refused() -> None:
    assert check_paths([" /v1/responses/", "/v1/messages", "", "/v1/responses"]) == ("/v1/messages", "/v1/responses")
    for wrong in ("/api/chat", "/v1/chat/completions", "responses", "/v1/responses/x"):
        with pytest.raises(InvalidInput, match="/v1/messages/count_tokens"):
            check_paths([wrong])


@pytest.mark.parametrize("settings", [{"endpoints": ("/v1/responses",)}, {"continuation": "assistant-prefill"}])
def test_settings_that_have_no_effect_for_anthropics_api_are_refused(settings: dict[str, Any]) -> None:
    one = AttachedEndpoint(id="e", model="m", url="http://h/v1", **settings)
    check_abilities(one)
    with pytest.raises(InvalidInput, match="Anthropic"):
        check_abilities(replace(one, protocol=UpstreamProtocol.ANTHROPIC))


@pytest.mark.parametrize(
    ("status", "is_well"),
    [(200, True), (404, True), (405, True), (403, True), (429, True), (401, False), (302, False), (500, False)],
)
def test_a_probe_is_judged_by_its_status(status: int, is_well: bool) -> None:
    found = judge_probe(status)
    assert (found.is_well, bool(found.reason)) == (is_well, not is_well)


@pytest.mark.parametrize(
    ("before", "probe", "after"),
    [
        pytest.param(ProbeRecord(HEALTHY), WELL, ProbeRecord(HEALTHY), id="a-healthy-one-stays"),
        pytest.param(ProbeRecord(HEALTHY), ILL, ProbeRecord(HEALTHY, "", 1), id="one-failure-is-forgiven"),
        pytest.param(
            ProbeRecord(HEALTHY, "", FAILURES_MAX - 1),
            ILL,
            ProbeRecord(UNHEALTHY, "no answer", FAILURES_MAX),
            id="several-in-a-row-are-not",
        ),
        pytest.param(ProbeRecord(HEALTHY, "", 2), WELL, ProbeRecord(HEALTHY), id="a-success-clears-failures"),
        pytest.param(ProbeRecord(UNHEALTHY, "x", 9), WELL, ProbeRecord(HEALTHY), id="one-success-is-enough"),
        pytest.param(
            ProbeRecord(UNHEALTHY, "x", 9), ILL, ProbeRecord(UNHEALTHY, "no answer", 10), id="the-reason-is-current"
        ),
    ],
)
def test_health_follows_probes(before: ProbeRecord, probe: ProbeResult, after: ProbeRecord) -> None:
    assert plan_health(before, probe) == after


@pytest.mark.parametrize(
    ("open_requests", "draining_ms", "expected"),
    [
        pytest.param(0, 100, False, id="other-frontends-may-not-know-yet"),
        pytest.param(0, 4_000, True, id="nothing-is-open"),
        pytest.param(1, 4_000, False, id="a-request-is-open"),
        pytest.param(1, 70_000, True, id="for-too-long"),
    ],
)
def test_a_detached_endpoint_is_kept_while_it_has_requests(
    open_requests: int, draining_ms: int, expected: bool
) -> None:
    found = is_drained(open_requests=open_requests, draining_ms=draining_ms, settle_ms=3_000, drain_ms=60_000)
    assert found is expected


def endpoint(**changes: object) -> AttachedEndpoint:
    return AttachedEndpoint(**{"id": "e", "model": "m", "url": "http://h:1/v1", "api_key": "sk-secret", **changes})  # type: ignore[arg-type]  # a table's fields


def test_the_key_goes_in_the_header_of_the_protocol_and_is_not_printed() -> None:
    assert endpoint().probe_headers == {"Authorization": "Bearer sk-secret"}
    assert endpoint(api_key="").probe_headers == {}
    assert endpoint(protocol=UpstreamProtocol.ANTHROPIC).probe_headers["x-api-key"] == "sk-secret"
    assert "sk-secret" not in repr(endpoint())


def test_a_name_that_the_server_does_not_list_is_warned_of() -> None:
    assert warn_of_models(endpoint(), frozenset()) == []
    assert warn_of_models(endpoint(), frozenset({"m", "n"})) == []
    assert warn_of_models(endpoint(), frozenset({"m:latest"})) == []
    (warning,) = warn_of_models(endpoint(upstream_model="x"), frozenset({"m", "n"}))
    assert "'x'" in warning
    assert "m, n" in warning


def test_clients_are_not_told_addresses() -> None:
    assert "h:1" not in describe_away([endpoint()])
    assert "attached" in describe_away([endpoint(state=EndpointState.DRAINING)])
