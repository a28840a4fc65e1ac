"""The small request that a new revision must answer before it replaces the one that serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corral.core.models.config import ModelConfig

WORD = "Hello"
REASON_MOST_CHARS = 300


@dataclass(frozen=True, slots=True)
class ProofRequest:
    path: str
    body: Mapping[str, Any]


def plan_proof(config: ModelConfig) -> ProofRequest | None:
    """None for models whose requests are not small, such as images and speech: their load is the proof."""
    uses = {use.lower().removeprefix("flag_") for use in config.known_usecases}
    if config.reranking or "rerank" in uses:
        return ProofRequest("/v1/rerank", {"model": config.name, "query": WORD, "documents": [WORD]})
    if config.embeddings or uses == {"embeddings"}:
        return ProofRequest("/v1/embeddings", {"model": config.name, "input": WORD})
    if "chat" in uses or not uses:
        messages = [{"role": "user", "content": WORD}]
        return ProofRequest("/v1/chat/completions", {"model": config.name, "messages": messages, "max_tokens": 1})
    if "completion" in uses:
        return ProofRequest("/v1/completions", {"model": config.name, "prompt": WORD, "max_tokens": 1})
    return None


@dataclass(frozen=True, slots=True)
class Proven:
    """The process serves. A request that its kind does not have is an answer too."""


@dataclass(frozen=True, slots=True)
class Busy:
    reason: str


@dataclass(frozen=True, slots=True)
class Unproven:
    reason: str


ProofVerdict = Proven | Busy | Unproven


def judge_status(status: int, text: str) -> ProofVerdict:
    """Judges an HTTP answer. Only an error of the server counts against the revision: the request may not suit it."""
    said = f"status {status}: {' '.join(text.split())[:REASON_MOST_CHARS]}".removesuffix(": ")
    if status in (429, 503):
        return Busy(said)
    if status in (401, 403) or (status >= 500 and status != 501):
        return Unproven(said)
    return Proven()


def judge_error(text: str) -> ProofVerdict:
    """Judges the error text of a gRPC backend. LocalAI's own backends report a call they do not have as a failure."""
    if "unimplemented" in text.lower() or "not implemented" in text.lower():
        return Proven()
    return Unproven(text[:REASON_MOST_CHARS])
