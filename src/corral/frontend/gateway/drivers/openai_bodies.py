"""The request bodies of OpenAI's API, as far as drivers need them. Other fields are ignored."""

from typing import Any, TypeVar

import msgspec

from corral.core.errors import InvalidInput
from corral.system.json import decode_json


class RequestBody(msgspec.Struct, frozen=True):
    model: str = ""


class ImageUrl(msgspec.Struct, frozen=True):
    url: str


class InputAudio(msgspec.Struct, frozen=True):
    data: str
    format: str = ""


class Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    image_url: ImageUrl | str | None = None
    input_audio: InputAudio | None = None
    video_url: ImageUrl | str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None
    reasoning_content: str | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class JsonSchema(msgspec.Struct, frozen=True):
    schema: Any = True


class ResponseFormat(msgspec.Struct, frozen=True):
    type: str = "text"
    json_schema: JsonSchema | None = None


class Sampling(RequestBody, frozen=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    repeat_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool | None = None
    grammar: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    metadata: dict[str, Any] | None = None


class ChatRequest(Sampling, frozen=True):
    messages: list[ChatMessage] = []
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    functions: list[dict[str, Any]] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(Sampling, frozen=True):
    prompt: str | list[str] = ""
    echo: bool | None = None
    logprobs: int | None = None


class EmbeddingRequest(RequestBody, frozen=True):
    input: str | list[Any] = ""
    encoding_format: str = "float"
    dimensions: int | None = None


class Document(msgspec.Struct, frozen=True):
    text: str


class RerankRequest(RequestBody, frozen=True):
    query: str = ""
    documents: list[str | Document] = []
    top_n: int | None = None
    return_documents: bool = True


class SpeechRequest(RequestBody, frozen=True):
    input: str = ""
    voice: str = ""
    response_format: str = ""
    language: str = ""
    instructions: str = ""
    stream: bool = False
    """A LocalAI extension: audio is sent as it is generated."""


class ImageRequest(RequestBody, frozen=True):
    prompt: str = ""
    n: int | None = None
    size: str = ""
    response_format: str = ""
    seed: int | None = None
    step: int | None = None
    negative_prompt: str = ""


Body = TypeVar("Body", bound=RequestBody)


def decode_body(kind: type[Body], body: bytes) -> Body:
    try:
        return decode_json(body, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid request: {error}") from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the request body is not valid JSON: {error}") from None
