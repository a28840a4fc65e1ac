"""Embeddings and reranking with a LocalAI backend."""

import base64
import struct
from typing import Any

from corral.core.errors import InvalidInput
from corral.formats.localai_proto import EMBEDDING_RESULT, PREDICT_OPTIONS, RERANK_REQUEST, RERANK_RESULT
from corral.frontend.gateway.drivers.call import BackendCall
from corral.frontend.gateway.drivers.openai_bodies import EmbeddingRequest, RerankRequest, decode_body
from corral.system.grpc_channel import BackendFailed

INPUTS_MAX = 2048
PER_TOKEN = 2


async def embed(call: BackendCall) -> None:
    request = decode_body(EmbeddingRequest, call.request.body)
    if request.encoding_format not in ("float", "base64"):
        raise InvalidInput(f"encoding_format must be float or base64, not {request.encoding_format[:40]!r}")
    inputs = _inputs(request.input)
    data = []
    prompt_tokens = 0
    for index, fields in enumerate(inputs):
        fields = {**fields, "ModelIdentity": call.config.model}
        result = await call.unary("Embedding", PREDICT_OPTIONS, fields, EMBEDDING_RESULT)
        vector = _vector(result, request.dimensions)
        prompt_tokens += result.get("prompt_tokens", 0)
        shown = vector if request.encoding_format == "float" else _base64(vector)
        data.append({"object": "embedding", "index": index, "embedding": shown})
    call.send.count_tokens(prompt=prompt_tokens, completion=0)
    usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
    await call.answer({"object": "list", "model": call.named(request.model), "data": data, "usage": usage})


def _inputs(given: str | list[Any]) -> list[dict[str, Any]]:
    """Accepts a text, texts, token numbers, or lists of token numbers."""
    if isinstance(given, str) or (given and all(_is_number(item) for item in given)):
        given = [given]
    if not given:
        raise InvalidInput("input must not be empty")
    if len(given) > INPUTS_MAX:
        raise InvalidInput(f"input may contain at most {INPUTS_MAX} items")
    fields: list[dict[str, Any]] = []
    for item in given:
        if isinstance(item, str) and item:
            fields.append({"Embeddings": item})
        elif isinstance(item, list) and item and all(_is_number(token) for token in item):
            fields.append({"EmbeddingTokens": item})
        else:
            raise InvalidInput("input must contain non-empty strings or lists of token numbers")
    return fields


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _vector(result: dict[str, Any], dimensions: int | None) -> list[float]:
    vector: list[float] = result.get("embeddings") or []
    if not vector:
        raise BackendFailed("the backend returned no embedding")
    if result.get("layout") == PER_TOKEN and result.get("tokens", 0) > 1:
        raise BackendFailed(
            "the backend returns an embedding for each token; set a pooling option in the model's configuration"
        )
    if dimensions is not None and dimensions != len(vector):
        raise InvalidInput(f"the model's embeddings have {len(vector)} dimensions, not {dimensions}")
    return vector


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


async def rerank(call: BackendCall) -> None:
    request = decode_body(RerankRequest, call.request.body)
    texts = [item if isinstance(item, str) else item.text for item in request.documents]
    if not request.query or not texts:
        raise InvalidInput("query and documents must not be empty")
    if request.top_n is not None and request.top_n < 1:
        raise InvalidInput("top_n must be at least 1")
    fields = {
        "query": request.query,
        "documents": texts,
        "top_n": request.top_n or len(texts),
        "ModelIdentity": call.config.model,
    }
    reply = await call.unary("Rerank", RERANK_REQUEST, fields, RERANK_RESULT)
    results = [_ranked(item, texts, with_text=request.return_documents) for item in reply.get("results") or []]
    used = reply.get("usage") or {}
    prompt = used.get("prompt_tokens", 0)
    call.send.count_tokens(prompt=prompt, completion=0)
    usage = {"prompt_tokens": prompt, "total_tokens": used.get("total_tokens", prompt)}
    await call.answer({"model": call.named(request.model), "usage": usage, "results": results})


def _ranked(item: dict[str, Any], texts: list[str], *, with_text: bool) -> dict[str, Any]:
    index = item.get("index", 0)
    if not 0 <= index < len(texts):
        raise BackendFailed("the backend ranked a document that is not in the request")
    found: dict[str, Any] = {"index": index, "relevance_score": item.get("relevance_score", 0.0)}
    if with_text:
        found["document"] = {"text": item.get("text") or texts[index]}
    return found
