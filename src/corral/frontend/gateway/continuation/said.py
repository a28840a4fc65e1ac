"""What a streamed answer has told its client so far, read from its events."""

from typing import Any, Protocol

import msgspec

from corral.frontend.gateway.protocols.chat_answers import AnswerMessage
from corral.system.json import decode_json

_DATA = b"data:"
_DONE = b"[DONE]"
UNREADABLE = "an event that the gateway cannot read"


class Said:
    """Grows with every event."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.pieces = 0
        """Events with text. Most engines send one for each token."""
        self.beyond = ""
        """What it has besides text and cannot be handed over, in words."""
        self.finish = ""
        """Why the model stopped, once it has."""
        self.is_whole = False
        """Whether nothing of it is missing but, perhaps, the stream's last event."""
        self.is_done = False
        """Whether the stream's last event was sent."""
        self.head: dict[str, Any] = {}
        """The fields that all events of one answer share."""
        self.prompt_tokens: int | None = None
        self.block = -1
        """Of Anthropic's events: the index of the latest block."""
        self.is_block_open = False

    @property
    def text(self) -> str:
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        return self._texts[0] if self._texts else ""

    def add_text(self, text: str) -> None:
        if text:
            self._texts.append(text)
            self.pieces += 1


class SaidReader(Protocol):
    said: Said

    def read(self, data: bytes) -> None:
        """Reads complete events."""
        ...


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    delta: AnswerMessage | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: Any = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None
    usage: Any = None
    id: Any = None
    created: Any = None
    model: Any = None
    system_fingerprint: Any = None
    error: Any = None


_HEAD = ("id", "created", "model", "system_fingerprint")


class ChatSaid:
    """Of OpenAI's chat completions and completions."""

    def __init__(self) -> None:
        self.said = Said()

    def read(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if line.startswith(_DATA) and (value := line[len(_DATA) :].strip()):
                self.read_event(value)

    def read_event(self, data: bytes) -> None:
        said = self.said
        if data == _DONE:
            said.is_done = True
            return
        try:
            chunk = decode_json(data, _Chunk)
        except msgspec.DecodeError:
            said.beyond = said.beyond or UNREADABLE
            return
        if not said.head:
            found = {name: getattr(chunk, name) for name in _HEAD}
            said.head = {name: value for name, value in found.items() if value is not None}
        if chunk.error is not None:
            said.beyond = "an error"
        elif chunk.choices is None and chunk.usage is None:
            said.beyond = said.beyond or UNREADABLE
        for choice in chunk.choices or ():
            self._read_choice(choice)
        if said.finish and chunk.usage is not None and not chunk.choices:
            said.is_whole = True

    def _read_choice(self, choice: _Choice) -> None:
        said, delta = self.said, choice.delta or AnswerMessage()
        text = choice.text or delta.content or ""
        if choice.index and (text or choice.finish_reason):
            said.beyond = "several choices"
        if choice.logprobs is not None:
            said.beyond = "log probabilities"
        if delta.tool_calls:
            said.beyond = "a tool call"
        if delta.thought:
            said.beyond = "reasoning"
        if delta.refusal:
            said.beyond = "a refusal"
        said.add_text(text)
        said.finish = choice.finish_reason or said.finish


class _Delta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    stop_reason: str | None = None


class _MessageUsage(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct, frozen=True):
    usage: _MessageUsage | None = None


class _Block(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class _Event(msgspec.Struct, frozen=True):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None


class MessagesSaid:
    """Of Anthropic's messages, as a replica streams them itself."""

    def __init__(self) -> None:
        self.said = Said()

    def read(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if line.startswith(_DATA) and (value := line[len(_DATA) :].strip()):
                self._read_event(value)

    def _read_event(self, data: bytes) -> None:
        said = self.said
        try:
            event = decode_json(data, _Event)
        except msgspec.DecodeError:
            said.beyond = said.beyond or UNREADABLE
            return
        delta = event.delta or _Delta()
        match event.type:
            case "message_start":
                usage = event.message.usage if event.message is not None else None
                if usage is not None:
                    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
                    said.prompt_tokens = usage.input_tokens + cached
            case "content_block_start":
                block = event.content_block or _Block()
                said.block, said.is_block_open = event.index, True
                if block.type != "text":
                    said.beyond = "a tool call" if block.type == "tool_use" else f"a block of the type {block.type!r}"
                said.add_text(block.text)
            case "content_block_delta" if delta.type == "text_delta":
                said.add_text(delta.text)
            case "content_block_delta":
                said.beyond = said.beyond or f"a part of the type {delta.type!r}"
            case "content_block_stop":
                said.is_block_open = False
            case "message_delta":
                said.finish = delta.stop_reason or said.finish
                said.is_whole = bool(said.finish)
            case "message_stop":
                said.is_done = True
            case "error":
                said.beyond = "an error"
