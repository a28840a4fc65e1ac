"""Reconciles policies and intents with what nodes have: when nodes join, return or lose a disk, and after failures."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog

from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.fleet_builds import FleetBuilds
from corral.controller.backends.lookups import Impossible, LookupAnswer, Lookups
from corral.controller.backends.policy_preview import PolicyPreview
from corral.controller.backends.resolve import Resolver
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.backends.build import short_digest
from corral.core.backends.conflicts import names_in
from corral.core.backends.desired import find_all_desired, find_conflict, find_unresolved_policies
from corral.core.backends.drift import Correction, FleetSnapshot, find_stuck, plan_corrections
from corral.core.backends.exhausted import ExhaustedRetry
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.operations import Admission, NewIntent
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Policy
from corral.core.errors import CorralError
from corral.core.models.load_plan import models_by_family
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.targets import Target, takes_backends
from corral.store.stores import Stores
from corral.system import Clock, Ids

log = structlog.get_logger()

LEASE_TTL_S = 15.0
EVERY_S = 4.0
GATHER_S = 1.0
"""Nodes that join together are corrected together."""
LOOK_AT_ALL_EVERY_S = 60.0
"""In between only changed nodes are checked, so that a large healthy fleet costs next to nothing."""
EXHAUSTED_EVERY_S = 15.0
"""How often nodes with exhausted retries are checked for a change that may help."""
NODES_AT_ONCE = 50
OVERLAP_MS = 5000
"""A transaction may commit a little after the time it wrote."""
SETTLE_MS = 3000
ACTOR = "policy"


class PolicyReconciler:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        *,
        stores: Stores,
        fleet: Fleet,
        resolver: Resolver,
        builds: FleetBuilds,
        exhausted_retry: ExhaustedRetry,
        clock: Clock,
        ids: Ids,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        # Only one frontend reconciles. The expected generations already make it safe; the lease avoids double work.
        self.loop = Reconciler(
            "policies", self._reconcile, runtime, every_s=EVERY_S, gather_s=GATHER_S, lease_ttl_s=LEASE_TTL_S
        )
        self._stores, self._fleet, self._resolver = stores, fleet, resolver
        self._clock, self._ids, self._on_change = clock, ids, on_change
        self._preview = PolicyPreview(resolver, builds, clock)
        self._lookups = Lookups(resolver, builds, clock=clock, on_answer=self._look_at)
        self.exhausted_retry = exhausted_retry
        self._edition: int | None = None
        self._galleries_changed_ms = 0
        self._since_ms = 0
        self._all_due_s = 0.0
        self._recently_changed: dict[NodeId, float] = {}
        """Changed nodes, and until when they are checked: an intent that has just ended must settle."""
        self._due_s: dict[NodeId, float] = {}
        """Nodes with exhausted retries, and when they are checked again."""

    async def read_states(self) -> list[NodeBackends]:
        nodes = [node for node in await self._stores.nodes.read_all() if takes_backends(node)]
        return await self._fleet.read_states(nodes)

    async def read_snapshot(self) -> FleetSnapshot:
        states, policies = await self.read_states(), await self._stores.policies.read_all()
        # In a thread: thousands of rows would delay requests on the event loop.
        questions = await asyncio.to_thread(find_unresolved_policies, states, policies)
        return FleetSnapshot(
            states=states,
            policies=policies,
            processes=await self._stores.observed.read_processes(),
            previews=await self._preview.read(questions),
            models=models_by_family(model.config for model in await self._stores.models.read_all()),
        )

    async def run(self) -> None:
        try:
            await self.loop.run()
        finally:
            self._lookups.close()

    async def _reconcile(self, _run: ReconcileRun) -> None:
        now_s = self._clock.monotonic_s()
        now_ms, due = await self._find_due_nodes(now_s)
        nodes = [node for node in due if takes_backends(node)]
        policies = await self._stores.policies.read_all()
        for start in range(0, len(nodes), NODES_AT_ONCE):
            states = await self._fleet.read_states(nodes[start : start + NODES_AT_ONCE])
            self._note_due(states, now_ms, now_s)
            by_id = {state.node.id: state for state in states}
            corrections = plan_corrections(
                states,
                policies,
                now_ms=now_ms,
                settle_ms=SETTLE_MS,
                exhausted_retry=self.exhausted_retry,
                galleries_changed_ms=self._galleries_changed_ms,
            )
            for (backend, verb), group in _in_order(corrections):
                await self._correct(backend, verb, group, by_id, policies)
            nodes_by_id = {id_: state.node for id_, state in by_id.items()}
            self._lookups.check(find_stuck(states), nodes_by_id, self._renew, self._explain)
            await asyncio.sleep(0)  # a large fleet must not delay requests

    async def _find_due_nodes(self, now_s: float) -> tuple[int, list[Node]]:
        """The store's time, and the nodes to check."""
        now_ms, changed, policy_changed = await self._stores.intents.read_changed(self._since_ms)
        is_new = self._is_new_edition(now_ms)  # in every run: seen later, it would look like a change after a failure
        look_at_all = self._since_ms == 0 or policy_changed or now_s >= self._all_due_s or is_new
        self._since_ms = now_ms - OVERLAP_MS
        if look_at_all:
            self._all_due_s = now_s + LOOK_AT_ALL_EVERY_S
        self._recently_changed = {
            node_id: until_s for node_id, until_s in self._recently_changed.items() if until_s > now_s
        }
        self._recently_changed.update(dict.fromkeys(changed, now_s + 2 * SETTLE_MS / 1000))
        due = {node_id for node_id, due_s in self._due_s.items() if due_s <= now_s}
        if not look_at_all and not self._recently_changed and not due:
            return now_ms, []
        nodes = await self._stores.nodes.read_all()
        return now_ms, nodes if look_at_all else [
            node for node in nodes if node.id in self._recently_changed or node.id in due
        ]

    def _is_new_edition(self, now_ms: int) -> bool:
        before, self._edition = self._edition, self._resolver.edition
        if before is None or before == self._edition:
            return False
        self._galleries_changed_ms = now_ms
        return True

    def _look_at(self, nodes: Iterable[NodeId]) -> None:
        """Checks these nodes soon: a lookup that their corrections waited for has an answer."""
        until_s = self._clock.monotonic_s() + 2 * SETTLE_MS / 1000
        self._recently_changed.update(dict.fromkeys(nodes, until_s))
        self.loop.notify()

    def _note_due(self, states: Iterable[NodeBackends], now_ms: int, now_s: float) -> None:
        waits = (self.exhausted_retry.on_change_after_ms, self.exhausted_retry.again_after_ms)
        for state in states:
            ends = [one.finished_at or 0 for one in state.newest.values() if one.state is IntentState.DEAD_LETTERED]
            if not ends:
                self._due_s.pop(state.node.id, None)
                continue
            due_ms = [end + wait_ms - now_ms for end in ends for wait_ms in waits if end + wait_ms > now_ms]
            # Free disk space and conditions come with heartbeats, which are no change of the node's row.
            self._due_s[state.node.id] = now_s + min([EXHAUSTED_EVERY_S, *(one / 1000 for one in due_ms)])

    async def _correct(
        self,
        backend: str,
        verb: Verb,
        group: Sequence[Correction],
        states: Mapping[NodeId, NodeBackends],
        policies: Sequence[Policy],
    ) -> None:
        found = {correction: self._find_spec(correction, states[correction.node_id], policies) for correction in group}
        self._lookups.request(
            [(correction, states[correction.node_id].node) for correction in group if found[correction] is None]
        )
        for correction, answer in found.items():
            failed = states[correction.node_id].newest.get(backend)
            if isinstance(answer, Impossible) and failed is not None:
                await self._explain(failed, answer.reason)
        intents = [
            NewIntent(
                node_id=correction.node_id,
                node_name=states[correction.node_id].node.name,
                backend=backend,
                spec=answer.spec,
                note=answer.note,
                expected_generation=correction.expected_generation,
                desired_generation=correction.desired_generation,
            )
            for correction, answer in found.items()
            if isinstance(answer, LookupAnswer)
        ]
        if not intents:
            return
        admission = Admission(
            id=self._ids.uuid(),
            verb=verb,
            backend=backend,
            reference=intents[0].spec.reference,
            target=Target(nodes=tuple(intent.node_id for intent in intents)),
            actor=ACTOR,
            cause="policy",
            intents=tuple(intents),
            node_id=intents[0].node_id if len(intents) == 1 else None,
        )
        log.info("policy.corrected", backend=backend, verb=verb.value, nodes=[intent.node_name for intent in intents])
        await self._stores.admission.admit(admission)
        await self._on_change()

    def _find_spec(
        self, correction: Correction, state: NodeBackends, policies: Sequence[Policy]
    ) -> LookupAnswer | Impossible | None:
        """None where galleries and registries must be asked first."""
        foreign = bool(correction.spec.galleries) and not correction.spec.build.uris  # only the worker resolves those
        if correction.verb is Verb.DELETE or foreign:
            return LookupAnswer(correction.spec)
        if correction.resolved and not correction.failed_before:
            return LookupAnswer(correction.spec)
        answer = self._lookups.take(correction, state.node)
        if not isinstance(answer, LookupAnswer):
            return answer
        digest = correction.spec.build.digest
        if correction.only_another_version and (answer.unconfirmed or answer.spec.build.digest in ("", digest)):
            return Impossible(f"{short_digest(digest)} did not start, and no other version is known")
        # Only now the names are known that it would have on the node.
        names = names_in(correction.backend, answer.spec)
        conflict = find_conflict(
            find_all_desired(state, policies), correction.verb, names, correction.desired_generation
        )
        return Impossible(f"{conflict} was deleted in the meantime") if conflict is not None else answer

    async def _renew(self, intent: Intent, spec: BackendSpec, note: str) -> None:
        try:
            renewed = await self._stores.admission.renew(intent, spec, note)
        except CorralError as error:  # retried at the next reconcile
            log.warning("policy.not_renewed", backend=intent.backend, node=intent.node_id, error=str(error))
            return
        if renewed:
            log.info("policy.resolved_again", backend=intent.backend, node=intent.node_id, reason=note)
            await self._on_change()

    async def _explain(self, intent: Intent, reason: str) -> None:
        try:
            noted = await self._stores.admission.explain(intent, reason)
        except CorralError as error:  # repeated with the next lookup
            log.warning("policy.not_explained", backend=intent.backend, node=intent.node_id, error=str(error))
            return
        if noted:
            await self._on_change()


def _in_order(corrections: Iterable[Correction]) -> list[tuple[tuple[str, Verb], list[Correction]]]:
    """By backend and verb, deletes first: a backend that was deleted while a node was offline must not be used."""
    groups: dict[tuple[str, Verb], list[Correction]] = {}
    for correction in corrections:
        groups.setdefault((correction.backend, correction.verb), []).append(correction)
    return sorted(groups.items(), key=lambda group: (group[0][1] is not Verb.DELETE, group[0][0]))
