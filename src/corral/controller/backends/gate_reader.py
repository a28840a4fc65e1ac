"""Reads what the gates of a rollout judge: figures, memory and exits of versions, and the answers to golden prompts."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from corral.controller.backends.figure_sums import FigureSums
from corral.core.backends.gates import (
    GOLDEN_PROMPTS,
    Comparison,
    GateOutcome,
    GateSettings,
    GateVerdict,
    VersionSample,
    describe_exits,
    judge_versions,
    pick_baseline,
)
from corral.core.backends.serving_figures import ServingFigures
from corral.core.causes import brief_cause
from corral.core.errors import CorralError, NotFound
from corral.core.models.config import ModelConfig
from corral.core.models.golden_prompts import GoldenPromptFailed
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.node_class import node_class
from corral.core.nodes.observed import ObservedProcess
from corral.core.nodes.process_exits import ENDED
from corral.core.replicas.footprints import FootprintKey
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.sizes import format_bytes
from corral.store.serving.load_backoff import FailedLoad
from corral.store.serving.version_figures import VersionExits, VersionRow
from corral.store.stores import Stores

log = structlog.get_logger()

DOWN_SHOWN = 3
Versions = Mapping[NodeId, tuple[str, str]]
"""The new and the previous digest by node; the previous one is empty where there was none."""


class GoldenPrompts(Protocol):
    async def run(self, config: ModelConfig, replica: Replica) -> int:
        """Sends the golden prompts of the model to this replica. Returns how many there are; 0 if the model has none.
        Raises GoldenPromptFailed for the first that fails, and another CorralError when the replica could not be
        asked."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Everything that one judgement reads."""

    nodes: Mapping[NodeId, Node]
    """Those of the wave."""
    classes: Mapping[str, str]
    """The class of every node."""
    new: Sequence[VersionRow]
    old: Sequence[VersionRow]
    old_before: Sequence[VersionRow]
    """From before the rollout; they do not change."""
    footprints: Mapping[FootprintKey, int | None]
    processes: Mapping[NodeId, tuple[ObservedProcess, ...]]
    revisions: Mapping[tuple[str, str, int], str]
    """Of processes that are down, by node, model and slot."""
    exits: Sequence[VersionExits]
    failed_loads: Sequence[FailedLoad]
    versions: Versions

    def runs_new(self, node_id: NodeId, digest: str) -> bool:
        return node_id in self.versions and digest == self.versions[node_id][0]


class GateReader:
    def __init__(self, stores: Stores, *, prompts: GoldenPrompts | None = None) -> None:
        """`prompts`: None judges no golden prompts."""
        self._stores = stores
        self._prompts = prompts
        self._sums = FigureSums(stores.version_figures)

    async def judge(
        self,
        *,
        backend: str,
        nodes: Sequence[NodeId],
        versions: Versions,
        since_ms: int,
        settings: GateSettings,
    ) -> list[GateVerdict]:
        """Judges the new version of a backend on these nodes from `since_ms` on, by the store's clock, against the
        previous version on all nodes of the same class. It changes nothing, and any frontend may repeat it."""
        log.debug("gates.judge", backend=backend, nodes=len(nodes), since_ms=since_ms)
        chosen = {node_id: versions[node_id] for node_id in nodes if node_id in versions}
        seen = await self._read(chosen, since_ms=since_ms, settings=settings)
        return judge_versions(_compare(seen, settings), settings)

    async def judge_prompts(
        self, *, nodes: Sequence[NodeId], versions: Versions, answered: Collection[GateVerdict] = ()
    ) -> list[GateVerdict]:
        """Sends the golden prompts of models that the previous version has served to replicas of the new version on
        these nodes, one replica for each model and class. This may take minutes. `answered`: earlier verdicts; what
        they judge is not sent again."""
        if self._prompts is None:
            return []
        chosen = {node_id: versions[node_id] for node_id in nodes if node_id in versions}
        classes = {node.id: node_class(node) for node in await self._stores.nodes.read_all() if node.id in chosen}
        old = {old for _, old in chosen.values() if old} - {new for new, _ in chosen.values()}
        footprints = await self._stores.footprints.read_versions(old)
        served = {(key.model, key.revision, key.node_class) for key in footprints}
        replicas: dict[tuple[str, str], Replica] = {}
        for node_id, where in sorted(classes.items()):
            for replica in await self._stores.replicas.read_of_node(node_id):
                is_new = replica.state is ReplicaState.READY and replica.backend_digest == chosen[node_id][0]
                if is_new and (replica.model, replica.revision, where) in served:
                    replicas.setdefault((replica.model, where), replica)
        prompted = {
            (model.name, where)
            for model in await self._stores.models.read_all()
            if model.served and model.config.golden_prompts
            for where in classes.values()
            if (model.name, model.revision, where) in served
        }
        judged = {(one.model, one.node_class): one for one in answered if one.outcome is not GateOutcome.UNJUDGED}
        found = []
        for model, where in sorted(prompted | replicas.keys()):
            verdict = judged.get((model, where)) or await self._judge_replica(
                self._prompts, replicas.get((model, where)), model, where
            )
            if verdict is not None:
                found.append(verdict)
        return found

    async def _read(self, versions: Versions, *, since_ms: int, settings: GateSettings) -> _Seen:
        stores = self._stores
        every = await stores.nodes.read_all()
        new = {new for new, _ in versions.values() if new}
        old = {old for _, old in versions.values() if old} - new
        now_ms, look_back_ms = await stores.rollouts.now_ms(), round(settings.look_back_s * 1000)
        reported = await stores.observed.read_processes()
        processes = {node_id: reported.get(node_id, ()) for node_id in versions}
        down = [node_id for node_id, found in processes.items() if any(one.state in ENDED for one in found)]
        return _Seen(
            nodes={node.id: node for node in every if node.id in versions},
            classes={node.id: node_class(node) for node in every},
            new=await self._sums.read(new, since_ms=since_ms, now_ms=now_ms),
            old=await self._sums.read(old, since_ms=since_ms, now_ms=now_ms),
            old_before=await self._sums.read(old, since_ms=since_ms - look_back_ms, until_ms=since_ms, now_ms=now_ms),
            footprints=await stores.footprints.read_versions(new | old),
            processes=processes,
            revisions={
                (node_id, replica.model, replica.slot): replica.revision
                for node_id in down
                for replica in await stores.replicas.read_of_node(node_id)
            },
            exits=await stores.version_figures.read_exits(digests=new, since_ms=since_ms),
            failed_loads=await stores.load_backoff.read_failed(digests=new, since_ms=since_ms),
            versions=versions,
        )

    async def _judge_replica(
        self, prompts: GoldenPrompts, replica: Replica | None, model: str, where: str
    ) -> GateVerdict | None:
        def verdict(outcome: GateOutcome, detail: str) -> GateVerdict:
            return GateVerdict(gate=GOLDEN_PROMPTS, outcome=outcome, detail=detail, model=model, node_class=where)

        if replica is None:
            return verdict(GateOutcome.UNJUDGED, "no replica of the new version is ready to answer the golden prompts")
        try:
            count = await prompts.run(await self._stores.models.read_config(model, replica.revision), replica)
        except NotFound:
            return None  # the model was deleted
        except GoldenPromptFailed as error:
            return verdict(GateOutcome.FAILED, str(error))
        except CorralError as error:
            return verdict(GateOutcome.UNJUDGED, f"the golden prompts could not be sent: {brief_cause(str(error))}")
        if not count:
            return None
        return verdict(GateOutcome.PASSED, f"{count} golden prompt{'s' if count > 1 else ''} answered as expected")


def _compare(seen: _Seen, settings: GateSettings) -> list[Comparison]:
    by_class: dict[str, list[NodeId]] = {}
    for node_id in seen.nodes:
        by_class.setdefault(seen.classes[node_id], []).append(node_id)
    return [one for where, ids in sorted(by_class.items()) for one in _compare_class(seen, settings, where, ids)]


def _compare_class(seen: _Seen, settings: GateSettings, where: str, ids: Collection[NodeId]) -> list[Comparison]:
    new_digests = {seen.versions[node_id][0] for node_id in ids}
    old_digests = {seen.versions[node_id][1] for node_id in ids} - new_digests - {""}
    processes = [
        (node_id, process)
        for node_id in ids
        for process in seen.processes[node_id]
        if process.model and process.digest and seen.runs_new(node_id, process.digest)
    ]
    new = _by_model(row for row in seen.new if _is_new(seen, ids, row.key.node_id, row.key.digest))
    old, old_before = (
        _by_model(row for row in rows if row.key.digest in old_digests and seen.classes.get(row.key.node_id) == where)
        for rows in (seen.old, seen.old_before)
    )
    failures = list(_failures(seen, ids, processes))
    models = {*new, *(process.model for _, process in processes), *(one.model for one in failures)}
    if not models:
        return [Comparison(model="", node_class=where, new=VersionSample(), ran=False)]
    footprints = {key: peak for key, peak in seen.footprints.items() if key.node_class == where}
    served = {(key.model, key.revision) for key in footprints if key.digest in old_digests}
    found = []
    for model in sorted(models):
        peak, peak_before, differs = _peaks(footprints, model, new_digests, old_digests)
        mine = [one for one in failures if one.model == model]
        own = [one for one in mine if (model, one.revision) in served]
        none = ServingFigures()
        figures, at_the_same_time = pick_baseline(old.get(model, none), old_before.get(model, none), settings)
        before = VersionSample(figures=figures, memory_bytes=peak_before)
        found.append(
            Comparison(
                model=model,
                node_class=where,
                new=VersionSample(
                    figures=new.get(model, ServingFigures()),
                    memory_bytes=peak,
                    exits=sum(one.exits for one in own),
                ),
                old=before if old_digests else None,
                at_the_same_time=at_the_same_time,
                memory_differs=differs,
                ran=model in new or any(one.model == model and one.state not in ENDED for _, one in processes),
                served_before=figures.requests > 0 or any(name == model for name, _ in served),
                problems=_describe(own),
                unrelated=_describe_unrelated([one for one in mine if one not in own]),
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """Of a process or a load of the new version."""

    model: str
    revision: str
    """Empty if it is not known."""
    exits: int = 0
    down: str = ""
    """The key of a process that is not running now."""
    load_error: str = ""


def _failures(
    seen: _Seen, ids: Collection[NodeId], processes: Iterable[tuple[NodeId, ObservedProcess]]
) -> Iterator[_Failure]:
    for row in seen.exits:
        if _is_new(seen, ids, row.node_id, row.digest):
            yield _Failure(model=row.model, revision=row.revision, exits=row.exits)
    for node_id, process in processes:
        if process.state in ENDED:
            revision = seen.revisions.get((node_id, process.model, process.replica), "")
            yield _Failure(model=process.model, revision=revision, down=process.process_key)
    for load in seen.failed_loads:
        if _is_new(seen, ids, load.node_id, load.digest):
            yield _Failure(model=load.model, revision=load.revision, load_error=load.error)


def _describe(failures: Sequence[_Failure]) -> tuple[str, ...]:
    """What is not running, and the error of one load. Exits are counted."""
    down = sorted(one.down for one in failures if one.down)
    parts = [f"{', '.join(down[:DOWN_SHOWN])} {'is' if len(down) == 1 else 'are'} not running now"] if down else []
    errors = [
        f"a load of {one.model} with it failed: {brief_cause(one.load_error)}" for one in failures if one.load_error
    ]
    return (*parts, *errors[:1])


def _describe_unrelated(failures: Sequence[_Failure]) -> tuple[str, ...]:
    exits = sum(one.exits for one in failures)
    return (describe_exits(exits), *_describe(failures)) if exits else _describe(failures)


def _is_new(seen: _Seen, ids: Collection[NodeId], node_id: str, digest: str) -> bool:
    return node_id in ids and seen.runs_new(NodeId(node_id), digest)


def _by_model(rows: Iterable[VersionRow]) -> dict[str, ServingFigures]:
    found: dict[str, ServingFigures] = {}
    for row in rows:
        known = found.get(row.key.model)
        found[row.key.model] = row.figures if known is None else known + row.figures
    return found


def _peaks(
    footprints: Mapping[FootprintKey, int | None], model: str, new: Collection[str], old: Collection[str]
) -> tuple[int | None, int | None, str]:
    """The peaks of both versions with a revision that both served, in engines that were fitted to the same memory; or
    why there are none."""
    after: dict[tuple[str, int], int] = {}
    before: dict[tuple[str, int], int] = {}
    for key, peak in footprints.items():
        if peak is not None and key.model == model and (key.digest in new or key.digest in old):
            side, place = after if key.digest in new else before, (key.revision, key.fitted_bytes)
            side[place] = max(side.get(place, 0), peak)
    both = after.keys() & before.keys()
    if both:
        place = max(both, key=lambda one: after[one])
        return after[place], before[place], ""
    if not after:
        return None, None, ""
    place = max(after, key=lambda one: after[one])
    others = [one for one in before if one[0] == place[0]]
    if not others:
        return after[place], None, ""
    other = max(others, key=lambda one: before[one])
    return after[place], before[other], _describe_fitted(place[1], other[1])


def _describe_fitted(new_bytes: int, old_bytes: int) -> str:
    new, old = (format_bytes(fitted) if fitted else "an unknown amount" for fitted in (new_bytes, old_bytes))
    return (
        f"the engine was fitted to {new} of memory, that of the previous version to {old}; what they use of it is not"
        " compared"
    )
