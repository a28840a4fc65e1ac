"""Carries rollouts on: watches the current wave, judges its gates, and begins the next one or takes all back."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

import structlog

from corral.controller.backends.plan_rollout import previous_spec
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.backends.gates import GOLDEN_PROMPTS, GateOutcome, GateSettings, GateVerdict
from corral.core.backends.intents import BackendSpec, IntentState, Verb
from corral.core.backends.operations import Admission, NewIntent
from corral.core.backends.rollouts import (
    AwaitPromotion,
    BeginSoak,
    Complete,
    Release,
    Replaced,
    RollBack,
    Rollout,
    RolloutNode,
    RolloutState,
    StandIn,
    Statuses,
    Wait,
    describe_replaced,
    plan_step,
)
from corral.core.backends.start_gate import judge_starts
from corral.core.errors import CorralError, NotFound
from corral.core.nodes.node import NodeId, NodeStatus
from corral.core.nodes.targets import Target
from corral.store.engine.leases import Lease
from corral.store.stores import Stores

log = structlog.get_logger()

EVERY_S = 2.0
MIN_SPACING_S = 0.2
LEASE_TTL_S = 15.0
PROMPTS_AT_ONCE = 4
"""Rollouts whose golden prompts are sent together; they take minutes, and rollouts go on meanwhile."""
PROMPTS_AGAIN_MS = 10_000
ANSWERING = "its golden prompts are being answered"


class GateJudge(Protocol):
    async def judge(
        self,
        *,
        backend: str,
        nodes: Sequence[NodeId],
        versions: dict[NodeId, tuple[str, str]],
        since_ms: int,
        settings: GateSettings,
    ) -> list[GateVerdict]: ...

    async def judge_prompts(
        self, *, nodes: Sequence[NodeId], versions: dict[NodeId, tuple[str, str]], answered: Collection[GateVerdict]
    ) -> list[GateVerdict]: ...


@dataclass(slots=True)
class _Prompts:
    """The golden prompts of one wave. Each is sent once, as soon as there is a replica that can answer."""

    task: asyncio.Task[list[GateVerdict] | None]
    """None as its result: they are sent again."""
    sent_at: int
    answered: Sequence[GateVerdict] = ()
    """What was known when they were sent."""
    is_saved: bool = False

    @property
    def answers(self) -> list[GateVerdict] | None:
        return self.task.result() if self.task.done() and not self.task.cancelled() else None

    def is_due(self, *, soak_ends_at: float, now_ms: int) -> bool:
        """Whether to ask again for what could not be judged: from time to time, and once when the soak ends."""
        if not self.is_saved or not any(one.outcome is GateOutcome.UNJUDGED for one in self.answers or ()):
            return False
        return now_ms - self.sent_at >= PROMPTS_AGAIN_MS or self.sent_at < soak_ends_at <= now_ms


@dataclass(frozen=True, slots=True)
class _PromptsKey:
    operation_id: str
    wave: int
    soak_began_at: int


class RolloutReconciler:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        *,
        stores: Stores,
        gates: GateJudge,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        self.loop = Reconciler(
            "rollouts",
            self._reconcile,
            runtime,
            every_s=EVERY_S,
            min_spacing_s=MIN_SPACING_S,
            lease_ttl_s=LEASE_TTL_S,
            on_standby=lambda: self._forget_prompts(()),
        )
        self._stores, self._gates, self._on_change = stores, gates, on_change
        self._prompts: dict[_PromptsKey, _Prompts] = {}
        self._sending = asyncio.Semaphore(PROMPTS_AT_ONCE)
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Golden prompts outlive the run that sends them."""
        self._prompts.clear()
        async with asyncio.TaskGroup() as self._tasks:
            await self.loop.run()

    async def _reconcile(self, run: ReconcileRun) -> None:
        rollouts = await self._stores.rollouts.read_open()
        self._forget_prompts(rollouts)
        if not rollouts:
            return
        statuses = await self._stores.nodes.read_statuses()
        changed = False
        for rollout in rollouts:
            try:
                changed |= await self._carry_on(rollout, statuses, run.lease)
            except CorralError as error:  # the others go on
                if error.retryable:
                    raise
                log.warning("rollout.not_carried_on", operation=rollout.operation_id, error=str(error))
        if changed:
            await self._on_change()
            self.loop.notify()

    async def _carry_on(self, rollout: Rollout, statuses: Statuses, lease: Lease) -> bool:
        if rollout.state is RolloutState.ROLLING_BACK:
            return await self._carry_back(rollout, statuses, lease)
        now_ms = await self._stores.rollouts.now_ms()
        verdicts, judging = await self._judge(rollout, lease, now_ms)
        step = plan_step(rollout, statuses=statuses, verdicts=verdicts, now_ms=now_ms, judging=judging)
        if not isinstance(step, Wait):
            log.info("rollout.step", operation=rollout.operation_id, wave=rollout.wave + 1, step=type(step).__name__)
        match step:
            case Wait():
                return False
            case BeginSoak(left_behind=left_behind):
                return await self._stores.rollouts.begin_soak(rollout, left_behind=left_behind, lease=lease)
            case Release(wave=wave):
                return await self._stores.rollouts.release(rollout, wave, lease=lease)
            case StandIn(node_id=node_id, reason=reason):
                return await self._stores.rollouts.stand_in(rollout, node_id, reason=reason, lease=lease)
            case AwaitPromotion():
                return await self._stores.rollouts.await_promotion(rollout, lease=lease)
            case Complete():
                return await self._stores.rollouts.complete(rollout, lease=lease)
            case Replaced():
                return await self._stores.rollouts.end_replaced(rollout, lease=lease)
            case RollBack(reason=reason):
                return await self._stores.operations.fail_rollout(rollout, reason, lease=lease)
            case _:
                assert_never(step)

    # Gates

    async def _judge(self, rollout: Rollout, lease: Lease, now_ms: int) -> tuple[Sequence[GateVerdict], str]:
        """The current verdicts on all nodes that have the new version, also while the rollout is paused or waits for
        its promotion: they serve. With what is still being judged."""
        record = rollout.current
        if record is None:
            return (), ""
        found = judge_starts(node for node in rollout.nodes if node.wave <= rollout.wave)
        done = [node for node in rollout.nodes if node.is_done and node.member.previous_digest]
        if done and (record.soak_began_at is not None or rollout.state is RolloutState.PAUSED):
            found += await self._judge_figures(rollout, done)
        prompts = None
        answers: list[GateVerdict] | None = []  # they may come while the verdicts are being stored
        if done and record.soak_began_at is not None:
            key = _PromptsKey(rollout.operation_id, rollout.wave, record.soak_began_at)
            soak_ends_at = record.soak_began_at + rollout.options.soak_s * 1000
            prompts = self._send_prompts(key, done, soak_ends_at=soak_ends_at, now_ms=now_ms)
            answers = prompts.answers
            if prompts.is_saved or answers is None:
                found += [one for one in record.verdicts if one.gate == GOLDEN_PROMPTS]
            else:
                found += answers
        is_saved = tuple(found) == record.verdicts or await self._stores.rollouts.save_verdicts(
            rollout, found, lease=lease
        )
        if prompts is not None and answers is not None:
            prompts.is_saved |= is_saved
        return found, ANSWERING if answers is None else ""

    async def _judge_figures(self, rollout: Rollout, done: Sequence[RolloutNode]) -> list[GateVerdict]:
        """What requests show."""
        return await self._gates.judge(
            backend=rollout.backend,
            nodes=[node.member.node_id for node in done],
            versions=_versions(done),
            since_ms=rollout.waves[0].began_at,
            settings=rollout.options.gates,
        )

    def _send_prompts(
        self, key: _PromptsKey, done: Sequence[RolloutNode], *, soak_ends_at: float, now_ms: int
    ) -> _Prompts:
        """They are sent beside the runs of this reconciler."""
        known = self._prompts.get(key)
        is_due = known is not None and known.is_due(soak_ends_at=soak_ends_at, now_ms=now_ms)
        if known is None or is_due or (known.task.done() and known.answers is None):
            answered = (known.answers or known.answered) if known is not None else ()
            asking = self._ask(key, done, answered)
            task = self._tasks.create_task(asking, name=f"golden prompts of rollout {key.operation_id}")
            known = self._prompts[key] = _Prompts(task, now_ms, answered)
        return known

    async def _ask(
        self, key: _PromptsKey, done: Sequence[RolloutNode], answered: Sequence[GateVerdict]
    ) -> list[GateVerdict] | None:
        try:
            async with self._sending:
                return await self._gates.judge_prompts(
                    nodes=[node.member.node_id for node in done], versions=_versions(done), answered=answered
                )
        except CorralError as error:
            log.warning("rollout.prompts_not_sent", operation=key.operation_id, error=str(error))
        except Exception:  # a bug in the prompts of one rollout must not end those of the others
            log.exception("rollout.prompts_crashed", operation=key.operation_id)
        finally:
            self.loop.notify()
        return None

    def _forget_prompts(self, rollouts: Iterable[Rollout]) -> None:
        """Keep those of the current waves of these rollouts."""
        current = {
            _PromptsKey(one.operation_id, record.wave, record.soak_began_at)
            for one in rollouts
            if (record := one.current) is not None and record.soak_began_at is not None
        }
        for key in self._prompts.keys() - current:
            self._prompts.pop(key).task.cancel()

    # Going back

    async def _carry_back(self, rollout: Rollout, statuses: Statuses, lease: Lease) -> bool:
        """Every node that the rollout has reached gets its previous version, by an operation of its own. It ends once
        all that are healthy are back: the others follow when they return."""
        assert rollout.rollback_operation_id is not None
        try:
            operation = await self._stores.operations.read_one(rollout.rollback_operation_id)
        except NotFound:
            return await self._start_rollback(rollout, lease)
        rollout = await self._stores.rollouts.read_one(rollout.operation_id)
        late = [node for node in rollout.nodes if node.rollback is not None and node.rollback.live]
        is_awaited = any(statuses.get(node.member.node_id) is NodeStatus.HEALTHY for node in late)
        if is_awaited or (operation.finished_at is None and not late):
            return False
        _, stuck = await self._sort_reached(rollout)
        text = "; ".join([*_describe_rollback(rollout.nodes), *stuck]) or "the nodes that it had reached were removed"
        return await self._stores.rollouts.end_rollback(rollout, text=text, lease=lease)

    async def _start_rollback(self, rollout: Rollout, lease: Lease) -> bool:
        able, stuck = await self._sort_reached(rollout)
        if not able:
            text = "; ".join(stuck) or "no node had the new version"
            return await self._stores.rollouts.end_rollback(rollout, text=text, lease=lease)
        specs: dict[str, BackendSpec] = {}
        for backend in sorted({node.backend for node in able}):
            specs.update(await self._stores.intents.find_specs(backend))
        intents = [
            NewIntent(
                node_id=node.member.node_id,
                node_name=node.member.node_name,
                backend=node.backend,
                spec=previous_spec(
                    node.backend,
                    node.member.build,
                    node.member.previous_version,
                    node.member.previous_digest,
                    specs,
                ),
                note=f"rollout {rollout.operation_id} failed" if rollout.outcome is RolloutState.FAILED else "",
            )
            for node in able
        ]
        assert rollout.rollback_operation_id is not None
        admission = Admission(
            id=rollout.rollback_operation_id,
            verb=Verb.ROLLBACK,
            backend=rollout.backend,
            reference=rollout.backend,
            target=Target(nodes=tuple(intent.node_id for intent in intents)),
            actor="rollout",
            intents=tuple(intents),
            node_id=intents[0].node_id if len(intents) == 1 else None,
        )
        log.info("rollout.rolling_back", operation=rollout.operation_id, nodes=[one.node_name for one in intents])
        await self._stores.admission.admit(admission)
        return True

    async def _sort_reached(self, rollout: Rollout) -> tuple[list[RolloutNode], list[str]]:
        """The nodes that can go back, and why others that the rollout reached do not."""
        nodes = {node.id: node for node in await self._stores.nodes.read_all()}
        reached = [node for node in rollout.nodes if node.was_reached and node.member.node_id in nodes]
        unknown = [node for node in reached if not node.needs_rollback]
        limited = [node for node in reached if node.needs_rollback and not nodes[node.member.node_id].speaks_corral]
        replaced = [node for node in rollout.nodes if node.replaced_by and (node.began or node.member.inherited)]
        able = [node for node in reached if node not in unknown and node not in limited]
        why = (
            (unknown, "the version before is not known"),
            (limited, "LocalAI workers keep no earlier version"),
            (replaced, describe_replaced(replaced)),
        )
        return able, [f"{', '.join(one.member.node_name for one in group)}: {text}" for group, text in why if group]


def _versions(done: Iterable[RolloutNode]) -> dict[NodeId, tuple[str, str]]:
    return {node.member.node_id: (node.digest, node.member.previous_digest) for node in done}


def _describe_rollback(nodes: Iterable[RolloutNode]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if node.rollback is None:
            continue
        if node.rollback is IntentState.SUCCEEDED:
            text = "rolled back"
        elif node.rollback.live:
            text = "not reachable now; rolled back on return"
        else:
            text = f"not rolled back: {node.rollback_error}"
        groups.setdefault(text, []).append(node.member.node_name)
    return [f"{', '.join(names)}: {text}" for text, names in groups.items()]
