"""Chat and text completion with a LocalAI backend."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from corral.core.errors import InvalidInput
from corral.formats.localai_proto import PREDICT_OPTIONS, REPLY
from corral.frontend.gateway.drivers.call import MEDIA_MARK, BackendCall
from corral.frontend.gateway.drivers.openai_bodies import ChatRequest, CompletionRequest, Sampling, decode_body
from corral.frontend.gateway.drivers.predict_options import chat_options, completion_options, sampling_options
from corral.frontend.gateway.drivers.prompts import chat_prompt, completion_prompt
from corral.frontend.gateway.drivers.replies import (
    Delta,
    ReplyReader,
    Tokens,
    finetune,
    finish_reason,
    merge_calls,
)
from corral.frontend.gateway.drivers.tool_calls import find_tool_calls

CHOICES_MAX = 8


async def chat(call: BackendCall) -> None:
    request = decode_body(ChatRequest, call.request.body)
    options = {
        **sampling_options(call.config, request, draw=call.draw()),
        **chat_options(call.config, request),
        **chat_prompt(call.config, request),
        "CorrelationId": call.make_id(),
    }
    if MEDIA_MARK in options.get("Prompt", ""):
        options["Prompt"] = options["Prompt"].replace(MEDIA_MARK, await call.media_mark())
    if request.stream:
        await _stream_chat(call, request, options)
        return
    tokens = Tokens()
    choices = []
    for index in range(_count(request)):
        choice, used = await _one_chat(call, request, options)
        choices.append({"index": index, **choice})
        tokens.prompt = max(tokens.prompt, used.prompt)
        tokens.completion += used.completion
        options["Seed"] = int(call.draw() * 0x7FFFFFFF) if request.seed is None else options["Seed"]
    call.send.count_tokens(prompt=tokens.prompt, completion=tokens.completion)
    head = _head(call, request, "chatcmpl", "chat.completion")
    await call.answer({**head, "choices": choices, "usage": tokens.usage()})


def _count(request: Sampling) -> int:
    count = 1 if request.n is None else request.n
    if not 1 <= count <= CHOICES_MAX:
        raise InvalidInput(f"n must be between 1 and {CHOICES_MAX}")
    if count > 1 and request.stream:
        raise InvalidInput("n must be 1 in a stream from this backend")
    return count


def _head(call: BackendCall, request: Sampling, prefix: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{call.make_id()}",
        "object": kind,
        "created": call.now_s,
        "model": call.named(request.model),
    }


async def _one_chat(call: BackendCall, request: ChatRequest, options: dict[str, Any]) -> tuple[dict[str, Any], Tokens]:
    reader = ReplyReader()
    delta = reader.read(await call.unary("Predict", PREDICT_OPTIONS, options, REPLY), last=True)
    calls = merge_calls(delta.tool_calls)
    content = finetune(call.config, delta.content)
    if not calls and _may_hide_calls(request, options):
        found = find_tool_calls(call.config, content)
        content, calls = found.content, found.calls
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
    if delta.reasoning:
        message["reasoning_content"] = delta.reasoning
    if calls:
        message["tool_calls"] = calls
    reason = finish_reason(called=bool(calls), tokens=reader.tokens, max_tokens=options.get("Tokens", 0))
    choice = {"message": message, "finish_reason": reason}
    if request.logprobs:
        choice["logprobs"] = delta.logprobs
    return choice, reader.tokens


def _may_hide_calls(request: ChatRequest, options: dict[str, Any]) -> bool:
    """With a prompt rendered here, a model writes tool calls in its own form, which the backend does not parse."""
    return bool(request.tools or request.functions) and not options.get("UseTokenizerTemplate")


async def _collect_answer(
    call: BackendCall, deltas: AsyncGenerator[Delta, None], reader: ReplyReader
) -> AsyncGenerator[Delta, None]:
    """Sends the answer in one piece: a tool call is recognised only after the last token."""
    parts = [delta async for delta in deltas]
    whole = Delta(
        reasoning="".join(delta.reasoning for delta in parts),
        tool_calls=[piece for delta in parts for piece in delta.tool_calls],
    )
    found = find_tool_calls(call.config, finetune(call.config, "".join(delta.content for delta in parts)))
    whole.content = found.content
    if not whole.tool_calls:
        whole.tool_calls = [{"index": index, **item} for index, item in enumerate(found.calls)]
        reader.called = reader.called or bool(found.calls)
    yield whole


async def _stream_chat(call: BackendCall, request: ChatRequest, options: dict[str, Any]) -> None:
    _count(request)
    head = _head(call, request, "chatcmpl", "chat.completion.chunk")
    reader = ReplyReader()
    try:
        started = False
        async with aclosing(_deltas(call, reader, options)) as plain:
            deltas = _collect_answer(call, plain, reader) if _may_hide_calls(request, options) else plain
            async for delta in deltas:
                if not started:
                    started = True
                    call.start_stream()
                    await call.send_event({**head, "choices": [_choice({"role": "assistant", "content": ""})]})
                if not delta.empty:
                    await call.send_event({**head, "choices": [_choice(delta.as_message(), delta, request.logprobs)]})
        reason = finish_reason(called=reader.called, tokens=reader.tokens, max_tokens=options.get("Tokens", 0))
        await call.send_event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        await _send_usage(call, request, head, reader.tokens)
        await call.end_stream()
    finally:
        call.send.count_tokens(prompt=reader.tokens.prompt, completion=reader.tokens.completion)


def _choice(message: dict[str, Any], delta: Delta | None = None, logprobs: bool | None = None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": message, "finish_reason": None}
    if logprobs and delta is not None:
        choice["logprobs"] = delta.logprobs
    return choice


async def _deltas(call: BackendCall, reader: ReplyReader, options: dict[str, Any]) -> AsyncGenerator[Delta, None]:
    """One delta for each reply, and at least one even for an empty answer."""
    async with aclosing(call.follow("PredictStream", PREDICT_OPTIONS, options, REPLY)) as replies:
        async for reply in replies:
            yield reader.read(reply)
    yield Delta(content=reader.end())


async def _send_usage(call: BackendCall, request: Sampling, head: dict[str, Any], tokens: Tokens) -> None:
    if request.stream_options is not None and request.stream_options.include_usage:
        await call.send_event({**head, "choices": [], "usage": tokens.usage()})


async def complete(call: BackendCall) -> None:
    request = decode_body(CompletionRequest, call.request.body)
    prompts = [request.prompt] if isinstance(request.prompt, str) else request.prompt
    if not prompts:
        raise InvalidInput("prompt must not be empty")
    options = {
        **sampling_options(call.config, request, draw=call.draw()),
        **completion_options(request),
        "CorrelationId": call.make_id(),
    }
    if request.stream:
        if len(prompts) > 1:
            raise InvalidInput("a stream from this backend supports only one prompt")
        await _stream_completion(call, request, options, prompts[0])
        return
    tokens = Tokens()
    choices: list[dict[str, Any]] = []
    for prompt in prompts:
        for _ in range(_count(request)):
            reader = ReplyReader()
            fields = {**options, "Prompt": completion_prompt(call.config, prompt)}
            delta = reader.read(await call.unary("Predict", PREDICT_OPTIONS, fields, REPLY), last=True)
            text = finetune(call.config, delta.content)
            reason = finish_reason(called=False, tokens=reader.tokens, max_tokens=options.get("Tokens", 0))
            text = prompt + text if request.echo else text
            choices.append({"index": len(choices), "text": text, "logprobs": delta.logprobs, "finish_reason": reason})
            tokens.prompt += reader.tokens.prompt
            tokens.completion += reader.tokens.completion
    call.send.count_tokens(prompt=tokens.prompt, completion=tokens.completion)
    head = _head(call, request, "cmpl", "text_completion")
    await call.answer({**head, "choices": choices, "usage": tokens.usage()})


async def _stream_completion(
    call: BackendCall, request: CompletionRequest, options: dict[str, Any], prompt: str
) -> None:
    _count(request)
    head = _head(call, request, "cmpl", "text_completion")
    reader = ReplyReader()
    fields = {**options, "Prompt": completion_prompt(call.config, prompt)}
    try:
        started = False
        async with aclosing(_deltas(call, reader, fields)) as deltas:
            async for delta in deltas:
                if not started:
                    started = True
                    call.start_stream()
                    if request.echo:
                        await call.send_event({**head, "choices": [_text_choice(prompt)]})
                if delta.content:
                    await call.send_event({**head, "choices": [_text_choice(delta.content, delta.logprobs)]})
        reason = finish_reason(called=False, tokens=reader.tokens, max_tokens=options.get("Tokens", 0))
        await call.send_event({**head, "choices": [{**_text_choice(""), "finish_reason": reason}]})
        await _send_usage(call, request, head, reader.tokens)
        await call.end_stream()
    finally:
        call.send.count_tokens(prompt=reader.tokens.prompt, completion=reader.tokens.completion)


def _text_choice(text: str, logprobs: Any = None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": None}
