"""Probes attached endpoints, and forgets those that were detached once their open requests have ended."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol

import msgspec
import structlog

from corral.controller.loads.ports import Traffic
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.replicas.attached import (
    FRONTEND_HEADER,
    HOPS_HEADER,
    AttachedEndpoint,
    EndpointState,
    ProbeRecord,
    ProbeResult,
    ServerTrust,
    is_drained,
    judge_probe,
    plan_health,
)
from corral.store.nodes.nodes import NodeStore
from corral.store.serving.attached_endpoints import AttachedEndpointStore
from corral.system.http_call import HttpAnswer, http_call
from corral.system.json import decode_json

log = structlog.get_logger()

EVERY_S = 5.0
MIN_SPACING_S = 1.0
LEASE_TTL_S = 15.0
PROBE_WITHIN_S = 4.0
PROBES_AT_ONCE = 32
LIST_MAX_BYTES = 4 << 20
SETTLE_MS = 3_000
"""Within this time after a detach, every frontend has published how many requests it still has there."""


class ProbeCall(Protocol):
    async def __call__(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str],
        within_s: float,
        most_bytes: int,
        trust: ServerTrust,
    ) -> HttpAnswer: ...


async def probe_endpoint(endpoint: AttachedEndpoint, call: ProbeCall = http_call) -> ProbeResult:
    """Asks the server for its list of models. No redirect is followed, so its key reaches nobody else."""
    url = f"{endpoint.server.text}/models"
    try:
        answer = await call(
            "GET",
            url,
            headers={**endpoint.probe_headers, HOPS_HEADER: endpoint.id},
            within_s=PROBE_WITHIN_S,
            most_bytes=LIST_MAX_BYTES,
            trust=endpoint.trust,
        )
    except OSError as error:
        return ProbeResult(is_well=False, reason=f"no answer: {error}")
    models = _read_models(answer.body) if answer.status == HTTPStatus.OK else frozenset[str]()
    return replace(judge_probe(answer.status, models), frontend=answer.headers.get(FRONTEND_HEADER, ""))


class _Listed(msgspec.Struct, frozen=True):
    id: str = ""


class _List(msgspec.Struct, frozen=True):
    data: list[_Listed] = []


def _read_models(body: bytes) -> frozenset[str]:
    try:
        return frozenset(one.id for one in decode_json(body, _List).data if one.id)
    except msgspec.DecodeError:
        return frozenset()


class AttachedEndpointController:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        endpoints: AttachedEndpointStore,
        *,
        nodes: NodeStore,
        traffic: Traffic,
        drain_ms: int,
        on_change: Callable[[], Awaitable[None]],
        every_s: float = EVERY_S,
    ) -> None:
        self.loop = Reconciler(
            "attached endpoints",
            self._reconcile,
            runtime,
            every_s=every_s,
            min_spacing_s=MIN_SPACING_S,
            lease_ttl_s=LEASE_TTL_S,
            on_standby=lambda: self._records.clear(),
        )
        self._endpoints, self._nodes, self._traffic = endpoints, nodes, traffic
        self._drain_ms, self._on_change = drain_ms, on_change
        self._records: dict[tuple[str, int], ProbeRecord] = {}
        """Of this leader, by id and generation."""

    async def _reconcile(self, run: ReconcileRun) -> None:
        found = await self._endpoints.read_all()
        changed = await self._forget_drained(found, run)
        attached = [one for one in found if one.state is EndpointState.ATTACHED]
        known = self._records
        self._records = {
            (key := (one.id, one.generation)): known.get(key) or ProbeRecord(one.health, one.reason) for one in attached
        }
        limit = asyncio.Semaphore(PROBES_AT_ONCE)

        async def probe(one: AttachedEndpoint) -> bool:
            async with limit:
                return await self._probe(one, run)

        changed = any(await asyncio.gather(*map(probe, attached))) or changed
        if changed:
            await self._on_change()

    async def _probe(self, one: AttachedEndpoint, run: ReconcileRun) -> bool:
        """Whether its health changed."""
        key = one.id, one.generation
        after = self._records[key] = plan_health(self._records[key], await probe_endpoint(one))
        if (after.health, after.reason) == (one.health, one.reason):
            return False
        await self._endpoints.note_health(one, after.health, after.reason, lease=run.lease)
        health, reason = after.health.value, after.reason
        log.info("endpoint.health_changed", model=one.model, url=one.url, health=health, reason=reason)
        return True

    async def _forget_drained(self, found: list[AttachedEndpoint], run: ReconcileRun) -> bool:
        draining = [one for one in found if one.state is EndpointState.DRAINING]
        if not draining:
            return False
        now_ms = await self._nodes.now_ms()
        drained = [
            one.id
            for one in draining
            if is_drained(
                open_requests=self._traffic.total(one.id),
                draining_ms=now_ms - one.changed_at,
                settle_ms=SETTLE_MS,
                drain_ms=self._drain_ms,
            )
        ]
        await self._endpoints.forget(drained, lease=run.lease)
        return bool(drained)
