"""Looks up the builds that corrections need, in the background: each reference once for all nodes, a few at a time. So
no reconcile, and no delete in it, waits for a slow registry."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from corral.controller.backends.fleet_builds import FleetBuilds
from corral.controller.backends.resolve import Resolver, source_of, spec_of
from corral.core.backends.build import short_digest
from corral.core.backends.drift import Correction
from corral.core.backends.intents import BackendSpec, Intent
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import CorralError
from corral.core.nodes.node import Node, NodeId
from corral.system import Clock

log = structlog.get_logger()

AT_ONCE = 8
AGAIN_AFTER_S = 60.0
"""When a failed lookup is repeated."""
USED_WITHIN_S = 30.0
"""How long an answer may be used."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """Why the correction cannot be made now."""

    reason: str


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    spec: BackendSpec
    note: str = ""
    """Shown to people with the intent."""
    unconfirmed: bool = False
    """Whether it is the last known answer, as the source cannot be reached."""


_Question = tuple[str, BackendSpec, bool]
"""A backend, its spec, and whether to check first that the spec's version still exists."""
_Key = tuple[_Question, NodeId]


class Lookups:
    def __init__(
        self,
        resolver: Resolver,
        builds: FleetBuilds,
        *,
        clock: Clock,
        on_answer: Callable[[Iterable[NodeId]], None],
    ) -> None:
        self._resolver, self._builds, self._clock, self._on_answer = resolver, builds, clock, on_answer
        self._known: dict[_Key, tuple[float, LookupAnswer | Impossible]] = {}
        self._requested: set[_Key] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def take(self, correction: Correction, node: Node) -> LookupAnswer | Impossible | None:
        """None before there is an answer."""
        key = (_question(correction), node.id)
        known = self._known.get(key)
        if known is None or known[0] <= self._clock.monotonic_s():
            return None
        return known[1]

    def request(self, corrections: Iterable[tuple[Correction, Node]]) -> None:
        groups: dict[_Question, list[Node]] = {}
        for correction, node in corrections:
            question = _question(correction)
            if (question, node.id) not in self._requested:
                groups.setdefault(question, []).append(node)
        for question, nodes in groups.items():
            self._start(self._look(question, nodes), [(question, node.id) for node in nodes])

    def check(self, stuck: Sequence[Intent], nodes: dict[NodeId, Node], renew: "Renew", explain: "Explain") -> None:
        """Gives live intents whose version no longer exists the one that their reference means now, or the reason why
        there is none."""
        groups: dict[_Question, list[Intent]] = {}
        for intent in stuck:
            question = (intent.backend, intent.spec, True)
            key = (question, intent.node_id)
            if key in self._requested:
                continue
            known = self._known.get(key)
            if known is None or known[0] <= self._clock.monotonic_s():
                groups.setdefault(question, []).append(intent)
            elif isinstance(known[1], Impossible) and intent.last_error != known[1].reason:
                self._start(explain(intent, known[1].reason), [key])  # it was tried again in the meantime
        for question, intents in groups.items():
            keys = [(question, intent.node_id) for intent in intents]
            self._start(self._renew(question, intents, nodes, renew, explain), keys)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None], keys: Collection[_Key]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception:  # a bug in one lookup must not end the others
                log.exception("policy.lookup_crashed", backend=next(iter(keys))[0][0])
            finally:
                self._requested.difference_update(keys)

        self._requested.update(keys)
        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, question: _Question, nodes: Sequence[Node]) -> None:
        answers = await self._answers(question, nodes)
        now_s = self._clock.monotonic_s()
        self._known = {key: known for key, known in self._known.items() if known[0] > now_s}
        for node in nodes:
            answer = answers[node.id]
            if isinstance(answer, Impossible):
                log.info("policy.correction_impossible", backend=question[0], node=node.id, reason=answer.reason)
            kept_s = AGAIN_AFTER_S if isinstance(answer, Impossible) else USED_WITHIN_S
            self._known[question, node.id] = now_s + kept_s, answer
        self._on_answer([node.id for node in nodes])

    async def _answers(self, question: _Question, nodes: Sequence[Node]) -> dict[NodeId, LookupAnswer | Impossible]:
        backend, spec, check_exists = question
        async with self._slots:
            try:
                if check_exists and not await self._resolver.is_gone(spec):
                    return {node.id: LookupAnswer(spec) for node in nodes}
                if check_exists and spec.is_exact:
                    exact = await self._builds.replace_gone(spec, backend)
                    note = _describe_replacement(spec, exact)
                    return {node.id: LookupAnswer(exact, note) for node in nodes}
                source = source_of(spec, backend)
                found = await self._resolver.recall_spec(source, backend, nodes)
                found = await self._builds.in_desired_version(source, backend, nodes, found)
            except CorralError as error:
                return {node.id: Impossible(str(error)) for node in nodes}
        galleries = "" if spec.uri else self._resolver.galleries_text(spec.reference)
        answers: dict[NodeId, LookupAnswer | Impossible] = {}
        for node in nodes:
            build = found[node.id]
            if isinstance(build, Unfit):
                answers[node.id] = Impossible(build.reason)
            elif isinstance(build, Unresolved):
                answers[node.id] = Impossible(str(build.error))
            else:
                new = spec_of(build, reference=spec.reference, uri=spec.uri, galleries=galleries)
                note = _describe_replacement(spec, new) if check_exists else ""
                answers[node.id] = LookupAnswer(new, note, unconfirmed=bool(build.unconfirmed))
        return answers

    async def _renew(
        self,
        question: _Question,
        intents: Sequence[Intent],
        nodes: dict[NodeId, Node],
        renew: "Renew",
        explain: "Explain",
    ) -> None:
        places = [nodes[intent.node_id] for intent in intents]
        answers = await self._answers(question, places)
        for intent in intents:
            answer = answers[intent.node_id]
            if isinstance(answer, LookupAnswer) and answer.spec.build.digest != intent.spec.build.digest:
                await renew(intent, answer.spec, answer.note)
            elif isinstance(answer, Impossible):
                await explain(intent, answer.reason)
            self._known[question, intent.node_id] = self._clock.monotonic_s() + AGAIN_AFTER_S, answer


class Renew(Protocol):
    async def __call__(self, intent: Intent, spec: BackendSpec, note: str, /) -> None: ...


class Explain(Protocol):
    def __call__(self, intent: Intent, reason: str, /) -> Coroutine[Any, Any, None]: ...


def _question(correction: Correction) -> _Question:
    return correction.backend, correction.spec, correction.failed_before and correction.resolved


def _describe_replacement(before: BackendSpec, now: BackendSpec) -> str:
    name = f"version {before.build.version}" if now.pinned and now.build.version else before.uri or before.reference
    return (
        f"{short_digest(before.build.digest)} of {before.build.name} is no longer at its source;"
        f" {name} now resolves to {short_digest(now.build.digest)}"
    )
