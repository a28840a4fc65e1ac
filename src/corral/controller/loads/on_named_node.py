"""A load for one node by name: somebody said where, so it goes there, or is refused with the reason. It never waits for
room: whoever said so may say something else."""

import asyncio
from dataclasses import dataclass, replace

from corral.controller.loads.needs import Needs
from corral.controller.loads.ports import Traffic
from corral.core.errors import Conflict
from corral.core.nodes.node import Node
from corral.core.replicas.availability import Availability
from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.core.replicas.on_demand import plan_named
from corral.core.replicas.placement import Waiting, place
from corral.core.replicas.replica import COMING
from corral.core.replicas.scaling import Add, Scheduling
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import StandingReplica
from corral.store.stores import Stores
from corral.system import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLoads:
    stores: Stores
    needs: Needs
    traffic: Traffic
    ids: Ids

    async def step(self, model: StoredModel, node: Node) -> LoadProgress | None:
        """How far it is, begun if need be; None when the node serves it. Raises Conflict where the node cannot."""
        here = [one for one in await self.stores.replicas.read_standing() if _is_here(one, model, node)]
        if any(one.stands is not None and one.stands.standing is Availability.SERVES for one in here):
            return None
        jobs = await self.stores.load_jobs.read_of_model(model.name)
        under_way = next((job for job in jobs if _leads_to(job, node)), None)
        if under_way is not None:
            return under_way.progress()
        returning = next((one.stands.why for one in here if one.stands is not None), None)
        if returning is not None or any(one.row.state in COMING for one in here):
            return LoadProgress(
                model=model.name, state=LoadState.PENDING, node=node.name, reason=returning or "it is being loaded"
            )
        await self._check_place(model, node, jobs)
        add = Add(why=f"an administrator wants it on {node.name}", node_id=node.id)
        await self.stores.load_jobs.ask_more(model.name, model.revision, [add], ids=self.ids)
        return LoadProgress(model=model.name, state=LoadState.PENDING, node=node.name)

    async def _check_place(self, model: StoredModel, node: Node, jobs: list[LoadJob]) -> None:
        fleet = await self.stores.replicas.read_fleet(self.traffic.total)
        rows = [row for row in fleet.replicas if row.model == model.name]
        too_many = plan_named(model.revision, rows, fleet.scheduling.get(model.name) or Scheduling(model=model.name))
        need, setbacks = await asyncio.gather(
            self.needs.find(model, fleet, only_node=node.id), self.stores.load_backoff.read(model.name, model.revision)
        )
        decision = place(replace(need, setbacks=setbacks), [room for room in fleet.rooms if room.id == node.id])
        reasons = [one.reason for one in decision.candidates] if isinstance(decision.outcome, Waiting) else []
        failed = [job.last_error for job in jobs if _is_quiet(job, model, node, now_ms=fleet.now_ms)]
        why = next(iter([*failed, *filter(None, [too_many]), *reasons]), "")
        if why:
            raise Conflict(f"{node.name} cannot take {model.name}: {why}")


def _is_here(one: StandingReplica, model: StoredModel, node: Node) -> bool:
    return one.row.model == model.name and one.row.node_id == node.id and one.row.revision == model.revision


def _leads_to(job: LoadJob, node: Node) -> bool:
    return job.active and (job.target_node == node.id or (job.replica_id is not None and job.node_id == node.id))


def _is_quiet(job: LoadJob, model: StoredModel, node: Node, *, now_ms: int) -> bool:
    """It failed for a reason that is not the node's, and its time has not come."""
    failed = not job.active and job.revision == model.revision and job.due_at > now_ms
    return failed and job.target_node == node.id
