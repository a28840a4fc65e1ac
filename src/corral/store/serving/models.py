"""Model configurations: the current ones, earlier revisions and pending ones.

An edit that requires a reload is pending while replicas of the current revision serve: it takes effect when a replica
of it is ready (ADR 0817). A deleted model keeps its row, under a revision of its own, so that its replicas are outdated
like those of an edited model.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.models.config import (
    CONFIG_MOST_BYTES,
    ModelConfig,
    canonical_json,
    config_revision,
    deleted_revision,
    parse_model_config,
)
from corral.core.models.load_plan import find_clash
from corral.core.models.revisions import RevisionState, is_same_load, must_be_proven
from corral.core.replicas.replica import ReplicaState
from corral.core.suggestions import near_names
from corral.store.access.audit_events import append_event
from corral.store.engine.counters import MODELS, ROUTES, bump_counter, lock_counter, read_counter
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.leases import Lease, check_held
from corral.store.serving.bucket_rows import leave_unused
from corral.store.serving.documents import read_document
from corral.store.serving.load_backoff import clear_load_backoff
from corral.store.serving.load_job_rows import end_jobs, forget_failed
from corral.store.serving.pending_revisions import (
    PendingRevision,
    delete_pending,
    find_pending,
    insert_pending,
    read_pending,
)
from corral.store.serving.public_route_rows import read_public_routes
from corral.store.serving.replica_rows import read_replicas, set_states
from corral.store.serving.revision_rows import (
    ModelRevision,
    append_revision,
    carry_served,
    discard_pending,
    make_current,
    revision_of,
)
from corral.system.yaml import load_yaml

_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    name: str
    revision: str
    number: int
    """Of the revision, counted from 1 for each model."""
    text: str
    """The YAML as written by its author."""
    config: ModelConfig
    aliases: tuple[str, ...]
    """All other names of the model: aliases in its configuration, and models that are an alias of it (`alias:`)."""
    changed_at: int
    changed_by: str
    pending: PendingRevision | None = None
    """A newer revision that does not serve yet."""

    @property
    def newest(self) -> "StoredModel":
        """The last saved revision, even if it is pending."""
        pending = self.pending
        if pending is None:
            return self
        return replace(
            self,
            revision=pending.revision,
            number=pending.number,
            text=pending.text,
            config=pending.config,
            changed_at=pending.changed_at,
            changed_by=pending.changed_by,
            pending=None,
        )

    def of_revision(self, revision: str) -> "StoredModel | None":
        """The current or the pending revision; None if it is neither."""
        return next((one for one in (self, self.newest) if one.revision == revision), None)

    @property
    def alias_of(self) -> str:
        return self.config.alias_of

    @property
    def served(self) -> bool:
        """Whether it may have replicas: an alias or a disabled model has none."""
        return not self.config.alias_of and not self.config.disabled


def parse_config_text(text: str) -> ModelConfig:
    if len(text.encode()) > CONFIG_MOST_BYTES:
        raise InvalidInput(f"the model configuration exceeds {CONFIG_MOST_BYTES >> 20} MiB")
    return parse_model_config(load_yaml(text))


def _stored(row: Row, pending: PendingRevision | None) -> StoredModel:
    return StoredModel(
        name=row["name"],
        revision=row["revision"],
        number=row["number"],
        text=row["config"],
        config=read_document(row["document"]),
        aliases=_decode_names(row["aliases"]),
        changed_at=row["changed_at"],
        changed_by=row["changed_by"],
        pending=pending if pending is not None and pending.replaces == row["revision"] else None,
    )


async def read_models(tx: Tx) -> list[StoredModel]:
    """All models, for transactions that read other rows too."""
    pending = await read_pending(tx)
    rows = await tx.fetch("SELECT * FROM models WHERE deleted_at IS NULL ORDER BY name")
    return [_stored(row, pending.get(row["name"])) for row in rows]


async def read_served_models(tx: Tx) -> list[StoredModel]:
    return [model for model in await read_models(tx) if model.served]


async def find_model(tx: Tx, name: str) -> StoredModel | None:
    row = await tx.fetch_one("SELECT * FROM models WHERE name = $1 AND deleted_at IS NULL", name)
    return _stored(row, await find_pending(tx, name)) if row else None


async def lock_model(tx: Tx, name: str) -> None:
    """Serialize loads, edits and deletes of the model, until the end of the transaction."""
    await tx.fetch_one("SELECT name FROM models WHERE name = $1 FOR UPDATE", name)


def unknown_model(name: str, names: Iterable[str]) -> NotFound:
    near = near_names(name, list(names))
    hint = f"did you mean {', '.join(near)}?" if near else "list the models with `corral models list`"
    return NotFound(f"there is no model {name!r}; {hint}")


class ModelStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, name: str) -> StoredModel:
        """By name or alias. The name of a model that is itself an alias returns that model, not its target."""

        async def body(tx: Tx) -> StoredModel:
            model = await find_model(tx, name)
            if model is not None:
                return model
            models = await read_models(tx)
            for candidate in models:
                if name in candidate.aliases:
                    return candidate
            raise unknown_model(name, (model.name for model in models))

        return await self._database.read(body)

    async def read_all(self) -> list[StoredModel]:
        return await self._database.read(read_models)

    async def read_revisions(self, name: str) -> list[ModelRevision]:
        """Newest first."""

        async def body(tx: Tx) -> list[ModelRevision]:
            rows = await tx.fetch("SELECT * FROM model_revisions WHERE model = $1 ORDER BY number DESC", name)
            return [revision_of(row) for row in rows]

        return await self._database.read(body)

    async def read_restorable(self) -> Mapping[str, int]:
        """Models whose current revision has never been ready, with the number of the last one that was."""

        async def body(tx: Tx) -> Mapping[str, int]:
            rows = await tx.fetch(
                "SELECT models.name, MAX(earlier.number) AS number FROM models"
                " JOIN model_revisions AS own ON own.model = models.name AND own.number = models.number"
                " JOIN model_revisions AS earlier ON earlier.model = models.name AND earlier.number < models.number"
                " WHERE models.deleted_at IS NULL AND own.served_at IS NULL AND earlier.served_at IS NOT NULL"
                " GROUP BY models.name"
            )
            return {row["name"]: row["number"] for row in rows}

        return await self._database.read(body)

    async def read_config(self, name: str, revision: str) -> ModelConfig:
        """The configuration of a revision, current or not."""

        async def body(tx: Tx) -> ModelConfig:
            model = await find_model(tx, name)
            found = model.of_revision(revision) if model is not None else None
            if found is not None:
                return found.config
            row = await tx.fetch_one(
                "SELECT config FROM model_revisions WHERE model = $1 AND revision = $2 ORDER BY number DESC LIMIT 1",
                name,
                revision,
            )
            if model is None or row is None or not row["config"]:
                raise NotFound(f"revision {revision[:12]} of the model {name!r} no longer exists")
            return parse_config_text(row["config"])

        return await self._database.read(body)

    async def read_version(self) -> int:
        """The change counter of models."""

        async def body(tx: Tx) -> int:
            return await read_counter(tx, MODELS)

        return await self._database.read(body)

    async def save(
        self, config_yaml: str, actor: str, *, expected: str | None = None, new: bool = False, comment: str = ""
    ) -> StoredModel:
        """Add a model or change its configuration; saving the same text again changes nothing. An edit that requires a
        reload is pending while replicas serve. Saving the text that serves discards a pending revision.

        `expected`: the revision that was edited; raises Conflict if it is not the newest. `new`: raises Conflict if the
        model exists."""
        config = parse_config_text(config_yaml)

        async def body(tx: Tx) -> StoredModel:
            # Saves are serialized: names are unique among models and aliases together, which no index can ensure.
            await lock_counter(tx, MODELS)
            return await save_config(tx, config, config_yaml, actor, expected=expected, new=new, comment=comment)

        return await self._database.write(body)

    async def apply_pending(self, name: str, revision: str, *, lease: Lease | None = None) -> None:
        """Make the pending revision current, unless a replica of the current one serves."""

        async def body(tx: Tx) -> None:
            await check_held(tx, lease)
            await lock_counter(tx, MODELS)
            await lock_model(tx, name)
            model = await find_model(tx, name)
            pending = model.pending if model is not None else None
            if model is None or pending is None or pending.revision != revision or await _has_ready(tx, name):
                return
            await promote(tx, model)
            await bump_counter(tx, ROUTES)

        await self._database.write(body)

    async def delete(self, name: str, actor: str, *, expected: str | None = None) -> StoredModel:
        async def body(tx: Tx) -> StoredModel:
            await lock_counter(tx, MODELS)
            models = {model.name: model for model in await read_models(tx)}
            if name not in models:
                raise unknown_model(name, models)
            before = models[name]
            _check_expected(name, before, expected=expected, new=False)
            redirects = [model.name for model in models.values() if model.alias_of == name]
            if redirects:
                raise Conflict(
                    f"{', '.join(redirects)} is an alias of {name}; delete it first, or point it to another model"
                )
            routes = [route.name for route in await read_public_routes(tx) if name in route.models]
            if routes:
                names = ", ".join(routes)
                raise Conflict(f"the route {names} leads to {name}; change it with `corral routes set`, or delete it")
            revision = deleted_revision(name)
            number = await append_revision(tx, name, revision, "", state=RevisionState.DELETED, actor=actor, comment="")
            await tx.execute(
                "UPDATE models SET deleted_at = now_ms(), changed_at = now_ms(), changed_by = $2, revision = $3,"
                " number = $4 WHERE name = $1",
                name,
                actor,
                revision,
                number,
            )
            # Its scheduling goes too: a later model of the same name starts without it.
            await tx.execute("DELETE FROM scheduling WHERE model = $1", name)
            await tx.execute("DELETE FROM scaling_states WHERE model = $1", name)
            await delete_pending(tx, name)
            await tx.execute("DELETE FROM attached_endpoints WHERE model = $1", name)
            await _drain(tx, name, "its model was deleted")
            await end_jobs(tx, name, "its model was deleted")
            await clear_load_backoff(tx, name)
            await bump_counter(tx, MODELS)
            await bump_counter(tx, ROUTES)
            await append_event(tx, actor=actor, action="model.deleted", subject=name, detail={})
            await _refresh_aliases(tx, {before.alias_of})
            return before

        return await self._database.write(body)


async def save_config(
    tx: Tx,
    config: ModelConfig,
    config_yaml: str,
    actor: str,
    *,
    expected: str | None = None,
    new: bool = False,
    comment: str = "",
) -> StoredModel:
    """See `ModelStore.save`. The caller has locked the counter of models."""
    models = {model.name: model for model in await read_models(tx)}
    before = models.get(config.name)
    _check_expected(config.name, before, expected=expected, new=new)
    if before is not None and before.newest.text == config_yaml:
        return before
    if before is not None and before.pending is not None and before.text == config_yaml:
        return await _discard(tx, before, before.pending, actor)
    _check_names(config, models.values())
    await _check_route_names(tx, config)
    _check_files(config, models.values(), before)
    await lock_model(tx, config.name)
    if before is not None and must_be_proven(before.config, config) and await _has_ready(tx, config.name):
        number = await _append(tx, config, config_yaml, actor, comment, RevisionState.PENDING)
        await insert_pending(tx, config, config_yaml, actor, replaces=before.revision, number=number)
    else:
        number = await _append(tx, config, config_yaml, actor, comment, RevisionState.CURRENT)
        await _put_current(tx, config, config_yaml, actor, before, number)
    await bump_counter(tx, MODELS)
    if before is None or before.newest.config.document != config.document:
        # Earlier failures were of another configuration.
        await forget_failed(tx, config.name)
        await bump_counter(tx, ROUTES)
        action = "model.changed" if before else "model.added"
        detail = {"number": number, "revision": config_revision(config), "backend": config.backend}
        detail |= {"comment": comment} if comment else {}
        await append_event(tx, actor=actor, action=action, subject=config.name, detail=detail)
    return await _found(tx, config.name)


def _check_expected(name: str, before: StoredModel | None, *, expected: str | None, new: bool) -> None:
    if new and before is not None:
        raise Conflict(f"the model {name!r} already exists; edit it, or choose another name")
    if expected is None:
        return
    if before is None:
        raise Conflict(f"the model {name!r} was deleted in the meantime")
    newest = before.newest
    if newest.revision != expected:
        raise Conflict(
            f"the model {name!r} was changed in the meantime, by {newest.changed_by}; reload it before you edit it"
        )


def _check_names(config: ModelConfig, models: Iterable[StoredModel]) -> None:
    others = [model for model in models if model.name != config.name]
    taken: dict[str, str] = {}
    for model in others:
        taken[model.name] = f"the model {model.name!r}"
        aliases = (*model.config.aliases, *model.newest.config.aliases)
        taken.update(dict.fromkeys(aliases, f"an alias of {model.name!r}"))
    for name in (config.name, *config.aliases):
        if name in taken:
            raise Conflict(f"the name {name!r} is taken by {taken[name]}")
    if not config.alias_of:
        return
    target = next((model for model in others if model.name == config.alias_of), None)
    if target is None:
        raise InvalidInput(f"{config.name!r} is an alias of {config.alias_of!r}, but there is no such model")
    if target.alias_of:
        raise InvalidInput(f"{config.alias_of!r} is itself an alias of {target.alias_of!r}; use that name instead")
    aliased = [model.name for model in others if model.alias_of == config.name]
    if aliased:
        raise InvalidInput(f"{config.name!r} cannot be an alias, because {', '.join(aliased)} is an alias of it")


async def _check_route_names(tx: Tx, config: ModelConfig) -> None:
    """A route may have the name of a model that it leads to: clients of the model then get its fallbacks."""
    names = {config.name, *config.aliases}
    for route in await read_public_routes(tx):
        if route.name in names and config.name not in route.models:
            raise Conflict(f"the name {route.name!r} is taken by a route; see `corral routes list`")


def _check_files(config: ModelConfig, models: Iterable[StoredModel], before: StoredModel | None) -> None:
    written = [one for model in models if model.name != config.name for one in (model, model.newest)]
    others = {one.revision: one.config for one in written}.values()
    clash = find_clash(config, others, before.config if before is not None else None)
    if clash:
        raise Conflict(clash)


async def _append(tx: Tx, config: ModelConfig, text: str, actor: str, comment: str, state: RevisionState) -> int:
    revision = config_revision(config)
    return await append_revision(tx, config.name, revision, text, state=state, actor=actor, comment=comment)


async def _discard(tx: Tx, model: StoredModel, pending: PendingRevision, actor: str) -> StoredModel:
    """Take the pending revision back. The current one keeps serving."""
    await lock_model(tx, model.name)
    await delete_pending(tx, model.name)
    await discard_pending(tx, model.name)
    await forget_failed(tx, model.name)
    await bump_counter(tx, MODELS)
    await bump_counter(tx, ROUTES)
    detail = {"number": pending.number, "revision": pending.revision, "serving": model.number}
    await append_event(tx, actor=actor, action="model.revision_discarded", subject=model.name, detail=detail)
    return await _found(tx, model.name)


async def _write(
    tx: Tx, config: ModelConfig, text: str, actor: str, number: int, *, changed_at: int | None = None
) -> None:
    await tx.execute(
        "INSERT INTO models (name, revision, config, document, backend, aliases, alias_of, changed_at, changed_by,"
        " number) VALUES ($1, $2, $3, $4, $5, '[]', $6, COALESCE(CAST($8 AS BIGINT), now_ms()), $7, $9)"
        " ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, number = excluded.number,"
        " config = excluded.config, document = excluded.document, backend = excluded.backend,"
        " alias_of = excluded.alias_of, changed_at = excluded.changed_at, changed_by = excluded.changed_by,"
        " deleted_at = NULL",
        config.name,
        config_revision(config),
        text,
        canonical_json(config),
        config.backend,
        config.alias_of or None,
        actor,
        changed_at,
        number,
    )


async def _found(tx: Tx, name: str) -> StoredModel:
    stored = await find_model(tx, name)
    assert stored is not None
    return stored


async def _put_current(
    tx: Tx, config: ModelConfig, text: str, actor: str, before: StoredModel | None, number: int
) -> None:
    await _write(tx, config, text, actor, number)
    await delete_pending(tx, config.name)
    if before is not None and is_same_load(before.config, config):
        await carry_served(tx, config.name, before.number, number)
        await _carry_over(tx, config.name, before.revision, config_revision(config))
    if config.alias_of or config.disabled:
        await _drain(tx, config.name, "its model was disabled, or made an alias")
    await leave_unused(tx, config)
    await _refresh_aliases(tx, {config.name, config.alias_of, before.alias_of if before else ""})


async def promote(tx: Tx, model: StoredModel) -> None:
    """Make the pending revision current. The caller has locked the counter of models and the model's row, and bumps the
    counter of routes."""
    pending = model.pending
    assert pending is not None
    await _write(tx, pending.config, pending.text, pending.changed_by, pending.number, changed_at=pending.changed_at)
    await make_current(tx, model.name, pending.number)
    await delete_pending(tx, model.name)
    await leave_unused(tx, pending.config)
    await bump_counter(tx, MODELS)
    await _refresh_aliases(tx, {model.name})
    detail = {"number": pending.number, "revision": pending.revision, "replaces": model.revision}
    await append_event(tx, actor="corral", action="model.revision_serves", subject=model.name, detail=detail)


async def _has_ready(tx: Tx, model: str) -> bool:
    return bool(await read_replicas(tx, "WHERE model = $1 AND state = 'ready'", model))


async def _drain(tx: Tx, model: str, why: str) -> None:
    """Drain the model's replicas. Call it in the transaction of the change: a later model of the same name must not use
    them."""
    ready = [row.id for row in await read_replicas(tx, "WHERE model = $1 AND state = 'ready'", model)]
    await set_states(tx, ready, ReplicaState.DRAINING, why)


async def _carry_over(tx: Tx, model: str, before: str, after: str) -> None:
    """Assign replicas, loads, files, footprints and back-off of a revision to the next one, which shares them."""
    for statement in _CARRY_OVER:
        await tx.execute(statement, model, before, after)


_CARRY_OVER = (
    "UPDATE replicas SET revision = $3 WHERE model = $1 AND revision = $2",
    "UPDATE load_jobs SET revision = $3 WHERE model = $1 AND revision = $2",
    "UPDATE staged_models SET revision = $3 WHERE model = $1 AND revision = $2",
    "INSERT INTO footprints (model, revision, backend_digest, node_class, fitted_bytes, device, load_ms, peak_bytes,"
    " slots, measured_at) SELECT model, CAST($3 AS TEXT), backend_digest, node_class, fitted_bytes, device, load_ms,"
    " peak_bytes, slots, measured_at FROM footprints"
    " WHERE model = $1 AND revision = $2 ON CONFLICT DO NOTHING",
    "INSERT INTO load_backoff (model, revision, node_id, failures, error, failed_at, until_at, digest)"
    " SELECT model, CAST($3 AS TEXT), node_id, failures, error, failed_at, until_at, digest FROM load_backoff"
    " WHERE model = $1 AND revision = $2 ON CONFLICT DO NOTHING",
)


async def _refresh_aliases(tx: Tx, names: set[str]) -> None:
    """Update the column with all names of a model, so that routes are built from one row per model."""
    models = await read_models(tx)
    for model in models:
        if model.name in names:
            redirects = [other.name for other in models if other.alias_of == model.name and not other.config.disabled]
            aliases = tuple(dict.fromkeys((*model.config.aliases, *redirects)))
            await tx.execute(
                "UPDATE models SET aliases = $2 WHERE name = $1", model.name, msgspec.json.encode(aliases).decode()
            )
