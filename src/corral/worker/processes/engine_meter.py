"""Asks running engines how many requests they take: their slots and context once, their load again and again.

An engine is recognised by its metrics. One without metrics that are known here is asked once and then left alone. A
gRPC backend takes what it was told to.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import msgspec
import structlog

from corral.core.nodes.engine_capacity import (
    CONTEXT_MOST,
    LLAMA_CPP,
    SLOTS_MOST,
    EngineCapacity,
    EngineFamily,
    EngineLoad,
    find_family,
    plan_limit,
    read_load,
)
from corral.core.processes.process import ProcessKey, ProcessView, Ready
from corral.formats.prometheus_text import sum_metrics
from corral.system.http_call import HttpAnswer, HttpCall, NoAnswer, NoConnection
from corral.worker.processes.fitted import capacity_of_fitted
from corral.worker.processes.supervisor import RunningProcess

log = structlog.get_logger()

LOOK_EVERY_S = 1.0
IDLE_LOOK_EVERY_S = 5.0
ANSWER_WITHIN_S = 2.0
NOT_IMPLEMENTED = 501
"""llama.cpp's answer for metrics that are switched off."""
MOST_ENGINES_AT_ONCE = 16

Slots = Annotated[int, msgspec.Meta(ge=1, le=SLOTS_MOST)]
Context = Annotated[int, msgspec.Meta(ge=1, le=CONTEXT_MOST)]


class _Generation(msgspec.Struct, frozen=True):
    """Of `/props`; `/slots` is a list of the like, one for each slot."""

    n_ctx: Context | None = None


class _State(msgspec.Struct, frozen=True):
    effective_max_running_requests_per_dp: Slots | None = None


class _Model(msgspec.Struct, frozen=True):
    max_model_len: Context | None = None


class _Facts(msgspec.Struct, frozen=True):
    """What the engines tell, in one: llama.cpp's `/props`, the list of models, and SGLang's server information."""

    total_slots: Slots | None = None
    default_generation_settings: _Generation = _Generation()
    internal_states: tuple[_State, ...] = ()
    data: tuple[_Model, ...] = ()

    @property
    def slots(self) -> int | None:
        each = [state.effective_max_running_requests_per_dp for state in self.internal_states]
        return self.total_slots or min(sum(filter(None, each)), SLOTS_MOST) or None

    @property
    def context(self) -> int | None:
        return self.default_generation_settings.n_ctx or (self.data[0].max_model_len if self.data else None)


_SlotList = Annotated[tuple[_Generation, ...], msgspec.Meta(min_length=1, max_length=SLOTS_MOST)]
_decode_facts = msgspec.json.Decoder(_Facts | _SlotList).decode


def read_facts(body: bytes) -> EngineCapacity:
    """From one answer of an engine. One that cannot be read tells nothing."""
    try:
        facts = _decode_facts(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return EngineCapacity()
    if isinstance(facts, tuple):
        return EngineCapacity(slots=len(facts), context=facts[0].n_ctx)
    return EngineCapacity(slots=facts.slots, context=facts.context)


@dataclass(slots=True)
class _Engine:
    """What is known about one process."""

    pid: int
    due_s: float = 0.0
    family: EngineFamily | None = None
    facts: EngineCapacity | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    capacity: EngineCapacity | None = None


class RunningEngines(Protocol):
    def list(self) -> Sequence[ProcessView]: ...

    def running(self, key: ProcessKey) -> RunningProcess | None: ...


class EngineMeter:
    def __init__(self, supervisor: RunningEngines, call: HttpCall, *, changed: Callable[[], None]) -> None:
        """`changed`: called when an engine takes more or fewer requests than before."""
        self._supervisor, self._call, self._changed = supervisor, call, changed
        self._engines: dict[ProcessKey, _Engine] = {}
        self._at_once = asyncio.Semaphore(MOST_ENGINES_AT_ONCE)

    def capacity(self, key: ProcessKey, pid: int | None) -> EngineCapacity | None:
        """None while it is unknown. A restarted process is another engine."""
        engine = self._engines.get(key)
        return engine.capacity if engine is not None and engine.pid == pid else None

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Asks all engines whose turn it is."""
        running = {
            view.key: process
            for view in self._supervisor.list()
            if isinstance(view.state, Ready) and (process := self._supervisor.running(view.key)) is not None
        }
        self._engines = {key: engine for key, engine in self._engines.items() if key in running}
        await asyncio.gather(*(self.look_at(process) for process in running.values()))

    async def look_at(self, process: RunningProcess) -> None:
        """Asks one engine, unless its turn comes later. An engine that does not answer keeps its figures."""
        engine = self._engines.get(process.spec.key)
        if engine is None or engine.pid != process.pid:
            engine = self._engines[process.spec.key] = _Engine(process.pid)
            if process.spec.labels.get("protocol") != "openai":
                engine.capacity, engine.due_s = capacity_of_fitted(process.spec), float("inf")
        now_s = asyncio.get_running_loop().time()
        if now_s < engine.due_s:
            return
        engine.due_s = now_s + LOOK_EVERY_S / 2  # of two looks, neither is left out because the first was late
        async with self._at_once:
            try:
                load = await self._read(process, engine)
            except (NoConnection, NoAnswer) as error:
                log.debug("engine.not_read", process=process.spec.key, error=str(error))
                return
        if load is None or engine.facts is None:
            return
        before = engine.capacity
        limit = plan_limit(before.limit if before is not None else None, load, slots=engine.facts.slots)
        engine.capacity = EngineCapacity(slots=engine.facts.slots, context=engine.facts.context, limit=limit)
        if engine.family is not None and not load.running and not load.waiting:
            engine.due_s = now_s + IDLE_LOOK_EVERY_S
        if engine.capacity != before:
            log.info("engine.capacity", process=process.spec.key, slots=engine.facts.slots, limit=limit)
            self._changed()

    async def _read(self, process: RunningProcess, engine: _Engine) -> EngineLoad | None:
        answer = await self._get(process, "/metrics")
        if answer.status >= 500 and answer.status != NOT_IMPLEMENTED:
            return None
        metrics = sum_metrics(answer.body.decode("utf-8", "replace")) if answer.status == 200 else {}
        if engine.family is None:
            engine.family = find_family(metrics)
        if engine.family is None:
            # llama.cpp has no metrics unless it is started with them, but still tells its slots.
            engine.facts, engine.due_s = await self._read_facts(process, LLAMA_CPP), float("inf")
            return EngineLoad(running=0, waiting=0) if engine.facts.slots is not None else None
        if engine.facts is None:
            engine.facts = await self._read_facts(process, engine.family)
        before, engine.metrics = engine.metrics, metrics
        return read_load(engine.family, metrics, before)

    async def _read_facts(self, process: RunningProcess, family: EngineFamily) -> EngineCapacity:
        known = EngineCapacity()
        for path in family.facts:
            if known.slots is not None and known.context is not None:
                break
            answer = await self._get(process, path)
            if answer.status == 200:
                told = read_facts(answer.body)
                known = EngineCapacity(slots=known.slots or told.slots, context=known.context or told.context)
        return known

    async def _get(self, process: RunningProcess, path: str) -> HttpAnswer:
        host = process.spec.own_host
        at = f"[{host}]" if ":" in host else host
        headers = {"Authorization": f"Bearer {process.token}"}
        url = f"http://{at}:{process.port}{path}"
        return await self._call("GET", url, headers=headers, within_s=ANSWER_WITHIN_S)
