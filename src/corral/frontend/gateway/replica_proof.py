"""Sends one small request to a replica that gets no requests yet, as clients would send it."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import msgspec
import structlog

from corral.core.errors import CorralError, InvalidInput, TimedOut, Unavailable
from corral.core.models.config import ModelConfig
from corral.core.models.golden_prompts import GoldenPrompt, GoldenPromptFailed, shorten
from corral.core.models.proof import (
    Busy,
    ProofRequest,
    ProofVerdict,
    Proven,
    Unproven,
    judge_error,
    judge_status,
    plan_proof,
)
from corral.core.replicas.routing import LOCALAI_GRPC, ModelRoute, ReplicaId, RouteReplica
from corral.frontend.gateway.drivers import DriverRequest
from corral.frontend.gateway.drivers.localai_grpc import LocalAiGrpc
from corral.system import Clock, Ids
from corral.system.http_call import HttpAnswer, HttpCall, NoAnswer, NoConnection

log = structlog.get_logger()

ANSWER_WITHIN_S = 120.0
BUSY_RETRY_S = 1.0
PROMPTS_WITHIN_S = 300.0
"""For all golden prompts of a model together."""
CHAT = "/v1/chat/completions"
BUSY = (429, 503)
ANSWER_MOST_BYTES = 1 << 20


class ProvedReplica(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def node_id(self) -> str: ...

    @property
    def slot(self) -> int: ...

    @property
    def address(self) -> str: ...

    @property
    def protocol(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def revision(self) -> str: ...


class NotProven(Unavailable):
    """The replica was started, but does not answer."""

    code = "not_proven"


class ReplicaProof:
    def __init__(
        self,
        http: HttpCall,
        *,
        shared_token: str,
        clock: Clock,
        ids: Ids,
        within_s: float = ANSWER_WITHIN_S,
        prompts_within_s: float = PROMPTS_WITHIN_S,
    ) -> None:
        """`shared_token`: for processes without their own token, which LocalAI's workers start."""
        self._http, self._shared_token, self._clock, self._ids = http, shared_token, clock, ids
        self._within_s, self._prompts_within_s = within_s, prompts_within_s

    async def prove(self, config: ModelConfig, replica: ProvedReplica) -> None:
        """Returns when the replica has answered, or when its kind has no small request, and when it answers the golden
        prompts of the model as expected. Raises NotProven or GoldenPromptFailed otherwise."""
        request = plan_proof(config)
        if request is not None:
            await self._prove_answer(config, replica, request)
        await self.run(config, replica)

    async def _prove_answer(self, config: ModelConfig, replica: ProvedReplica, request: ProofRequest) -> None:
        try:
            async with asyncio.timeout(self._within_s):
                verdict = await self._judge(config, replica, request)
        except TimeoutError:
            verdict = Unproven(f"no answer within {self._within_s:.0f} s")
        log.info("replica.proof", model=config.name, path=request.path, verdict=type(verdict).__name__.lower())
        if not isinstance(verdict, Proven):
            raise NotProven(f"it did not answer a small request ({request.path}): {verdict.reason}")

    async def run(self, config: ModelConfig, replica: ProvedReplica) -> int:
        """Sends the golden prompts of the model, one after the other, and returns how many there are. Raises
        GoldenPromptFailed for the first answer that is not as expected, and NotProven when there is no answer."""
        count = len(config.golden_prompts)
        try:
            async with asyncio.timeout(self._prompts_within_s):
                for at, prompt in enumerate(config.golden_prompts, 1):
                    answer = await self._ask_prompt(config, replica, prompt)
                    mismatch = prompt.find_mismatch(answer)
                    if mismatch:
                        raise GoldenPromptFailed(
                            f"golden prompt {at} of {count} was not answered as expected: {mismatch}"
                        )
        except TimeoutError:
            raise NotProven(
                f"the {count} golden prompts were not all answered within {self._prompts_within_s:.0f} s"
            ) from None
        if count:
            log.info("replica.golden_prompts", model=config.name, prompts=count)
        return count

    async def _ask_prompt(self, config: ModelConfig, replica: ProvedReplica, prompt: GoldenPrompt) -> str:
        request = ProofRequest(CHAT, prompt.body(config.name))
        while True:
            status, body = await self._send(config, replica, request)
            if status not in BUSY:
                break
            await asyncio.sleep(BUSY_RETRY_S)
        text = body.decode("utf-8", "replace")
        if status != 200:
            raise GoldenPromptFailed(f"a golden prompt got status {status}: {shorten(text)}")
        try:
            return msgspec.json.decode(body, type=_Answer).text
        except msgspec.MsgspecError as error:
            raise GoldenPromptFailed(f"the answer to a golden prompt is no chat completion: {error}") from None

    async def _send(self, config: ModelConfig, replica: ProvedReplica, request: ProofRequest) -> tuple[int, bytes]:
        try:
            if replica.protocol == LOCALAI_GRPC:
                sink = _Keep()
                await self._handle_grpc(config, replica, request, sink)
                return sink.status, bytes(sink.body)
            answer = await self._post(replica, request)
            return answer.status, answer.body
        except (NoConnection, NoAnswer, CorralError) as error:
            raise NotProven(f"it did not answer a golden prompt: {error}") from error

    async def _judge(self, config: ModelConfig, replica: ProvedReplica, request: ProofRequest) -> ProofVerdict:
        ask = self._ask_grpc if replica.protocol == LOCALAI_GRPC else self._ask_http
        until_s = self._clock.monotonic_s() + self._within_s
        while isinstance(verdict := await ask(config, replica, request), Busy):
            if self._clock.monotonic_s() + BUSY_RETRY_S >= until_s:
                break
            await asyncio.sleep(BUSY_RETRY_S)
        return verdict

    async def _ask_http(self, config: ModelConfig, replica: ProvedReplica, request: ProofRequest) -> ProofVerdict:
        try:
            answer = await self._post(replica, request)
        except (NoConnection, NoAnswer) as error:
            return Unproven(str(error))
        return judge_status(answer.status, answer.body[:4096].decode("utf-8", "replace"))

    async def _post(self, replica: ProvedReplica, request: ProofRequest) -> HttpAnswer:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {replica.token}"}
        url, body = f"http://{replica.address}{request.path}", msgspec.json.encode(request.body)
        return await self._http("POST", url, body=body, headers=headers, within_s=self._within_s)

    async def _ask_grpc(self, config: ModelConfig, replica: ProvedReplica, request: ProofRequest) -> ProofVerdict:
        try:
            await self._handle_grpc(config, replica, request, _Discard())
        except TimedOut as error:
            return Unproven(str(error))
        except InvalidInput:
            return Proven()
        except CorralError as error:
            return judge_error(str(error))
        return Proven()

    async def _handle_grpc(
        self, config: ModelConfig, replica: ProvedReplica, request: ProofRequest, sink: "_Discard"
    ) -> None:
        driver = LocalAiGrpc(_OneConfig(config), clock=self._clock, ids=self._ids, shared_token=self._shared_token)
        asked = DriverRequest(
            path=request.path,
            model=config.name,
            route=ModelRoute(model=config.name),
            stream=False,
            content_type="application/json",
            body=msgspec.json.encode(request.body),
        )
        try:
            await driver.handle(asked, _routed(replica), sink)
        finally:
            await driver.close()


def _routed(replica: ProvedReplica) -> RouteReplica:
    return RouteReplica(
        id=ReplicaId(replica.id),
        node_id=replica.node_id,
        node_name="",
        slot=replica.slot,
        address=replica.address,
        protocol=replica.protocol,
        token=replica.token,
        generation=replica.generation,
        capacity=None,
        revision=replica.revision,
    )


class _OneConfig:
    def __init__(self, config: ModelConfig) -> None:
        self._config = config

    async def read_config(self, name: str, revision: str) -> ModelConfig:
        return self._config


class _Discard:
    """The content of the answer does not matter."""

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        pass

    async def write(self, data: bytes) -> None:
        pass

    def count_tokens(self, *, prompt: int, completion: int) -> None:
        pass


class _Keep(_Discard):
    """Keeps an answer, up to a limit."""

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status

    async def write(self, data: bytes) -> None:
        self.body += data[: ANSWER_MOST_BYTES - len(self.body)]


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    choices: list[_Choice]

    @property
    def text(self) -> str:
        return (self.choices[0].message.content or "") if self.choices else ""
