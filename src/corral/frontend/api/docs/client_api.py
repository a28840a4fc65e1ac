"""The client APIs as an OpenAPI document.

The gateway relays fields that it does not know, so only those are described that every engine has or that Corral reads.
The full reference of each API is its vendor's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral import __version__

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "number"}
_INTEGER: dict[str, Any] = {"type": "integer"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_OBJECTS: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
_ANY: dict[str, Any] = {}
_FILE: dict[str, Any] = {"type": "string", "format": "binary"}
_TEXTS: dict[str, Any] = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_SAMPLING = {"stream": _FLAG, "temperature": _NUMBER, "top_p": _NUMBER}
_CHAT = {**_SAMPLING, "tools": _OBJECTS, "tool_choice": _ANY, "max_tokens": _INTEGER}
_OLLAMA = {"stream": _FLAG, "format": _ANY, "options": {"type": "object"}, "keep_alive": _ANY, "think": _ANY}
JSON, FORM, EVENTS, LINES = "application/json", "multipart/form-data", "text/event-stream", "application/x-ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCall:
    api: str
    path: str
    summary: str
    method: str = "post"
    required: Mapping[str, Any] = field(default_factory=dict)
    optional: Mapping[str, Any] = field(default_factory=dict)
    body: str = JSON
    streamed_as: str = ""
    """The content type of a streamed answer; empty where there is none."""
    answers: str = JSON


_M = {"model": _TEXT}
_OPENAI = (
    ClientCall(api="OpenAI", path="/v1/models", method="get", summary="List the models that the key may use"),
    ClientCall(api="OpenAI", path="/v1/models/{model}", method="get", summary="Show one model"),
    ClientCall(
        api="OpenAI",
        path="/v1/chat/completions",
        summary="Answer a conversation",
        streamed_as=EVENTS,
        required={**_M, "messages": _OBJECTS},
        optional={**_CHAT, "response_format": {"type": "object"}, "seed": _INTEGER, "stop": _TEXTS},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/completions",
        summary="Continue a text",
        required={**_M, "prompt": _TEXTS},
        optional={**_SAMPLING, "max_tokens": _INTEGER, "stop": _TEXTS},
        streamed_as=EVENTS,
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/responses",
        summary="Answer with events and items; translated for engines without it",
        required={**_M, "input": _ANY},
        streamed_as=EVENTS,
        optional={
            **_SAMPLING,
            "instructions": _TEXT,
            "tools": _OBJECTS,
            "text": {"type": "object"},
            "max_output_tokens": _INTEGER,
            "previous_response_id": _TEXT,
        },
    ),
    ClientCall(
        api="OpenAI", path="/v1/responses/{response_id}", method="get", summary="Read a response that the engine stored"
    ),
    ClientCall(api="OpenAI", path="/v1/responses/{response_id}", method="delete", summary="Delete a stored response"),
    ClientCall(api="OpenAI", path="/v1/responses/{response_id}/cancel", summary="Cancel a stored response"),
    ClientCall(
        api="OpenAI",
        path="/v1/responses/{response_id}/input_items",
        method="get",
        summary="List the input of a stored response",
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/embeddings",
        summary="Embed texts",
        required={**_M, "input": _TEXTS},
        optional={"encoding_format": _TEXT, "dimensions": _INTEGER},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/rerank",
        summary="Order documents by relevance",
        required={**_M, "query": _TEXT, "documents": {"type": "array", "items": _ANY}},
        optional={"top_n": _INTEGER},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/score",
        summary="Score pairs of texts, where the backend does",
        required={**_M, "text_1": _TEXTS, "text_2": _TEXTS},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/moderations",
        summary="Classify texts, where the backend does",
        required={**_M, "input": _ANY},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/audio/transcriptions",
        summary="Write down speech",
        body=FORM,
        streamed_as=EVENTS,
        required={**_M, "file": _FILE},
        optional={"language": _TEXT, "response_format": _TEXT},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/audio/translations",
        summary="Translate speech into English text",
        body=FORM,
        required={**_M, "file": _FILE},
        optional={"prompt": _TEXT, "response_format": _TEXT},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/audio/speech",
        summary="Speak a text",
        answers="audio/*",
        required={**_M, "input": _TEXT},
        optional={"voice": _TEXT, "response_format": _TEXT, "speed": _NUMBER},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/images/generations",
        summary="Draw an image",
        required={**_M, "prompt": _TEXT},
        optional={"n": _INTEGER, "size": _TEXT, "response_format": _TEXT},
    ),
    ClientCall(
        api="OpenAI",
        path="/v1/images/edits",
        summary="Change an image, where the backend does",
        body=FORM,
        required={**_M, "image": _FILE, "prompt": _TEXT},
        optional={"mask": _FILE, "n": _INTEGER, "size": _TEXT},
    ),
)
_ANTHROPIC = (
    ClientCall(
        api="Anthropic",
        path="/v1/messages",
        summary="Answer a conversation",
        streamed_as=EVENTS,
        required={**_M, "messages": _OBJECTS, "max_tokens": _INTEGER},
        optional={
            **_SAMPLING,
            "system": _ANY,
            "tools": _OBJECTS,
            "tool_choice": _ANY,
            "thinking": {"type": "object"},
            "stop_sequences": {"type": "array", "items": _TEXT},
        },
    ),
    ClientCall(
        api="Anthropic",
        path="/v1/messages/count_tokens",
        summary="Count the tokens of a request",
        required={**_M, "messages": _OBJECTS},
        optional={"system": _ANY, "tools": _OBJECTS},
    ),
)
_OLLAMA_CALLS = (
    ClientCall(
        api="Ollama",
        path="/api/chat",
        summary="Answer a conversation; streams unless `stream` is false",
        required=_M,
        optional={"messages": _OBJECTS, "tools": _OBJECTS, **_OLLAMA},
        streamed_as=LINES,
    ),
    ClientCall(
        api="Ollama",
        path="/api/generate",
        summary="Answer a prompt; streams unless `stream` is false",
        required=_M,
        optional={"prompt": _TEXT, "system": _TEXT, "images": {"type": "array", "items": _TEXT}, **_OLLAMA},
        streamed_as=LINES,
    ),
    ClientCall(api="Ollama", path="/api/embed", summary="Embed texts", required={**_M, "input": _TEXTS}),
    ClientCall(api="Ollama", path="/api/embeddings", summary="Embed one text", required={**_M, "prompt": _TEXT}),
    ClientCall(api="Ollama", path="/api/tags", method="get", summary="List the models that the key may use"),
    ClientCall(api="Ollama", path="/api/ps", method="get", summary="List the models that are loaded"),
    ClientCall(api="Ollama", path="/api/show", summary="Show one model", required=_M),
    ClientCall(api="Ollama", path="/api/version", method="get", summary="Show the version of Ollama's API"),
    ClientCall(
        api="Ollama",
        path="/api/pull",
        summary="Add a model from a gallery and load it (admin keys)",
        required=_M,
        optional={"stream": _FLAG},
        streamed_as=LINES,
    ),
    ClientCall(api="Ollama", path="/api/delete", method="delete", summary="Delete a model (admin keys)", required=_M),
)
CALLS: tuple[ClientCall, ...] = (*_OPENAI, *_ANTHROPIC, *_OLLAMA_CALLS)


def client_openapi() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method] = _operation(call)
    schemes = {
        "key": {"type": "http", "scheme": "bearer"},
        "anthropicKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Corral's client APIs", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": schemes},
        "security": [{name: []} for name in schemes],
    }


def _operation(call: ClientCall) -> dict[str, Any]:
    content: dict[str, Any] = {call.answers: {}}
    if call.streamed_as:
        content[call.streamed_as] = {}
    operation: dict[str, Any] = {
        "tags": [call.api],
        "summary": call.summary,
        "operationId": f"{call.method}{call.path}".replace("/", "_").replace("{", "").replace("}", ""),
        "responses": {
            "200": {"description": "The answer", "content": content},
            "4XX": {"description": "The request is rejected, with an error in the API's own form"},
            "503": {"description": "The model is being loaded, or no replica can answer; see `Retry-After`"},
        },
    }
    names = [part.strip("{}") for part in call.path.split("/") if part.startswith("{")]
    if names:
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names]
    if call.required:
        schema = {"type": "object", "required": [*call.required], "properties": {**call.required, **call.optional}}
        operation["requestBody"] = {"required": True, "content": {call.body: {"schema": schema}}}
    return operation
