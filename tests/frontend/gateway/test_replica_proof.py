"""The small request to a replica that gets no others yet, against a real server."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from corral.core.models.config import ModelConfig, parse_model_config
from corral.core.models.golden_prompts import GoldenPromptFailed
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.routing import OPENAI
from corral.frontend.gateway.replica_proof import NotProven, ReplicaProof
from corral.system import SystemClock, SystemIds
from corral.system.http_call import http_call
from harness.openai_upstream import OpenAiUpstream
from harness.ports import free_port

TOKEN = "of the process"


@pytest.fixture
def upstream() -> Iterator[OpenAiUpstream]:
    running = OpenAiUpstream(token=TOKEN)
    yield running
    running.stop()


def replica(address: str) -> Replica:
    return Replica(
        id="r", node_id="n", model="tiny", slot=0, revision="x", state=ReplicaState.LOADING,
        address=address, protocol=OPENAI, token=TOKEN,
    )  # fmt: skip


def config(**fields: object) -> ModelConfig:
    return parse_model_config({"name": "tiny", "backend": "x", **fields})


def proof(within_s: float = 20) -> ReplicaProof:
    return ReplicaProof(http_call, shared_token="", clock=SystemClock(), ids=SystemIds(), within_s=within_s)


@pytest.mark.parametrize(
    ("fields", "path"),
    [({}, "/v1/chat/completions"), ({"embeddings": True}, "/v1/embeddings")],
    ids=["chat", "embeddings"],
)
async def test_a_replica_that_answers_is_proven(upstream: OpenAiUpstream, fields: dict[str, object], path: str) -> None:
    await proof().prove(config(**fields), replica(upstream.address))
    assert [asked for asked, _ in upstream.requests] == [path]


async def test_a_replica_that_is_busy_is_asked_again(upstream: OpenAiUpstream) -> None:
    upstream.loading = 1
    await proof().prove(config(), replica(upstream.address))
    assert len(upstream.requests) == 2


async def test_a_model_without_a_small_request_is_not_asked(upstream: OpenAiUpstream) -> None:
    await proof().prove(config(known_usecases=["image"]), replica(upstream.address))
    assert upstream.requests == []


async def test_a_process_that_rejects_its_token_or_is_gone_is_not_proven(upstream: OpenAiUpstream) -> None:
    with pytest.raises(NotProven, match="status 401"):
        await proof().prove(config(), replace(replica(upstream.address), token="another"))
    with pytest.raises(NotProven, match="did not answer a small request"):
        await proof().prove(config(), replica(f"127.0.0.1:{free_port()}"))


async def test_golden_prompts_are_compared_with_the_answers(upstream: OpenAiUpstream) -> None:
    """The server repeats what it was told."""
    good = [
        {"prompt": "one two", "expect": "you said one two"},
        {"prompt": "three four", "contains": "four", "max_tokens": 5},
    ]
    assert await proof().run(config(golden_prompts=good), replica(upstream.address)) == 2
    sent = upstream.requests[-1][1]
    assert (sent["temperature"], sent["max_tokens"]) == (0, 5)
    await proof().prove(config(golden_prompts=good), replica(upstream.address))
    wrong = config(golden_prompts=[*good, {"prompt": "five", "expect": "six"}])
    with pytest.raises(GoldenPromptFailed, match=r"golden prompt 3 of 3 .* expected 'six', got 'you said five'"):
        await proof().prove(wrong, replica(upstream.address))


async def test_a_replica_that_is_gone_fails_no_golden_prompt(upstream: OpenAiUpstream) -> None:
    asked = config(golden_prompts=[{"prompt": "x", "matches": "^[0-9]+$"}])
    with pytest.raises(NotProven, match="did not answer a golden prompt"):
        await proof().run(asked, replica(f"127.0.0.1:{free_port()}"))
    with pytest.raises(GoldenPromptFailed, match="status 401"):
        await proof().run(asked, replace(replica(upstream.address), token="another"))
