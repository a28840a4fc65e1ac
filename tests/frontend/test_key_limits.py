"""Limits of keys on two real frontends with PostgreSQL, through the command line and OpenAI's own client."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from harness.cluster import ADMIN_KEY, Cluster
from harness.echo_cluster import add_echo_models, start_echo_worker
from harness.machine_speed import promised
from harness.nats import Nats
from harness.postgres import Postgres
from harness.programs import Admin, Answer, call, clean_environment, run_cli
from harness.waiting import wait_until

pytestmark = pytest.mark.postgres
QUESTION: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats, postgres: Postgres) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("limits"), nats_for_module, postgres.create("key_limits"))
    admin = running.start_frontend("a", CORRAL_MODEL_LOAD_WAIT="60s")
    running.start_frontend("b", CORRAL_MODEL_LOAD_WAIT="60s")
    start_echo_worker(running, "w1")
    add_echo_models(admin, "echo")
    assert admin.call("POST", "/v1/chat/completions", body=QUESTION).status == 200
    other = running.admin("b")
    wait_until(lambda: other.call("POST", "/v1/chat/completions", body=QUESTION).status == 200, what="b serves it")
    yield running
    running.stop()


def keys(cluster: Cluster, *words: str) -> str:
    """Runs `corral keys`; its output."""
    environment = clean_environment(CORRAL_URL=cluster.admin("a").url, CORRAL_API_KEY=ADMIN_KEY)
    done = run_cli("keys", *words, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def create(cluster: Cluster, name: str, *limits: str) -> str:
    """A key that both frontends know."""
    key = keys(cluster, "create", "--name", name, *limits)
    wait_until(
        lambda: call("GET", f"{cluster.admin('b').url}/v1/models", key=key).status == 200, what="b knows the key"
    )
    return key


def ask(admin: Admin, key: str, **more: Any) -> Answer:
    return call("POST", f"{admin.url}/v1/chat/completions", key=key, body={**QUESTION, **more})


def test_a_limit_holds_for_both_frontends_together_and_a_change_reaches_both(cluster: Cluster) -> None:
    key = create(cluster, "rpm", "--rpm", "6")
    a, b = cluster.admin("a"), cluster.admin("b")
    admitted = [ask(a, key).status for _ in range(6)]
    assert admitted == [200] * 6
    statuses: list[int] = []

    def is_refused_by_b() -> bool:
        statuses.append(ask(b, key).status)
        return statuses[-1] == 429

    wait_until(is_refused_by_b, what="b has heard of it", every_s=0.3)
    assert statuses.count(200) <= 3, "b heard of it before it had admitted a whole window's worth"
    assert ask(a, key).status == 429
    used = json.loads(keys(cluster, "usage", "rpm", "--json"))
    assert 6 <= used["used"]["requests_per_minute"] <= 12, "at most one window's worth for the second frontend"
    assert used["limits"]["requests_per_minute"] == 6
    assert "6 requests per minute" in keys(cluster, "list")
    assert "100 requests per minute" in keys(cluster, "edit", "rpm", "--rpm", "100", "--priority", "high")
    with promised("a change's way to the other frontend", within_s=5):
        wait_until(lambda: ask(b, key).status == 200, what="b has the new limit")
    assert ask(b, key).headers["x-ratelimit-limit-requests"] == "100"


def test_defaults_apply_to_keys_without_limits_of_their_own(cluster: Cluster) -> None:
    free, own, none = (
        create(cluster, "free"),
        create(cluster, "own", "--rpm", "7"),
        create(cluster, "x", "--rpm", "none"),
    )
    try:
        assert keys(cluster, "defaults", "--rpm", "3") == "default limits: 3 requests per minute"

        def limits(admin: Admin) -> list[str | None]:
            return [ask(admin, key).headers.get("x-ratelimit-limit-requests") for key in (free, own, none)]

        for admin in (cluster.admin("a"), cluster.admin("b")):
            wait_until(lambda admin=admin: limits(admin) == ["3", "7", None] or None, what="the default applies")  # type: ignore[misc]
    finally:
        assert keys(cluster, "defaults", "--rpm", "default") == "default limits: none"


def test_openais_client_gets_a_rate_limit_error_with_the_limit_and_the_time(cluster: Cluster) -> None:
    key = create(cluster, "strict", "--tpm", "20")
    with openai.OpenAI(base_url=f"{cluster.admin('a').url}/v1", api_key=key, max_retries=0) as client:
        client.chat.completions.create(**QUESTION)
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(**QUESTION)
    assert refused.value.code == "rate_limit_exceeded"
    assert "limited to 20 tokens per minute: 14 used, 6 left" in str(refused.value)
    headers = refused.value.response.headers
    assert headers["x-ratelimit-limit-tokens"] == "20"
    assert headers["x-ratelimit-remaining-tokens"] == "6"
    assert 1 <= int(headers["retry-after"]) <= 61


def test_openais_client_waits_as_told_and_then_succeeds(cluster: Cluster) -> None:
    key = create(cluster, "one-at-once", "--concurrent", "1")
    url = f"{cluster.admin('a').url}/v1"
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as first:
        stream = first.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "endless"}], stream=True
        )
        next(iter(stream))
        told: list[str] = []

        def note(response: Any) -> None:
            if response.status_code == 429:
                told.append(response.headers["retry-after"])
                stream.close()

        with openai.OpenAI(base_url=url, api_key=key, max_retries=3) as second:
            second._client.event_hooks["response"].append(note)
            answer = second.chat.completions.create(**QUESTION)
    assert answer.choices[0].message.content
    assert told[0] == "1"


def test_a_daily_budget_survives_the_restart_of_every_frontend(cluster: Cluster) -> None:
    key = create(cluster, "daily", "--daily-tokens", "25")
    a, b = cluster.admin("a"), cluster.admin("b")
    assert ask(a, key).status == 200
    refused = ask(a, key)
    assert (refused.status, refused.json()["error"]["code"]) == (429, "insufficient_quota")
    assert refused.headers["x-should-retry"] == "false"
    assert 0 < int(refused.headers["retry-after"]) <= 86_400

    def stored() -> bool:
        rows = a.call("GET", "/api/usage?by=key").json()
        return any(row["key_name"] == "daily" and row["tokens_out"] for row in rows)

    wait_until(stored, what="the usage is in the store")
    for name in ("a", "b"):
        cluster.frontends[name].kill()
    for name in ("a", "b"):
        cluster.start_frontend(name, CORRAL_MODEL_LOAD_WAIT="60s")
    for admin in (a, b):
        wait_until(lambda admin=admin: ask(admin, ADMIN_KEY).status == 200, what="it serves again")  # type: ignore[misc]
        assert ask(admin, key).json()["limit"] | {"resets_in_s": 0} == {
            "name": "tokens_per_day", "limit": 25, "used": 14, "remaining": 11, "resets_in_s": 0,
        }  # fmt: skip
    keys(cluster, "edit", "daily", "--daily-tokens", "none")
    wait_until(lambda: ask(b, key).status == 200, what="the budget is gone")


def test_an_expired_key_stops_working_on_both_frontends(cluster: Cluster) -> None:
    key = create(cluster, "short", "--expires", "1h")
    assert "valid until" in keys(cluster, "list")
    keys(cluster, "edit", "short", "--expires", "2s")
    with promised("the end of an expired key", within_s=7):
        for name in ("a", "b"):
            url = f"{cluster.admin(name).url}/v1/models"
            wait_until(lambda url=url: call("GET", url, key=key).status == 401, what=f"dead on {name}")  # type: ignore[misc]
    assert "expired" in keys(cluster, "list")
    keys(cluster, "edit", "short", "--expires", "never")
    wait_until(lambda: call("GET", url, key=key).status == 200, what="it is valid again")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(("create", "--name", "bad", "--rpm", "0"), "above 0", id="a-limit-of-zero"),
        pytest.param(("create", "--name", "bad", "--rpm", "many"), "above 0", id="no-number"),
        pytest.param(("create", "--name", "bad", "--expires", "soon"), "neither an age", id="no-time"),
        pytest.param(("create", "--name", "bad", "--expires", "2001-01-01"), "in the future", id="a-past-date"),
        pytest.param(("edit", "nobody", "--rpm", "1"), "no active key 'nobody'", id="an-unknown-key"),
        pytest.param(("edit", "rpm"), "at least one change", id="nothing-to-change"),
        pytest.param(("usage", "nobody"), "no key 'nobody'", id="usage-of-an-unknown-key"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(cluster: Cluster, words: tuple[str, ...], message: str) -> None:
    environment = clean_environment(CORRAL_URL=cluster.admin("a").url, CORRAL_API_KEY=ADMIN_KEY)
    done = run_cli("keys", *words, environment=environment)
    assert done.returncode in (1, 2)
    assert message in done.stderr


def test_the_api_refuses_limits_that_make_no_sense(cluster: Cluster) -> None:
    admin = cluster.admin("a")
    for limits in (
        {"requests_per_minute": -1},
        {"tokens_per_day": 10**16},
        {"priority": "highest"},
        {"tokens_per_day": "x"},
    ):
        assert admin.call("POST", "/api/keys", body={"name": "bad", "limits": limits}).status in (400, 422), limits
