"""The small request that a new revision must answer, and which answers count against it."""

import pytest

from corral.core.models.config import parse_model_config
from corral.core.models.proof import Busy, ProofVerdict, Proven, Unproven, judge_error, judge_status, plan_proof
from corral.system.yaml import load_yaml


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        pytest.param("", "/v1/chat/completions", id="a model that does not say what it is for"),
        pytest.param("known_usecases: [chat, completion]", "/v1/chat/completions", id="chat"),
        pytest.param("known_usecases: [FLAG_CHAT]", "/v1/chat/completions", id="as LocalAI writes it"),
        pytest.param("known_usecases: [completion]", "/v1/completions", id="completion"),
        pytest.param("embeddings: true", "/v1/embeddings", id="embeddings by flag"),
        pytest.param("known_usecases: [embeddings]", "/v1/embeddings", id="embeddings by use"),
        pytest.param("known_usecases: [chat, embeddings]", "/v1/chat/completions", id="both"),
        pytest.param("reranking: true", "/v1/rerank", id="reranking"),
        pytest.param("known_usecases: [image]", None, id="an image is no small request"),
        pytest.param("known_usecases: [tts]", None, id="speech"),
        pytest.param("known_usecases: [transcript]", None, id="transcription"),
    ],
)
def test_each_kind_of_model_has_its_own_small_request(fields: str, path: str | None) -> None:
    request = plan_proof(parse_model_config(load_yaml(f"name: tiny\nbackend: x\n{fields}\n")))
    assert (request.path if request is not None else None) == path
    assert request is None or request.body["model"] == "tiny"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Proven()),
        (400, Proven()),
        (404, Proven()),
        (501, Proven()),
        (429, Busy("status 429: no slot")),
        (503, Busy("status 503: no slot")),
        (401, Unproven("status 401: no slot")),
        (500, Unproven("status 500: no slot")),
        (502, Unproven("status 502: no slot")),
    ],
)
def test_only_errors_of_the_process_count_against_it(status: int, verdict: ProofVerdict) -> None:
    assert judge_status(status, "no\n slot") == verdict


def test_a_call_that_a_backend_does_not_have_is_no_failure() -> None:
    assert judge_error("Predict: rpc error: unimplemented") == Proven()
    assert judge_error("Predict: Method not implemented!") == Proven()
    assert judge_error("Predict: out of memory") == Unproven("Predict: out of memory")
