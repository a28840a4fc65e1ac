"""Keeps what was wanted true: on nodes that join, are approved, return or lost their disks, and after every mishap."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from corral.controller.fleet import Fleet
from corral.controller.prospects import ProspectReader
from corral.controller.resolve import Resolver, wish_of
from corral.core.drift import FleetPicture, Heal, plan_heal
from corral.core.errors import CorralError
from corral.core.intents import Verb, Wish
from corral.core.nodes import Node, NodeId
from corral.core.observed import ObservedProcess
from corral.core.operations import Admission, Order
from corral.core.orders import NodeState
from corral.core.policies import Policy
from corral.core.rivals import names_in
from corral.core.targets import Target, takes_backends
from corral.core.variants import Unfit
from corral.core.wants import find_open_questions, find_rival, find_wants
from corral.store.admission import Admitted
from corral.store.leases import Lease
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
AGAIN_AFTER_S = 60.0
"""When something that could not be looked up is looked up again."""
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


class Leases(Protocol):
    async def hold(self, name: str, holder: str, *, ttl_s: float, fresh: bool = False) -> Lease | None: ...

    async def release(self, lease: Lease) -> None: ...


class DesiredState:
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
        admissions: Admissions,
        leases: Leases,
        clock: Clock,
        ids: Ids,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        self._holder, self._nodes, self._processes, self._policies = holder, nodes, processes, policies
        self._fleet, self._resolver, self._admissions, self._leases = fleet, resolver, admissions, leases
        self._clock, self._ids, self._on_change, self._changes = clock, ids, on_change, changes
        self._prospects = ProspectReader(resolver, clock)
        self._poked = asyncio.Event()
        self._lease: Lease | None = None
        self._not_before_s: dict[tuple[str, NodeId], float] = {}
        self._since_ms = 0
        self._all_due_s = 0.0
        self._restless: dict[NodeId, float] = {}
        """Nodes on which something changed, and until when they are looked at: what has just ended has to settle."""

    def poke(self) -> None:
        self._poked.set()

    async def read_states(self) -> list[NodeState]:
        nodes = [node for node in await self._nodes.read_all() if takes_backends(node)]
        return await self._fleet.read_states(nodes)

    async def read_picture(self) -> FleetPicture:
        states, policies = await self.read_states(), await self._policies.read_all()
        # Thousands of rows: not on the loop, where requests would wait for it.
        questions = await asyncio.to_thread(find_open_questions, states, policies)
        return FleetPicture(
            states=states,
            policies=policies,
            processes=await self._processes.read_processes(),
            prospects=await self._prospects.read(questions),
        )

    async def run(self) -> None:
        while True:
            await self._turn()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._poked.wait()
            await asyncio.sleep(LOOK_AT_MOST_EVERY_S)
            self._poked.clear()

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
            heals = plan_heal(states, policies, now_ms=now_ms, settle_ms=SETTLE_MS)
            due = [heal for heal in heals if now_s >= self._not_before_s.get((heal.backend, heal.node_id), 0.0)]
            groups: dict[tuple[str, Verb], list[Heal]] = {}
            for heal in due:
                groups.setdefault((heal.backend, heal.verb), []).append(heal)
            by_id = {state.node.id: state for state in states}
            for (backend, verb), group in groups.items():
                await self._heal(backend, verb, group, by_id, policies)
            await asyncio.sleep(0)  # a large fleet must not delay requests

    async def _worth_a_look(self, now_s: float) -> tuple[int, list[Node]]:
        """The store's time, and the nodes."""
        now_ms, changed, policy_changed = await self._changes.read_changed(self._since_ms)
        look_at_all = self._since_ms == 0 or policy_changed or now_s >= self._all_due_s
        self._since_ms = now_ms - OVERLAP_MS
        if look_at_all:
            self._all_due_s = now_s + LOOK_AT_ALL_EVERY_S
        self._restless = {node_id: until_s for node_id, until_s in self._restless.items() if until_s > now_s}
        self._restless.update(dict.fromkeys(changed, now_s + 2 * SETTLE_MS / 1000))
        if not look_at_all and not self._restless:
            return now_ms, []
        nodes = await self._nodes.read_all()
        return now_ms, nodes if look_at_all else [node for node in nodes if node.id in self._restless]

    async def _heal(
        self,
        backend: str,
        verb: Verb,
        group: Sequence[Heal],
        states: Mapping[NodeId, NodeState],
        policies: Sequence[Policy],
    ) -> None:
        orders = []
        for heal in group:
            state = states[heal.node_id]
            known = heal.resolved or verb is Verb.DELETE
            wish = heal.wish if known else await self._look_up(heal, state, policies)
            if wish is not None:
                orders.append(
                    Order(
                        node_id=heal.node_id,
                        node_name=state.node.name,
                        backend=backend,
                        wish=wish,
                        expected_generation=heal.expected_generation,
                        asked_generation=heal.asked_generation,
                    )
                )
        if not orders:
            return
        admission = Admission(
            id=self._ids.uuid(),
            verb=verb,
            backend=backend,
            element=orders[0].wish.element,
            target=Target(nodes=tuple(order.node_id for order in orders)),
            actor=ACTOR,
            cause="policy",
            orders=tuple(orders),
            node_id=orders[0].node_id if len(orders) == 1 else None,
        )
        log.info("desired.healed", backend=backend, verb=verb.value, nodes=[order.node_name for order in orders])
        await self._admissions.admit(admission)
        await self._on_change()

    async def _look_up(self, heal: Heal, state: NodeState, policies: Sequence[Policy]) -> Wish | None:
        wish, node = heal.wish, state.node
        try:
            if wish.galleries:
                return wish
            found = (await self._resolver.resolve_wish(wish, heal.backend, [node]))[node.id]
        except CorralError as error:
            self._later(heal, str(error))
            return None
        if isinstance(found, Unfit):
            self._later(heal, found.reason)
            return None
        galleries = "" if wish.uri else self._resolver.galleries_text()
        resolved = wish_of(found, element=wish.element, uri=wish.uri, galleries=galleries)
        # Only now it is known under which names it would be there.
        names = names_in(heal.backend, resolved)
        rival = find_rival(find_wants(state, policies), heal.verb, names, heal.asked_generation)
        if rival is not None:
            self._later(heal, f"{rival} was deleted since")
            return None
        return resolved

    def _later(self, heal: Heal, reason: str) -> None:
        key = (heal.backend, heal.node_id)
        if key not in self._not_before_s:
            log.info("desired.not_possible", backend=heal.backend, node=heal.node_id, reason=reason)
        self._not_before_s[key] = self._clock.monotonic_s() + AGAIN_AFTER_S
