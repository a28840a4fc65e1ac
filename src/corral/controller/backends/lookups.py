"""What healing orders need of galleries and registries: asked in the background, each reference once for all nodes,
a few at a time. No turn of desired state, and no delete in it, waits for a slow registry."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from corral.artifacts.oci.pins import pinned_uri
from corral.controller.backends.resolve import ResolvedBackend, Resolver, spec_of
from corral.core.backends.drift import Correction
from corral.core.backends.intents import BackendSpec, Intent, short_digest
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.backends.version_holds import VersionHold, hold_for
from corral.core.errors import CorralError
from corral.core.nodes.node import Node, NodeId
from corral.system import Clock

log = structlog.get_logger()

AT_ONCE = 8
AGAIN_AFTER_S = 60.0
"""When something that could not be looked up is looked up again."""
USED_WITHIN_S = 30.0
"""An answer that no order was made of by then is asked for anew."""


class Holds(Protocol):
    async def read_all(self) -> list[VersionHold]: ...


@dataclass(frozen=True, slots=True)
class Impossible:
    """For now."""

    reason: str


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    spec: BackendSpec
    note: str = ""
    """What was found out on the way, for people."""
    unconfirmed: bool = False
    """Known from before, while nobody can be asked."""


_Question = tuple[str, BackendSpec, bool]
"""A backend, what is wanted of it, and whether that is an exact version which may exist no more."""
_Key = tuple[_Question, NodeId]


class Lookups:
    def __init__(
        self, resolver: Resolver, holds: Holds, *, clock: Clock, on_answer: Callable[[Iterable[NodeId]], None]
    ) -> None:
        self._resolver, self._holds, self._clock, self._on_answer = resolver, holds, clock, on_answer
        self._known: dict[_Key, tuple[float, LookupAnswer | Impossible]] = {}
        self._asked: set[_Key] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    def take(self, heal: Correction, node: Node) -> LookupAnswer | Impossible | None:
        """None before the first answer."""
        key = (_question(heal), node.id)
        known = self._known.get(key)
        if known is None or known[0] <= self._clock.monotonic_s():
            return None
        return known[1]

    def ask(self, heals: Iterable[tuple[Correction, Node]]) -> None:
        groups: dict[_Question, list[Node]] = {}
        for heal, node in heals:
            question = _question(heal)
            if (question, node.id) not in self._asked:
                groups.setdefault(question, []).append(node)
        for question, nodes in groups.items():
            self._start(self._look(question, nodes), [(question, node.id) for node in nodes])

    def check(self, stuck: Sequence[Intent], nodes: dict[NodeId, Node], renew: "Renew") -> None:
        """Open orders whose version may exist no more are given the one that their reference means now."""
        groups: dict[_Question, list[Intent]] = {}
        for intent in stuck:
            question = (intent.backend, intent.spec, True)
            key = (question, intent.node_id)
            known = self._known.get(key)
            if key not in self._asked and (known is None or known[0] <= self._clock.monotonic_s()):
                groups.setdefault(question, []).append(intent)
        for question, intents in groups.items():
            keys = [(question, intent.node_id) for intent in intents]
            self._start(self._renew(question, intents, nodes, renew), keys)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None], keys: Collection[_Key]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception:
                log.exception("desired.look_up_crashed", backend=next(iter(keys))[0][0])
            finally:
                self._asked.difference_update(keys)

        self._asked.update(keys)
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
                log.info("desired.not_possible", backend=question[0], node=node.id, reason=answer.reason)
            kept_s = AGAIN_AFTER_S if isinstance(answer, Impossible) else USED_WITHIN_S
            self._known[question, node.id] = now_s + kept_s, answer
        self._on_answer([node.id for node in nodes])

    async def _answers(self, question: _Question, nodes: Sequence[Node]) -> dict[NodeId, LookupAnswer | Impossible]:
        backend, spec, may_be_gone = question
        async with self._room:
            try:
                if may_be_gone and (spec.is_exact or not await self._resolver.is_gone(spec)):
                    return {node.id: LookupAnswer(spec) for node in nodes}
                found = await self._resolver.recall_spec(_source_of(spec, backend), backend, nodes)
                holds = await self._holds.read_all()
            except CorralError as error:
                return {node.id: Impossible(str(error)) for node in nodes}
        galleries = "" if spec.uri else self._resolver.galleries_text()
        answers: dict[NodeId, LookupAnswer | Impossible] = {}
        for node in nodes:
            build = found[node.id]
            if isinstance(build, Unfit):
                answers[node.id] = Impossible(build.reason)
            elif isinstance(build, Unresolved):
                answers[node.id] = Impossible(str(build.error))
            else:
                build = with_hold(node, build, holds)
                resolved = spec_of(build, reference=spec.reference, uri=spec.uri, galleries=galleries)
                note = _gone_words(spec, resolved) if may_be_gone else ""
                answers[node.id] = LookupAnswer(resolved, note, unconfirmed=bool(build.unconfirmed))
        return answers

    async def _renew(
        self, question: _Question, intents: Sequence[Intent], nodes: dict[NodeId, Node], renew: "Renew"
    ) -> None:
        places = [nodes[intent.node_id] for intent in intents]
        answers = await self._answers(question, places)
        for intent in intents:
            answer = answers[intent.node_id]
            if isinstance(answer, LookupAnswer) and answer.spec.digest != intent.spec.digest:
                await renew(intent, answer.spec, answer.note)
            same = Impossible("it still exists") if isinstance(answer, LookupAnswer) else answer
            self._known[question, intent.node_id] = self._clock.monotonic_s() + AGAIN_AFTER_S, same


class Renew(Protocol):
    async def __call__(self, intent: Intent, spec: BackendSpec, note: str, /) -> None: ...


def with_hold(node: Node, build: ResolvedBackend, holds: Iterable[VersionHold]) -> ResolvedBackend:
    """What the fleet was rolled back to, where it was."""
    hold = hold_for(node, build.variant, holds)
    if hold is None:
        return build
    return replace(
        build,
        uris=hold.uris or tuple(pinned_uri(uri, hold.digest) for uri in build.uris),
        digest=hold.digest,
        version=hold.version,
        sha256=hold.sha256,
        manifest=hold.manifest or build.manifest,
        reason="the fleet was rolled back to it",
        left=hold.left,
    )


def _question(heal: Correction) -> _Question:
    return heal.backend, heal.spec, heal.failed_before and heal.resolved


def _source_of(spec: BackendSpec, backend: str) -> BackendSpec:
    """What was asked for, before it was resolved."""
    if spec.uri:
        return BackendSpec(reference=spec.reference, uri=spec.uri, name=spec.name or backend, alias=spec.alias)
    return BackendSpec(reference=spec.reference)


def _gone_words(before: BackendSpec, now: BackendSpec) -> str:
    return (
        f"{short_digest(before.digest)} of {before.name} is no longer at its source;"
        f" {before.uri or before.reference} was looked up again and is {short_digest(now.digest)} now"
    )
