"""Attached endpoints: servers that already run and serve a model beside its replicas, or in their place."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import msgspec

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.models.config import ATTACHED
from corral.core.replicas.attached import (
    ENDPOINTS_MAX,
    MESSAGES_PATHS,
    AttachedEndpoint,
    AttachedServer,
    EndpointHealth,
    EndpointState,
    ServerTrust,
    UpstreamProtocol,
    find_attached,
    keep_settings,
)
from corral.core.replicas.availability import Availability, AvailabilityVerdict
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.routing import OPENAI, ReplicaId, RouteReplica
from corral.store.access.audit_events import append_event
from corral.store.engine.counters import MODELS, ROUTES, bump_counter, lock_counter
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.leases import Lease, check_held
from corral.store.serving.models import StoredModel, parse_config_text, read_models, save_config

REASON_MAX_CHARS = 500


def _endpoint(row: Row) -> AttachedEndpoint:
    return AttachedEndpoint(
        id=row["id"],
        model=row["model"],
        url=row["url"],
        upstream_model=row["upstream_model"],
        protocol=UpstreamProtocol(row["protocol"]),
        endpoints=tuple(row["endpoints"].split()),
        continuation=row["continuation"],
        api_key=row["api_key"],
        trust=ServerTrust(ca_pem=row["ca_pem"], pin=row["pin"]),
        capacity=row["capacity"],
        weight=row["weight"],
        state=EndpointState(row["state"]),
        health=EndpointHealth(row["health"]),
        reason=row["reason"],
        generation=row["generation"],
        last_used=row["last_used"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        changed_at=row["changed_at"],
    )


async def read_endpoints(tx: Tx) -> list[AttachedEndpoint]:
    rows = await tx.fetch("SELECT * FROM attached_endpoints ORDER BY model, created_at, id")
    return [_endpoint(row) for row in rows]


class AttachedEndpointStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_all(self) -> list[AttachedEndpoint]:
        """Sorted by model, the oldest first."""
        return await self._database.read(read_endpoints)

    async def read_of_model(self, model: str) -> list[AttachedEndpoint]:
        return [one for one in await self.read_all() if one.model == model]

    async def attach(
        self, endpoint: AttachedEndpoint, *, actor: str, absent: Collection[str] = ()
    ) -> tuple[AttachedEndpoint, bool]:
        """Attaches the server, and adds the model if there is none of that name. A server that the model already has
        gets the new settings, and keeps those that are `absent`.

        Returns the endpoint as stored, and whether it is new."""

        async def body(tx: Tx) -> tuple[AttachedEndpoint, bool]:
            await lock_counter(tx, MODELS)
            model = await _model_for(tx, endpoint.model, actor)
            found = [one for one in await read_endpoints(tx) if one.model == model.name]
            attached = [one for one in found if one.state is EndpointState.ATTACHED]
            before = find_attached(attached, endpoint, absent=absent)
            if before is None and len(attached) >= ENDPOINTS_MAX:
                raise Conflict(
                    f"{model.name} already has {ENDPOINTS_MAX} attached endpoints, the most that a model may have"
                )
            # Before the row: whoever writes routes holds this counter first.
            version = await bump_counter(tx, ROUTES)
            stored = replace(
                keep_settings(endpoint, before, absent=absent),
                id=before.id if before is not None else endpoint.id,
                model=model.name,
                created_by=before.created_by if before is not None else actor,
                generation=version,
            )
            if before is not None and _connection(before) == _connection(stored):
                stored = replace(stored, generation=before.generation)
            await _put(tx, stored)
            detail = {
                "endpoint": stored.id,
                "url": stored.url,
                "protocol": stored.protocol.value,
                "endpoints": list(stored.endpoints),
                "continuation": stored.continuation,
                "limit": stored.capacity,
                "weight": stored.weight,
                "has_key": bool(stored.api_key),
                "has_ca": bool(stored.trust.ca_pem),
                "pin": stored.trust.pin,
            }
            action = "endpoint.attached" if before is None else "endpoint.changed"
            await append_event(tx, actor=actor, action=action, subject=model.name, detail=detail)
            row = await tx.fetch_one("SELECT * FROM attached_endpoints WHERE id = $1", stored.id)
            assert row is not None
            return _endpoint(row), before is None

        return await self._database.write(body)

    async def detach(self, model: str, id_or_url: str, *, actor: str) -> AttachedEndpoint:
        """The endpoint gets no new requests. It is forgotten when its open requests have ended."""

        async def body(tx: Tx) -> AttachedEndpoint:
            rows = await tx.fetch("SELECT * FROM attached_endpoints WHERE model = $1 ORDER BY id FOR UPDATE", model)
            found = [one for one in map(_endpoint, rows) if one.state is EndpointState.ATTACHED]
            endpoint = _find(model, found, id_or_url)
            await bump_counter(tx, ROUTES)
            await tx.execute(
                "UPDATE attached_endpoints SET state = $2, reason = $3, changed_at = now_ms() WHERE id = $1",
                endpoint.id,
                EndpointState.DRAINING.value,
                f"detached by {actor}"[:REASON_MAX_CHARS],
            )
            detail = {"endpoint": endpoint.id, "url": endpoint.url}
            await append_event(tx, actor=actor, action="endpoint.detached", subject=model, detail=detail)
            return replace(endpoint, state=EndpointState.DRAINING)

        return await self._database.write(body)

    async def note_health(
        self, endpoint: AttachedEndpoint, health: EndpointHealth, reason: str, *, lease: Lease | None = None
    ) -> None:
        """`endpoint`: as it was when it was probed. Nothing is written if its connection was changed since."""

        async def body(tx: Tx) -> None:
            await check_held(tx, lease)
            changed = await tx.execute(
                "UPDATE attached_endpoints SET health = $2, reason = $3, changed_at = now_ms()"
                " WHERE id = $1 AND generation = $4 AND state = $5",
                endpoint.id,
                health.value,
                reason[:REASON_MAX_CHARS],
                endpoint.generation,
                EndpointState.ATTACHED.value,
            )
            if changed:
                await bump_counter(tx, ROUTES)

        await self._database.write(body)

    async def forget(self, ids: Collection[str], *, lease: Lease | None = None) -> None:
        """Deletes endpoints that were detached."""

        async def body(tx: Tx) -> None:
            await check_held(tx, lease)
            await tx.execute_many(
                "DELETE FROM attached_endpoints WHERE id = $1 AND state = $2",
                [(one, EndpointState.DRAINING.value) for one in sorted(ids)],
            )
            await bump_counter(tx, ROUTES)

        if ids:
            await self._database.write(body)


def _connection(one: AttachedEndpoint) -> tuple[object, ...]:
    """What a connection to it, and the form of requests, depend on."""
    return one.url, one.upstream_model, one.protocol, one.api_key, one.trust


async def _model_for(tx: Tx, name: str, actor: str) -> StoredModel:
    models = await read_models(tx)
    found = next((model for model in models if model.name == name or name in model.config.aliases), None)
    if found is not None and found.alias_of:
        raise Conflict(f"{name!r} is an alias of {found.alias_of!r}; attach the endpoint to that model")
    if found is not None:
        return found
    text = f"name: {msgspec.json.encode(name).decode()}\nbackend: {ATTACHED}\n"
    return await save_config(tx, parse_config_text(text), text, actor, new=True)


def _find(model: str, found: Sequence[AttachedEndpoint], id_or_url: str) -> AttachedEndpoint:
    if not found:
        raise NotFound(f"{model} has no attached endpoint")
    named = [one for one in found if id_or_url in (one.id, one.url, one.server.text)]
    named = named or [one for one in found if len(id_or_url) >= 4 and one.id.startswith(id_or_url)]
    urls = ", ".join(one.url for one in found)
    if not named:
        raise NotFound(f"{model} has no attached endpoint {id_or_url[:200]!r}; it has {urls}")
    if len(named) > 1:
        raise InvalidInput(f"several endpoints of {model} match {id_or_url[:200]!r}; give the id of one of them")
    return named[0]


async def _put(tx: Tx, one: AttachedEndpoint) -> None:
    await tx.execute(
        "INSERT INTO attached_endpoints (id, model, url, upstream_model, protocol, api_key, ca_pem, pin, capacity,"
        " weight, state, health, reason, generation, last_used, created_at, created_by, changed_at, endpoints,"
        " continuation)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, now_ms(), now_ms(), $15, now_ms(), $16,"
        " $17)"
        " ON CONFLICT (id) DO UPDATE SET url = excluded.url, protocol = excluded.protocol,"
        " endpoints = excluded.endpoints, continuation = excluded.continuation, api_key = excluded.api_key,"
        " ca_pem = excluded.ca_pem, pin = excluded.pin, capacity = excluded.capacity,"
        " weight = excluded.weight, health = excluded.health, reason = excluded.reason,"
        " generation = excluded.generation, changed_at = excluded.changed_at",
        one.id,
        one.model,
        one.url,
        one.upstream_model,
        one.protocol.value,
        one.api_key,
        one.trust.ca_pem,
        one.trust.pin,
        one.capacity,
        one.weight,
        one.state.value,
        one.health.value,
        one.reason[:REASON_MAX_CHARS],
        one.generation,
        one.created_by,
        " ".join(one.endpoints),
        one.continuation,
    )


# As replicas


def route_endpoints(endpoints: Sequence[AttachedEndpoint], *, revision: str) -> tuple[RouteReplica, ...]:
    """`endpoints`: of one model. Those that get requests."""
    return tuple(
        RouteReplica(
            id=ReplicaId(one.id),
            node_id=one.server.address,
            node_name=one.server.address,
            slot=slot,
            address=one.server.address,
            protocol=OPENAI,
            endpoints=MESSAGES_PATHS if one.protocol is UpstreamProtocol.ANTHROPIC else frozenset(one.endpoints),
            continuation=one.continuation,
            token=one.api_key,
            generation=one.generation,
            capacity=one.capacity,
            revision=revision,
            weight=one.weight,
            attached=AttachedServer(url=one.server, protocol=one.protocol, model=one.upstream_model, trust=one.trust),
        )
        for slot, one in _with_slots(endpoints)
        if one.is_routed
    )


def as_replicas(
    endpoints: Sequence[AttachedEndpoint],
) -> list[tuple[Replica, AvailabilityVerdict | None]]:
    """`endpoints`: of one model. As they are listed among its replicas, without their keys."""
    return [(_replica(one, slot), _verdict(one)) for slot, one in _with_slots(endpoints)]


def _with_slots(endpoints: Sequence[AttachedEndpoint]) -> list[tuple[int, AttachedEndpoint]]:
    """Several endpoints at one address are told apart by a number, as replicas on one node are."""
    at_address: dict[str, int] = {}
    found = []
    for one in endpoints:
        slot = at_address.get(one.server.address, 0)
        at_address[one.server.address] = slot + 1
        found.append((slot, one))
    return found


def _replica(one: AttachedEndpoint, slot: int) -> Replica:
    return Replica(
        id=one.id,
        node_id=one.server.address,
        model=one.model,
        slot=slot,
        revision="",
        state=ReplicaState.READY if one.state is EndpointState.ATTACHED else ReplicaState.DRAINING,
        reason=one.reason,
        address=one.server.address,
        protocol=one.protocol.value,
        backend=ATTACHED,
        capacity=one.capacity,
        last_used=one.last_used,
        created_at=one.created_at,
        changed_at=one.changed_at,
    )


def _verdict(one: AttachedEndpoint) -> AvailabilityVerdict | None:
    if one.state is not EndpointState.ATTACHED:
        return None
    serves = one.health is EndpointHealth.HEALTHY
    return AvailabilityVerdict(Availability.SERVES if serves else Availability.OFFLINE, one.reason)
