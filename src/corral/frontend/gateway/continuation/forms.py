"""The client APIs whose streams can be continued where replicas speak them themselves. For all others, the gateway
translates the replica's chat completion, and continues that."""

from collections.abc import Mapping
from typing import Protocol

from corral.frontend.gateway.continuation.answers import OpenAiStream
from corral.frontend.gateway.continuation.continuation import Continuation
from corral.frontend.gateway.continuation.requests import CHAT, COMPLETIONS, read_fields, wants_usage
from corral.frontend.gateway.continuation.said import ChatSaid, MessagesSaid, Said, SaidReader
from corral.frontend.gateway.protocols.anthropic import MESSAGES, MessagesTranslation
from corral.frontend.gateway.protocols.anthropic_answers import MessageAnswer, encode_event
from corral.frontend.gateway.protocols.translation import CallFacts


class StreamForm(Protocol):
    end: bytes
    """The last event of a stream."""

    def reader(self) -> SaidReader:
        """Reads the events that the client gets."""
        ...

    def resume(self, body: bytes, said: Said, facts: CallFacts) -> Continuation:
        """`body`: the client's. Raises InvalidInput for one that only the replica that began can read."""
        ...


class OpenAiForm:
    end = b"data: [DONE]\n\n"

    def __init__(self, path: bytes) -> None:
        self._path = path

    def reader(self) -> SaidReader:
        return ChatSaid()

    def resume(self, body: bytes, said: Said, facts: CallFacts) -> Continuation:
        shows_usage = wants_usage(read_fields(body))
        return Continuation(self._path, body, said, OpenAiStream(said.head, shows_usage=shows_usage))


class MessagesForm:
    end = encode_event("message_stop", {})

    def reader(self) -> SaidReader:
        return MessagesSaid()

    def resume(self, body: bytes, said: Said, facts: CallFacts) -> Continuation:
        sent, answer = MessagesTranslation().begin(body, facts)
        if isinstance(answer, MessageAnswer):
            answer.resume_after(said.block, is_open=said.is_block_open)
        return Continuation(CHAT, sent, said, answer)


FORMS: Mapping[bytes, StreamForm] = {
    CHAT: OpenAiForm(CHAT),
    COMPLETIONS: OpenAiForm(COMPLETIONS),
    MESSAGES: MessagesForm(),
}
