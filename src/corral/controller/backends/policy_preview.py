"""Previews policies on nodes that do not have the backend: which names the build would have, or why none fits."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import structlog

from corral.controller.backends.fleet_builds import FleetBuilds
from corral.controller.backends.resolve import Resolver
from corral.core.backends.build import BuildResolution, ResolvedBackend
from corral.core.backends.conflicts import names_in
from corral.core.backends.desired import PolicyPreviews, UnresolvedPolicy
from corral.core.backends.intents import BackendSpec
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import CorralError
from corral.core.nodes.node import Node, NodeId
from corral.system import Clock

log = structlog.get_logger()

LOOK_WITHIN_S = 5.0
KEPT_S = 60.0
"""How long an answer is used, also a missing one."""

_Key = tuple[str, BackendSpec, NodeId, str | None]


class PolicyPreview:
    def __init__(self, resolver: Resolver, builds: FleetBuilds, clock: Clock) -> None:
        self._resolver, self._builds, self._clock = resolver, builds, clock
        self._known: dict[_Key, tuple[float, frozenset[str] | Unfit | None]] = {}
        self._looking = asyncio.Lock()

    async def read(self, questions: Iterable[UnresolvedPolicy]) -> PolicyPreviews:
        """Without those that no gallery or registry answered in time."""
        asked = {_key(one): one for one in questions if not one.spec.galleries}
        async with self._looking:
            now_s = self._clock.monotonic_s()
            self._known = {key: known for key, known in self._known.items() if known[0] > now_s}
            unknown = [one for key, one in asked.items() if key not in self._known]
            # Beforehand, so that the next reader does not wait for the same source.
            self._known |= {_key(one): (now_s + KEPT_S, None) for one in unknown}
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_WITHIN_S):
                    await self._look(unknown, now_s + KEPT_S)
        answers = {(one.backend, one.node.id): self._known[key][1] for key, one in asked.items() if key in self._known}
        return {place: answer for place, answer in answers.items() if answer is not None}

    async def _look(self, questions: Iterable[UnresolvedPolicy], until_s: float) -> None:
        groups: dict[tuple[str, BackendSpec], list[Node]] = {}
        for one in questions:
            groups.setdefault((one.backend, one.spec), []).append(one.node)
        for (backend, spec), nodes in groups.items():
            try:
                offered = await self._resolver.recall_spec(spec, backend, nodes)
                found = await self._builds.in_desired_version(spec, backend, nodes, offered)
            except CorralError as error:
                log.info("policy_preview.unknown", backend=backend, error=str(error))
                continue
            for node in nodes:
                resolution = found[node.id]
                if isinstance(resolution, Unresolved) and isinstance(offered[node.id], ResolvedBackend):
                    resolution = Unfit(str(resolution.error))  # it does not have the pinned version
                if isinstance(resolution, Unresolved):
                    log.info("policy_preview.unknown", backend=backend, node=node.id, error=str(resolution.error))
                    continue
                self._known[backend, spec, node.id, node.capability] = until_s, _answer(backend, resolution)


def _key(question: UnresolvedPolicy) -> _Key:
    return question.backend, question.spec, question.node.id, question.node.capability


def _answer(backend: str, found: BuildResolution) -> frozenset[str] | Unfit:
    return found if isinstance(found, Unfit) else names_in(backend, BackendSpec(reference="", build=found.build))
