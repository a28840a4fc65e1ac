"""Options of a prediction for a LocalAI backend: from the request, then the model's configuration, then LocalAI's
defaults. On the wire an absent value looks like zero, so defaults are always sent."""

import json
from collections.abc import Mapping
from typing import Any

from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig
from corral.core.models.localai_options import with_texts
from corral.formats.json_grammar import ANY_OBJECT, BadSchema, schema_grammar
from corral.formats.localai_proto import PREDICT_OPTIONS
from corral.frontend.gateway.drivers.openai_bodies import ChatRequest, CompletionRequest, Sampling

DEFAULTS: Mapping[str, float] = {
    "temperature": 0.9,
    "top_p": 0.95,
    "top_k": 40,
    "typical_p": 1.0,
    "tfz": 1.0,
    "mirostat_eta": 0.1,
    "mirostat_tau": 5.0,
    "batch": 512,
}
"""The same defaults as in LocalAI's configuration loader."""

FROM_PARAMETERS: Mapping[str, str] = {
    "temperature": "Temperature",
    "top_p": "TopP",
    "top_k": "TopK",
    "min_p": "MinP",
    "typical_p": "TypicalP",
    "tfz": "TailFreeSamplingZ",
    "max_tokens": "Tokens",
    "repeat_penalty": "Penalty",
    "repeat_last_n": "Repeat",
    "frequency_penalty": "FrequencyPenalty",
    "presence_penalty": "PresencePenalty",
    "mirostat": "Mirostat",
    "mirostat_eta": "MirostatETA",
    "mirostat_tau": "MirostatTAU",
    "n_keep": "NKeep",
    "batch": "Batch",
    "ignore_eos": "IgnoreEOS",
    "negative_prompt": "NegativePrompt",
    "negative_prompt_scale": "NegativePromptScale",
    "rope_freq_base": "RopeFreqBase",
    "rope_freq_scale": "RopeFreqScale",
    "n_draft": "NDraft",
}
FROM_CONFIG: Mapping[str, str] = {
    "threads": "Threads",
    "f16": "F16KV",
    "mmlock": "MLock",
    "mmap": "MMap",
    "main_gpu": "MainGPU",
    "tensor_split": "TensorSplit",
    "prompt_cache_all": "PromptCacheAll",
    "prompt_cache_ro": "PromptCacheRO",
}
STOPS_MAX = 64


def sampling_options(config: ModelConfig, request: Sampling, *, draw: float) -> dict[str, Any]:
    """`draw` in 0..1: gives the seed if neither the request nor the configuration has one."""
    values = {**DEFAULTS, **config.parameters}
    for name in FROM_PARAMETERS:
        given = getattr(request, name, None)
        if given is not None:
            values[name] = given
    if isinstance(request, ChatRequest) and request.max_completion_tokens is not None:
        values["max_tokens"] = request.max_completion_tokens
    if (values.get("max_tokens") or 0) < 0:
        raise InvalidInput("max_tokens must not be negative")
    fields = {wire: values[name] for name, wire in FROM_PARAMETERS.items() if values.get(name) is not None}
    fields |= {wire: value for name, wire in FROM_CONFIG.items() if (value := config.document.get(name)) is not None}
    seed = request.seed if request.seed is not None else config.parameters.get("seed")
    fields["Seed"] = int(draw * 0x7FFFFFFF) if seed is None or seed == -1 else seed
    fields["StopPrompts"] = _stops(config, request)
    bias = config.parameters.get("logit_bias") if request.logit_bias is None else request.logit_bias
    if bias:
        fields["LogitBias"] = json.dumps(bias)
    if request.grammar:
        fields["Grammar"] = request.grammar
    fields["ModelIdentity"] = config.model
    return with_texts(PREDICT_OPTIONS, fields)


def _stops(config: ModelConfig, request: Sampling) -> list[str]:
    requested = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if len(requested) > STOPS_MAX:
        raise InvalidInput(f"stop may contain at most {STOPS_MAX} strings")
    return [*config.stopwords, *(text for text in requested if text)]


def chat_options(config: ModelConfig, request: ChatRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {"Metadata": _metadata(config, request)}
    if request.logprobs:
        fields["Logprobs"] = 1
        fields["TopLogprobs"] = request.top_logprobs or 0
    match request.response_format:
        case None:
            pass
        case requested if requested.type == "text":
            pass
        case requested if requested.type == "json_object":
            fields["Grammar"] = ANY_OBJECT
        case requested if requested.type == "json_schema" and requested.json_schema is not None:
            try:
                fields["Grammar"] = schema_grammar(requested.json_schema.schema)
            except BadSchema as error:
                raise InvalidInput(f"response_format.json_schema: {error}") from error
        case requested:
            raise InvalidInput(
                f"this backend does not support response_format {requested.type[:40]!r};"
                " use `json_object`, or `json_schema` with a json_schema"
            )
    return fields


def completion_options(request: CompletionRequest) -> dict[str, Any]:
    if request.logprobs is None:
        return {}
    return {"Logprobs": 1, "TopLogprobs": max(0, request.logprobs)}


def _metadata(config: ModelConfig, request: ChatRequest) -> dict[str, str]:
    metadata = {str(key): _text_of(value) for key, value in (request.metadata or {}).items()}
    reasoning = config.document.get("reasoning") or {}
    if isinstance(reasoning.get("disable"), bool):
        metadata["enable_thinking"] = _text_of(not reasoning["disable"])
    effort = request.reasoning_effort or config.document.get("reasoning_effort")
    if effort:
        metadata["reasoning_effort"] = str(effort)
    options = {**(config.document.get("chat_template_kwargs") or {}), **(request.chat_template_kwargs or {})}
    if isinstance(options.get("enable_thinking"), bool):
        metadata["enable_thinking"] = _text_of(options["enable_thinking"])
    if options:
        metadata["chat_template_kwargs"] = json.dumps(options, ensure_ascii=False)
    return metadata


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
