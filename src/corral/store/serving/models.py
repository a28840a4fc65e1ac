"""Model configurations: the current ones, what they were before, and what they are to become.

An edit that replicas have to be loaded anew for is pending while some of the current revision serve: it takes over when
one of it is ready (ADR 0817). A deleted model keeps its row, under a revision of its own, so that a replica loaded from
it is as outdated as one of an edited model.
"""

from collections.abc import Iterable
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
from corral.core.models.revisions import is_same_load, must_be_proven
from corral.core.replicas.replica import ReplicaState
from corral.core.suggestions import near_names
from corral.store.access.audit_events import append_event
from corral.store.engine.counters import MODELS, ROUTES, bump_version, lock_version, read_version
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.documents import read_document
from corral.store.engine.leases import Lease, check_held
from corral.store.serving.bucket_rows import leave_unused
from corral.store.serving.load_backoff import clear_setbacks
from corral.store.serving.load_job_rows import end_jobs, forget_failed
from corral.store.serving.pending_models import PendingRevision, drop_pending, find_pending, put_pending, read_pending
from corral.store.serving.replica_rows import read_replicas, set_states
from corral.system.yaml import load_yaml

REVISIONS_KEPT = 100
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    name: str
    revision: str
    text: str
    """The YAML as it was given."""
    config: ModelConfig
    aliases: tuple[str, ...]
    """Every other name that leads here: those of the configuration, and of redirects (`alias:`) to this model."""
    changed_at: int
    changed_by: str
    pending: PendingRevision | None = None
    """A newer revision that does not serve yet."""

    @property
    def newest(self) -> "StoredModel":
        """As it was last written, whether that serves yet or not."""
        pending = self.pending
        if pending is None:
            return self
        return replace(
            self,
            revision=pending.revision,
            text=pending.text,
            config=pending.config,
            changed_at=pending.changed_at,
            changed_by=pending.changed_by,
            pending=None,
        )

    def of_revision(self, revision: str) -> "StoredModel | None":
        """The current one or the pending one; None when it is neither any more."""
        return next((one for one in (self, self.newest) if one.revision == revision), None)

    @property
    def alias_of(self) -> str:
        return self.config.alias_of

    @property
    def served(self) -> bool:
        """Whether replicas of it may exist: a redirect has none, a disabled model wants none."""
        return not self.config.alias_of and not self.config.disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRevision:
    revision: str
    text: str
    """Empty for a deletion."""
    at: int
    actor: str


def parse_config_text(text: str) -> ModelConfig:
    if len(text.encode()) > CONFIG_MOST_BYTES:
        raise InvalidInput(f"the model configuration is larger than {CONFIG_MOST_BYTES >> 20} MiB")
    return parse_model_config(load_yaml(text))


def _stored(row: Row, pending: PendingRevision | None) -> StoredModel:
    return StoredModel(
        name=row["name"],
        revision=row["revision"],
        text=row["config"],
        config=read_document(row["document"]),
        aliases=_decode_names(row["aliases"]),
        changed_at=row["changed_at"],
        changed_by=row["changed_by"],
        pending=pending if pending is not None and pending.replaces == row["revision"] else None,
    )


async def read_models(tx: Tx) -> list[StoredModel]:
    """For readers that need models and something else from one snapshot."""
    pending = await read_pending(tx)
    rows = await tx.fetch("SELECT * FROM models WHERE deleted_at IS NULL ORDER BY name")
    return [_stored(row, pending.get(row["name"])) for row in rows]


async def read_served_models(tx: Tx) -> list[StoredModel]:
    return [model for model in await read_models(tx) if model.served]


async def find_model(tx: Tx, name: str) -> StoredModel | None:
    row = await tx.fetch_one("SELECT * FROM models WHERE name = $1 AND deleted_at IS NULL", name)
    return _stored(row, await find_pending(tx, name)) if row else None


async def lock_model(tx: Tx, name: str) -> None:
    """Who asks for it, edits or deletes it takes turns from here on, and finds what the one before has done."""
    await tx.fetch_one("SELECT name FROM models WHERE name = $1 FOR UPDATE", name)


def unknown_model(name: str, names: Iterable[str]) -> NotFound:
    near = near_names(name, list(names))
    hint = f"did you mean {', '.join(near)}?" if near else "`corral models list` shows the ones there are"
    return NotFound(f"there is no model {name!r}; {hint}")


class ModelStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, name: str) -> StoredModel:
        """By its name or by an alias. A redirect is answered as itself, by its own name."""

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
            rows = await tx.fetch("SELECT * FROM model_revisions WHERE model = $1 ORDER BY id DESC", name)
            return [
                ModelRevision(revision=row["revision"], text=row["config"], at=row["at"], actor=row["actor"])
                for row in rows
            ]

        return await self._database.read(body)

    async def read_config(self, name: str, revision: str) -> ModelConfig:
        """Of a revision that a replica was loaded from, which may not be the current one."""

        async def body(tx: Tx) -> ModelConfig:
            model = await find_model(tx, name)
            found = model.of_revision(revision) if model is not None else None
            if found is not None:
                return found.config
            row = await tx.fetch_one(
                "SELECT config FROM model_revisions WHERE model = $1 AND revision = $2 ORDER BY id DESC LIMIT 1",
                name,
                revision,
            )
            if model is None or row is None or not row["config"]:
                raise NotFound(f"the model {name!r} has no revision {revision[:12]} any more")
            return parse_config_text(row["config"])

        return await self._database.read(body)

    async def read_version(self) -> int:
        """Grows with every change of any model."""

        async def body(tx: Tx) -> int:
            return await read_version(tx, MODELS)

        return await self._database.read(body)

    async def save(
        self, config_yaml: str, actor: str, *, expected: str | None = None, new: bool = False
    ) -> StoredModel:
        """Adds a model or replaces its configuration; saving the same again changes nothing. What replicas would have
        to be loaded anew for is pending while any serve.

        `expected`: the revision the caller edited; if there is another by now, Conflict. `new`: there must be none."""
        config = parse_config_text(config_yaml)

        async def body(tx: Tx) -> StoredModel:
            # Two savers take turns: a name is unique among models and aliases together, which no index can say.
            await lock_version(tx, MODELS)
            models = {model.name: model for model in await read_models(tx)}
            before = models.get(config.name)
            _check_expected(config.name, before, expected=expected, new=new)
            if before is not None and before.newest.text == config_yaml:
                return before
            _check_names(config, models.values())
            _check_files(config, models.values(), before)
            await lock_model(tx, config.name)
            if before is not None and must_be_proven(before.config, config) and await _has_ready(tx, config.name):
                await put_pending(tx, config, config_yaml, actor, replaces=before.revision)
                await _append_revision(tx, config.name, config_revision(config), config_yaml, actor)
            else:
                await _put_current(tx, config, config_yaml, actor, before)
            await bump_version(tx, MODELS)
            if before is None or before.newest.config.document != config.document:
                # What failed was something else.
                await forget_failed(tx, config.name)
                await bump_version(tx, ROUTES)
                action = "model.changed" if before else "model.added"
                detail = {"revision": config_revision(config), "backend": config.backend}
                await append_event(tx, actor=actor, action=action, subject=config.name, detail=detail)
            return await _found(tx, config.name)

        return await self._database.write(body)

    async def apply_pending(self, name: str, revision: str, *, lease: Lease | None = None) -> None:
        """Nothing serves any more that it would have to be proven beside."""

        async def body(tx: Tx) -> None:
            await check_held(tx, lease)
            await lock_version(tx, MODELS)
            await lock_model(tx, name)
            model = await find_model(tx, name)
            pending = model.pending if model is not None else None
            if model is None or pending is None or pending.revision != revision or await _has_ready(tx, name):
                return
            await promote(tx, model)
            await bump_version(tx, ROUTES)

        await self._database.write(body)

    async def delete(self, name: str, actor: str, *, expected: str | None = None) -> StoredModel:
        async def body(tx: Tx) -> StoredModel:
            await lock_version(tx, MODELS)
            models = {model.name: model for model in await read_models(tx)}
            if name not in models:
                raise unknown_model(name, models)
            before = models[name]
            _check_expected(name, before, expected=expected, new=False)
            redirects = [model.name for model in models.values() if model.alias_of == name]
            if redirects:
                raise Conflict(f"{', '.join(redirects)} would lead nowhere; delete that first, or point it elsewhere")
            revision = deleted_revision(name)
            await tx.execute(
                "UPDATE models SET deleted_at = now_ms(), changed_at = now_ms(), changed_by = $2, revision = $3"
                " WHERE name = $1",
                name,
                actor,
                revision,
            )
            # What was wanted of it goes too: another model of the same name begins anew.
            await tx.execute("DELETE FROM scheduling WHERE model = $1", name)
            await tx.execute("DELETE FROM scaling_states WHERE model = $1", name)
            await drop_pending(tx, name)
            await _drain(tx, name, "its model was deleted")
            await end_jobs(tx, name, "its model was deleted")
            await clear_setbacks(tx, name)
            await _append_revision(tx, name, revision, "", actor)
            await bump_version(tx, MODELS)
            await bump_version(tx, ROUTES)
            await append_event(tx, actor=actor, action="model.deleted", subject=name, detail={})
            await _refresh_aliases(tx, {before.alias_of})
            return before

        return await self._database.write(body)


def _check_expected(name: str, before: StoredModel | None, *, expected: str | None, new: bool) -> None:
    if new and before is not None:
        raise Conflict(f"there is a model {name!r} already; edit that one, or choose another name")
    if expected is None:
        return
    if before is None:
        raise Conflict(f"the model {name!r} is not there any more; it was deleted meanwhile")
    newest = before.newest
    if newest.revision != expected:
        raise Conflict(
            f"the model {name!r} was changed meanwhile, by {newest.changed_by}; look at it again before you change it"
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
            raise Conflict(f"the name {name!r} is taken: it is {taken[name]}")
    if not config.alias_of:
        return
    target = next((model for model in others if model.name == config.alias_of), None)
    if target is None:
        raise InvalidInput(f"{config.name!r} points to {config.alias_of!r}, and there is no such model")
    if target.alias_of:
        raise InvalidInput(f"{config.alias_of!r} is itself an alias, of {target.alias_of!r}; point to that one")
    pointing = [model.name for model in others if model.alias_of == config.name]
    if pointing:
        raise InvalidInput(f"{', '.join(pointing)} points to {config.name!r}, which therefore cannot be an alias")


def _check_files(config: ModelConfig, models: Iterable[StoredModel], before: StoredModel | None) -> None:
    written = [one for model in models if model.name != config.name for one in (model, model.newest)]
    others = {one.revision: one.config for one in written}.values()
    clash = find_clash(config, others, before.config if before is not None else None)
    if clash:
        raise Conflict(clash)


async def _write(tx: Tx, config: ModelConfig, text: str, actor: str, *, changed_at: int | None = None) -> None:
    await tx.execute(
        "INSERT INTO models (name, revision, config, document, backend, aliases, alias_of, changed_at, changed_by)"
        " VALUES ($1, $2, $3, $4, $5, '[]', $6, COALESCE(CAST($8 AS BIGINT), now_ms()), $7)"
        " ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, config = excluded.config,"
        " document = excluded.document, backend = excluded.backend, alias_of = excluded.alias_of,"
        " changed_at = excluded.changed_at, changed_by = excluded.changed_by, deleted_at = NULL",
        config.name,
        config_revision(config),
        text,
        canonical_json(config),
        config.backend,
        config.alias_of or None,
        actor,
        changed_at,
    )


async def _found(tx: Tx, name: str) -> StoredModel:
    stored = await find_model(tx, name)
    assert stored is not None
    return stored


async def _put_current(tx: Tx, config: ModelConfig, text: str, actor: str, before: StoredModel | None) -> None:
    await _write(tx, config, text, actor)
    await _append_revision(tx, config.name, config_revision(config), text, actor)
    await drop_pending(tx, config.name)
    if before is not None and is_same_load(before.config, config):
        await _carry_over(tx, config.name, before.revision, config_revision(config))
    if config.alias_of or config.disabled:
        await _drain(tx, config.name, "its model was disabled, or made an alias")
    await leave_unused(tx, config)
    await _refresh_aliases(tx, {config.name, config.alias_of, before.alias_of if before else ""})


async def promote(tx: Tx, model: StoredModel) -> None:
    """The pending revision is the current one from now on. The caller holds the version of models and the model's row,
    and moves the version of routes."""
    pending = model.pending
    assert pending is not None
    await _write(tx, pending.config, pending.text, pending.changed_by, changed_at=pending.changed_at)
    await drop_pending(tx, model.name)
    await leave_unused(tx, pending.config)
    await bump_version(tx, MODELS)
    await _refresh_aliases(tx, {model.name})
    detail = {"revision": pending.revision, "replaces": model.revision}
    await append_event(tx, actor="corral", action="model.revision_serves", subject=model.name, detail=detail)


async def _has_ready(tx: Tx, model: str) -> bool:
    return bool(await read_replicas(tx, "WHERE model = $1 AND state = 'ready'", model))


async def _drain(tx: Tx, model: str, why: str) -> None:
    """In the transaction of the change: another model of this name must not be answered by them."""
    ready = [row.id for row in await read_replicas(tx, "WHERE model = $1 AND state = 'ready'", model)]
    await set_states(tx, ready, ReplicaState.DRAINING, why)


async def _carry_over(tx: Tx, model: str, before: str, after: str) -> None:
    """What was loaded from the revision before serves the one after as it is, and what was learned of it holds."""
    for statement in _CARRY_OVER:
        await tx.execute(statement, model, before, after)


_CARRY_OVER = (
    "UPDATE replicas SET revision = $3 WHERE model = $1 AND revision = $2",
    "UPDATE load_jobs SET revision = $3 WHERE model = $1 AND revision = $2",
    "UPDATE staged_models SET revision = $3 WHERE model = $1 AND revision = $2",
    "INSERT INTO footprints (model, revision, backend_digest, device, load_ms, peak_bytes, measured_at)"
    " SELECT model, CAST($3 AS TEXT), backend_digest, device, load_ms, peak_bytes, measured_at FROM footprints"
    " WHERE model = $1 AND revision = $2 ON CONFLICT DO NOTHING",
    "INSERT INTO load_backoff (model, revision, node_id, failures, error, failed_at, until_at, digest)"
    " SELECT model, CAST($3 AS TEXT), node_id, failures, error, failed_at, until_at, digest FROM load_backoff"
    " WHERE model = $1 AND revision = $2 ON CONFLICT DO NOTHING",
)


async def _append_revision(tx: Tx, name: str, revision: str, text: str, actor: str) -> None:
    await tx.execute(
        "INSERT INTO model_revisions (model, revision, config, at, actor) VALUES ($1, $2, $3, now_ms(), $4)",
        name,
        revision,
        text,
        actor,
    )
    await tx.execute(
        "DELETE FROM model_revisions WHERE model = $1 AND id NOT IN"
        " (SELECT id FROM model_revisions WHERE model = $1 ORDER BY id DESC LIMIT $2)",
        name,
        REVISIONS_KEPT,
    )


async def _refresh_aliases(tx: Tx, names: set[str]) -> None:
    """The column holds every name that leads to the model, so that whoever builds routes reads one row for each."""
    models = await read_models(tx)
    for model in models:
        if model.name in names:
            redirects = [other.name for other in models if other.alias_of == model.name and not other.config.disabled]
            aliases = tuple(dict.fromkeys((*model.config.aliases, *redirects)))
            await tx.execute(
                "UPDATE models SET aliases = $2 WHERE name = $1", model.name, msgspec.json.encode(aliases).decode()
            )
