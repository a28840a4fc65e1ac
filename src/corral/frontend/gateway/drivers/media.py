"""Transcription, speech and images with a LocalAI backend, which reads and writes files on its own node."""

import base64
import re
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import Any

from corral.core.errors import InvalidInput
from corral.formats.localai_proto import (
    GENERATE_IMAGE_REQUEST,
    REPLY,
    RESULT,
    TRANSCRIPT_REQUEST,
    TRANSCRIPT_RESULT,
    TRANSCRIPT_STREAM_RESPONSE,
    TTS_REQUEST,
)
from corral.frontend.gateway.drivers.call import BackendCall
from corral.frontend.gateway.drivers.forms import Form, read_form
from corral.frontend.gateway.drivers.openai_bodies import ImageRequest, SpeechRequest, decode_body
from corral.system.grpc_channel import BackendFailed

NS = 1_000_000_000
SIZE_MAX = 4096
IMAGES_MAX = 4
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")
_AUDIO_TYPES = {b"RIFF": "audio/wav", b"fLaC": "audio/flac", b"OggS": "audio/ogg", b"ID3\x03": "audio/mpeg"}
TRANSCRIPT_FORMATS = ("json", "text", "srt", "verbose_json", "vtt")


async def transcribe(call: BackendCall) -> None:
    form = read_form(call.request.body, call.request.content_type)
    audio = form.files.get("file")
    if audio is None or not audio.data:
        raise InvalidInput("the form has no audio in the field `file`")
    requested_format = form.text("response_format", "json")
    if requested_format not in TRANSCRIPT_FORMATS:
        raise InvalidInput(f"response_format must be one of {', '.join(TRANSCRIPT_FORMATS)}")
    suffix = PurePosixPath(audio.filename).suffix
    async with call.input_file(audio.data, suffix=suffix if _SUFFIX.fullmatch(suffix) else "") as path:
        await _transcribe_file(call, form, path, requested_format)


async def _transcribe_file(call: BackendCall, form: Form, path: str, requested_format: str) -> None:
    granularities = form.fields.get("timestamp_granularities[]", [])
    fields = {
        "dst": path,
        "language": form.text("language") or str(call.config.parameters.get("language") or ""),
        "translate": call.request.path.endswith("/translations") or form.text("translate") == "true",
        "prompt": form.text("prompt"),
        "temperature": _number(form, "temperature"),
        "timestamp_granularities": granularities,
        "threads": max(1, call.config.document.get("threads") or 1),
        "ModelIdentity": call.config.model,
    }
    if form.text("stream") == "true":
        await _stream_transcript(call, {**fields, "stream": True})
        return
    result = await call.unary("AudioTranscription", TRANSCRIPT_REQUEST, fields, TRANSCRIPT_RESULT)
    call.send.count_tokens(prompt=0, completion=sum(len(item.get("tokens", [])) for item in _segments(result)))
    if requested_format == "verbose_json":
        task = "translate" if fields["translate"] else "transcribe"
        await call.answer(_verbose(result, task=task, words="word" in granularities))
    else:
        await _send_transcript(call, result, requested_format)


async def _stream_transcript(call: BackendCall, fields: dict[str, Any]) -> None:
    """Sends OpenAI's events: each part of the transcript as it arrives, and the complete text at the end."""
    deltas: list[str] = []
    final: dict[str, Any] = {}
    replies = call.follow("AudioTranscriptionStream", TRANSCRIPT_REQUEST, fields, TRANSCRIPT_STREAM_RESPONSE)
    started = False
    async with aclosing(replies):
        async for reply in replies:
            if not started:
                started = True
                call.start_stream()
            final = reply.get("final_result") or final
            if reply.get("delta"):
                deltas.append(reply["delta"])
                await call.send_event({"type": "transcript.text.delta", "delta": reply["delta"]})
    if not started:
        call.start_stream()
    await call.send_event({"type": "transcript.text.done", "text": _text(final) or "".join(deltas)})
    await call.end_stream()


def _number(form: Form, name: str) -> float:
    try:
        return float(form.text(name, "0") or 0)
    except ValueError:
        raise InvalidInput(f"{name} must be a number") from None


def _segments(result: dict[str, Any]) -> list[dict[str, Any]]:
    return result.get("segments") or []


def _text(result: dict[str, Any]) -> str:
    return result.get("text") or "".join(item.get("text", "") for item in _segments(result)).strip()


async def _send_transcript(call: BackendCall, result: dict[str, Any], requested_format: str) -> None:
    match requested_format:
        case "text":
            await call.answer_bytes(_text(result).encode() + b"\n", "text/plain; charset=utf-8")
        case "srt" | "vtt":
            await call.answer_bytes(_subtitles(result, requested_format).encode(), "text/plain; charset=utf-8")
        case _:
            await call.answer({"text": _text(result)})


def _verbose(result: dict[str, Any], *, task: str, words: bool) -> dict[str, Any]:
    segments = [
        {
            "id": item.get("id", 0),
            "start": item.get("start", 0) / NS,
            "end": item.get("end", 0) / NS,
            "text": item.get("text", ""),
            "tokens": item.get("tokens", []),
            **({"speaker": item["speaker"]} if item.get("speaker") else {}),
        }
        for item in _segments(result)
    ]
    duration = result.get("duration") or (segments[-1]["end"] if segments else 0.0)
    found: dict[str, Any] = {
        "task": task,
        "language": result.get("language", ""),
        "duration": duration,
        "text": _text(result),
        "segments": segments,
    }
    if words:
        found["words"] = [
            {"word": word.get("text", ""), "start": word.get("start", 0) / NS, "end": word.get("end", 0) / NS}
            for item in _segments(result)
            for word in item.get("words") or []
        ]
    return found


def _subtitles(result: dict[str, Any], requested_format: str) -> str:
    comma = "," if requested_format == "srt" else "."
    lines = [] if requested_format == "srt" else ["WEBVTT", ""]
    for count, item in enumerate(_segments(result), 1):
        if requested_format == "srt":
            lines.append(str(count))
        lines.append(f"{_clock(item.get('start', 0), comma)} --> {_clock(item.get('end', 0), comma)}")
        lines += [item.get("text", "").strip(), ""]
    return "\n".join(lines) + "\n"


def _clock(ns: int, comma: str) -> str:
    ms = ns // 1_000_000
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{comma}{ms % 1000:03}"


async def synthesize_speech(call: BackendCall) -> None:
    request = decode_body(SpeechRequest, call.request.body)
    if not request.input:
        raise InvalidInput("input must not be empty")
    if request.response_format not in ("", "wav", "mp3", "opus", "aac", "flac", "pcm"):
        raise InvalidInput(f"response_format {request.response_format[:40]!r} is unknown")
    configured = call.config.document.get("tts") or {}
    fields = {
        "text": request.input,
        "model": call.config.model,
        "voice": request.voice or configured.get("voice") or "",
        "language": request.language or None,
        "instructions": request.instructions or None,
        "ModelIdentity": call.config.model,
    }
    if request.stream:
        await _stream_speech(call, fields)
        return
    async with call.output_file(suffix=".wav") as path:
        _check_result("TTS", await call.unary("TTS", TTS_REQUEST, {**fields, "dst": path}, RESULT))
        audio = await call.need_files().fetch(call.replica.node_id, path)
    if not audio:
        raise BackendFailed("the backend wrote no audio")
    kind = _AUDIO_TYPES.get(audio[:4], "application/octet-stream")
    requested_format = {"": kind, "wav": "audio/wav", "flac": "audio/flac"}.get(request.response_format)
    if requested_format != kind:
        raise InvalidInput(f"the backend produced {kind}; use response_format {kind.partition('/')[2]!r}")
    await call.answer_bytes(audio, kind)


async def _stream_speech(call: BackendCall, fields: dict[str, Any]) -> None:
    started = False
    replies = call.follow("TTSStream", TTS_REQUEST, fields, REPLY)
    async with aclosing(replies):
        async for reply in replies:
            audio = reply.get("audio") or b""
            if audio and not started:
                started = True
                kind = _AUDIO_TYPES.get(audio[:4], "application/octet-stream")
                call.send.start(200, {"content-type": kind})
            await call.send.write(audio)
    if not started:
        raise BackendFailed("the backend produced no audio")


def _check_result(method: str, result: dict[str, Any]) -> None:
    if not result.get("success"):
        raise BackendFailed(f"{method} failed: {result.get('message') or 'the backend gave no reason'}")


async def generate_images(call: BackendCall) -> None:
    request = decode_body(ImageRequest, call.request.body)
    if not request.prompt:
        raise InvalidInput("prompt must not be empty")
    if request.response_format not in ("", "b64_json"):
        raise InvalidInput("only response_format b64_json is supported: images are not stored, so there is no URL")
    count = 1 if request.n is None else request.n
    if not 1 <= count <= IMAGES_MAX:
        raise InvalidInput(f"n must be between 1 and {IMAGES_MAX}")
    width, height = _size(request.size)
    positive, _, negative = request.prompt.partition("|")
    data = []
    for _ in range(count):
        fields = {
            "width": width,
            "height": height,
            "step": request.step or call.config.document.get("step") or 15,
            "seed": int(call.draw() * 0x7FFFFFFF) if request.seed is None else request.seed,
            "positive_prompt": positive,
            "negative_prompt": request.negative_prompt or negative,
            "EnableParameters": (call.config.document.get("diffusers") or {}).get("enable_parameters", ""),
            "CLIPSkip": (call.config.document.get("diffusers") or {}).get("clip_skip", 0),
            "ModelIdentity": call.config.model,
        }
        data.append({"b64_json": base64.b64encode(await _generate_image(call, fields)).decode()})
    await call.answer({"created": call.now_s, "data": data})


async def _generate_image(call: BackendCall, fields: dict[str, Any]) -> bytes:
    async with call.output_file(suffix=".png") as path:
        result = await call.unary("GenerateImage", GENERATE_IMAGE_REQUEST, {**fields, "dst": path}, RESULT)
        _check_result("GenerateImage", result)
        image = await call.need_files().fetch(call.replica.node_id, path)
    if not image:
        raise BackendFailed("the backend wrote no image")
    return image


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text or "512x512")
    if found is None or not all(1 <= int(side) <= SIZE_MAX for side in found.groups()):
        raise InvalidInput(f"size must be WIDTHxHEIGHT of at most {SIZE_MAX} each, for example 512x512")
    return int(found[1]), int(found[2])
