"""OpenAI's `/v1/responses` for replicas that have only chat completions."""

import msgspec

from corral.frontend.gateway.protocols.responses_answers import ResponseAnswer
from corral.frontend.gateway.protocols.responses_requests import chat_request, read_responses_request
from corral.frontend.gateway.protocols.translation import AnswerTranslator, CallFacts

RESPONSES = b"/v1/responses"


class ResponsesTranslation:
    path = b"/v1/chat/completions"

    def begin(self, body: bytes, facts: CallFacts) -> tuple[bytes, AnswerTranslator]:
        request = read_responses_request(body)
        return msgspec.json.encode(chat_request(request)), ResponseAnswer(request, facts)
