"""Keeps what was wanted true: on nodes that join, are approved, return or lost their disks, and after every mishap."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.lookups import Holds, Impossible, LookupAnswer, Lookups
from corral.controller.backends.policy_preview import PolicyPreview
from corral.controller.backends.resolve import Resolver
from corral.core.backends.conflicts import names_in
from corral.core.backends.desired import find_all_desired, find_conflict, find_unresolved_policies
from corral.core.backends.drift import Correction, FleetSnapshot, find_stuck, plan_corrections
from corral.core.backends.exhausted import ExhaustedRetry
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb, short_digest
from corral.core.backends.operations import Admission, NewIntent
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Policy
from corral.core.errors import CorralError
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedProcess
from corral.core.nodes.targets import Target, takes_backends
from corral.store.backends.create_operation import Admitted
from corral.store.engine.leases import Lease
from corral.system import Clock, Ids

log = structlog.get_logger()

LEASE = "desired"
LEASE_TTL_S = 15.0
LOOK_EVERY_S = 3.0
LOOK_AT_MOST_EVERY_S = 1.0
LOOK_AT_ALL_EVERY_S = 60.0
"""Only what changed is looked at in between; so a large fleet that is well costs next to nothing."""
NODES_AT_ONCE = 50
OVERLAP_MS = 5000
"""A transaction may commit a little after the time it wrote."""
SETTLE_MS = 3000
ACTOR = "policy"


class Nodes(Protocol):
    async def read_all(self) -> list[Node]: ...


class Processes(Protocol):
    async def read_processes(self) -> dict[NodeId, tuple[ObservedProcess, ...]]: ...


class Policies(Protocol):
    async def read_all(self) -> list[Policy]: ...


class ChangeSource(Protocol):
    async def read_changed(self, since_ms: int) -> tuple[int, set[NodeId], bool]: ...


class Admissions(Protocol):
    async def admit(self, admission: Admission) -> Admitted: ...

    async def renew(self, intent: Intent, spec: BackendSpec, note: str) -> bool: ...


class Leases(Protocol):
    async def hold(self, name: str, holder: str, *, ttl_s: float, fresh: bool = False) -> Lease | None: ...

    async def release(self, lease: Lease) -> None: ...


class PolicyReconciler:
    def __init__(
        self,
        *,
        holder: str,
        nodes: Nodes,
        processes: Processes,
        policies: Policies,
        changes: ChangeSource,
        fleet: Fleet,
        resolver: Resolver,
        holds: Holds,
        patience: ExhaustedRetry,
        admissions: Admissions,
        leases: Leases,
        clock: Clock,
        ids: Ids,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        self._holder, self._nodes, self._processes, self._policies = holder, nodes, processes, policies
        self._fleet, self._resolver, self._admissions, self._leases = fleet, resolver, admissions, leases
        self._clock, self._ids, self._on_change, self._changes = clock, ids, on_change, changes
        self._prospects = PolicyPreview(resolver, clock)
        self._lookups = Lookups(resolver, holds, clock=clock, on_answer=self._look_at)
        self._patience = patience
        self._poked = asyncio.Event()
        self._lease: Lease | None = None
        self._edition: int | None = None
        self._galleries_changed_ms = 0
        self._since_ms = 0
        self._all_due_s = 0.0
        self._restless: dict[NodeId, float] = {}
        """Nodes on which something changed, and until when they are looked at: what has just ended has to settle."""

        self._due_s: dict[NodeId, float] = {}
        """Nodes on which something failed for good, and when it may be tried again."""

    def notify(self) -> None:
        self._poked.set()

    async def read_states(self) -> list[NodeBackends]:
        nodes = [node for node in await self._nodes.read_all() if takes_backends(node)]
        return await self._fleet.read_states(nodes)

    async def read_picture(self) -> FleetSnapshot:
        states, policies = await self.read_states(), await self._policies.read_all()
        # Thousands of rows: not on the loop, where requests would wait for it.
        questions = await asyncio.to_thread(find_unresolved_policies, states, policies)
        return FleetSnapshot(
            states=states,
            policies=policies,
            processes=await self._processes.read_processes(),
            prospects=await self._prospects.read(questions),
        )

    async def run(self) -> None:
        try:
            while True:
                await self._turn()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._poked.wait()
                await asyncio.sleep(LOOK_AT_MOST_EVERY_S)
                self._poked.clear()
        finally:
            self._lookups.close()

    async def release(self) -> None:
        if self._lease is not None:
            await self._leases.release(self._lease)

    async def _turn(self) -> None:
        # One of all frontends: not for safety, which the expected generations give, but to decide each thing once.
        self._lease = await self._leases.hold(LEASE, self._holder, ttl_s=LEASE_TTL_S)
        if self._lease is None:
            return
        now_s = self._clock.monotonic_s()
        now_ms, worth = await self._worth_a_look(now_s)
        nodes = [node for node in worth if takes_backends(node)]
        policies = await self._policies.read_all()
        for start in range(0, len(nodes), NODES_AT_ONCE):
            states = await self._fleet.read_states(nodes[start : start + NODES_AT_ONCE])
            self._note_due(states, now_ms, now_s)
            by_id = {state.node.id: state for state in states}
            heals = plan_corrections(
                states,
                policies,
                now_ms=now_ms,
                settle_ms=SETTLE_MS,
                patience=self._patience,
                galleries_changed_ms=self._galleries_changed_ms,
            )
            for (backend, verb), group in _by_order(heals):
                await self._heal(backend, verb, group, by_id, policies)
            self._lookups.check(find_stuck(states), {id_: state.node for id_, state in by_id.items()}, self._renew)
            await asyncio.sleep(0)  # a large fleet must not delay requests

    async def _worth_a_look(self, now_s: float) -> tuple[int, list[Node]]:
        """The store's time, and the nodes."""
        now_ms, changed, policy_changed = await self._changes.read_changed(self._since_ms)
        look_at_all = self._since_ms == 0 or policy_changed or now_s >= self._all_due_s or self._is_new_edition(now_ms)
        self._since_ms = now_ms - OVERLAP_MS
        if look_at_all:
            self._all_due_s = now_s + LOOK_AT_ALL_EVERY_S
        self._restless = {node_id: until_s for node_id, until_s in self._restless.items() if until_s > now_s}
        self._restless.update(dict.fromkeys(changed, now_s + 2 * SETTLE_MS / 1000))
        due = {node_id for node_id, due_s in self._due_s.items() if due_s <= now_s}
        if not look_at_all and not self._restless and not due:
            return now_ms, []
        nodes = await self._nodes.read_all()
        return now_ms, nodes if look_at_all else [node for node in nodes if node.id in self._restless or node.id in due]

    def _is_new_edition(self, now_ms: int) -> bool:
        before, self._edition = self._edition, self._resolver.edition
        if before is None or before == self._edition:
            return False
        self._galleries_changed_ms = now_ms
        return True

    def _look_at(self, nodes: Iterable[NodeId]) -> None:
        """There is an answer that orders for them waited for."""
        until_s = self._clock.monotonic_s() + 2 * SETTLE_MS / 1000
        self._restless.update(dict.fromkeys(nodes, until_s))
        self.notify()

    def _note_due(self, states: Iterable[NodeBackends], now_ms: int, now_s: float) -> None:
        waits = (self._patience.on_change_after_ms, self._patience.again_after_ms)
        for state in states:
            ends = [one.finished_at or 0 for one in state.newest.values() if one.state is IntentState.DEAD_LETTERED]
            due = [end + wait_ms for end in ends for wait_ms in waits if end + wait_ms > now_ms]
            if due:
                self._due_s[state.node.id] = now_s + (min(due) - now_ms) / 1000
            else:
                self._due_s.pop(state.node.id, None)

    async def _heal(
        self,
        backend: str,
        verb: Verb,
        group: Sequence[Correction],
        states: Mapping[NodeId, NodeBackends],
        policies: Sequence[Policy],
    ) -> None:
        found = {heal: self._find_wish(heal, states[heal.node_id], policies) for heal in group}
        self._lookups.ask([(heal, states[heal.node_id].node) for heal in group if found[heal] is None])
        orders = [
            NewIntent(
                node_id=heal.node_id,
                node_name=states[heal.node_id].node.name,
                backend=backend,
                spec=answer.spec,
                note=answer.note,
                expected_generation=heal.expected_generation,
                desired_generation=heal.desired_generation,
            )
            for heal, answer in found.items()
            if isinstance(answer, LookupAnswer)
        ]
        if not orders:
            return
        admission = Admission(
            id=self._ids.uuid(),
            verb=verb,
            backend=backend,
            reference=orders[0].spec.reference,
            target=Target(nodes=tuple(order.node_id for order in orders)),
            actor=ACTOR,
            cause="policy",
            orders=tuple(orders),
            node_id=orders[0].node_id if len(orders) == 1 else None,
        )
        log.info("policy.corrected", backend=backend, verb=verb.value, nodes=[order.node_name for order in orders])
        await self._admissions.admit(admission)
        await self._on_change()

    def _find_wish(
        self, heal: Correction, state: NodeBackends, policies: Sequence[Policy]
    ) -> LookupAnswer | Impossible | None:
        """None where galleries and registries have to be asked first."""
        foreign = bool(heal.spec.galleries) and not heal.spec.uris  # only the worker looks into those
        if heal.verb is Verb.DELETE or foreign:
            return LookupAnswer(heal.spec)
        if heal.resolved and not heal.failed_before:
            return LookupAnswer(heal.spec)
        answer = self._lookups.take(heal, state.node)
        if not isinstance(answer, LookupAnswer):
            return answer
        if heal.only_another_version and (answer.unconfirmed or answer.spec.digest in ("", heal.spec.digest)):
            return Impossible(f"{short_digest(heal.spec.digest)} did not start, and no other version is known")
        # Only now it is known under which names it would be there.
        names = names_in(heal.backend, answer.spec)
        rival = find_conflict(find_all_desired(state, policies), heal.verb, names, heal.desired_generation)
        return Impossible(f"{rival} was deleted since") if rival is not None else answer

    async def _renew(self, intent: Intent, spec: BackendSpec, note: str) -> None:
        try:
            renewed = await self._admissions.renew(intent, spec, note)
        except CorralError as error:  # it is looked at again
            log.warning("desired.not_renewed", backend=intent.backend, node=intent.node_id, error=str(error))
            return
        if renewed:
            log.info("desired.resolved_again", backend=intent.backend, node=intent.node_id, reason=note)
            await self._on_change()


def _by_order(heals: Iterable[Correction]) -> list[tuple[tuple[str, Verb], list[Correction]]]:
    """Deletes first: what was deleted while a machine was away must not be used there."""
    groups: dict[tuple[str, Verb], list[Correction]] = {}
    for heal in heals:
        groups.setdefault((heal.backend, heal.verb), []).append(heal)
    return sorted(groups.items(), key=lambda group: (group[0][1] is not Verb.DELETE, group[0][0]))
