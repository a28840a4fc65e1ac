"""Model configurations: the current ones, and what they were before.

A deleted model keeps its row, under a revision of its own, so that a replica loaded from it is as outdated as one of an
edited model.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.load_plan import find_clash
from corral.core.model_config import (
    CONFIG_MOST_BYTES,
    ModelConfig,
    canonical_json,
    config_revision,
    deleted_revision,
    parse_model_config,
)
from corral.core.routing import near_names
from corral.store.bucket_rows import leave_unused
from corral.store.database import Database, Row, Tx
from corral.store.events import append_event
from corral.store.load_job_rows import end_jobs
from corral.store.setbacks import clear_setbacks
from corral.store.versions import MODELS, ROUTES, bump_version, lock_version, read_version
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


@lru_cache(maxsize=8192)
def _read_document(document: str) -> ModelConfig:
    """Remembered: whoever builds routes reads every model, and on SQLite that happens on the event loop."""
    return parse_model_config(msgspec.json.decode(document))


def _stored(row: Row) -> StoredModel:
    return StoredModel(
        name=row["name"],
        revision=row["revision"],
        text=row["config"],
        config=_read_document(row["document"]),
        aliases=_decode_names(row["aliases"]),
        changed_at=row["changed_at"],
        changed_by=row["changed_by"],
    )


async def read_models(tx: Tx) -> list[StoredModel]:
    """For readers that need models and something else from one snapshot."""
    return [_stored(row) for row in await tx.fetch("SELECT * FROM models WHERE deleted_at IS NULL ORDER BY name")]


async def read_served_models(tx: Tx) -> list[StoredModel]:
    return [model for model in await read_models(tx) if model.served]


async def find_model(tx: Tx, name: str) -> StoredModel | None:
    row = await tx.fetch_one("SELECT * FROM models WHERE name = $1 AND deleted_at IS NULL", name)
    return _stored(row) if row else None


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

    async def read_version(self) -> int:
        """Grows with every change of any model."""

        async def body(tx: Tx) -> int:
            return await read_version(tx, MODELS)

        return await self._database.read(body)

    async def save(
        self, config_yaml: str, actor: str, *, expected: str | None = None, new: bool = False
    ) -> StoredModel:
        """Adds a model or replaces its configuration; saving the same again changes nothing.

        `expected`: the revision the caller edited; if there is another by now, Conflict. `new`: there must be none."""
        config = parse_config_text(config_yaml)

        async def body(tx: Tx) -> StoredModel:
            # Two savers take turns: a name is unique among models and aliases together, which no index can say.
            await lock_version(tx, MODELS)
            models = {model.name: model for model in await read_models(tx)}
            before = models.get(config.name)
            _check_expected(config.name, before, expected=expected, new=new)
            if before is not None and before.text == config_yaml:
                return before
            _check_names(config, models.values())
            _check_files(config, models.values(), before)
            await _write(tx, config, config_yaml, actor)
            await bump_version(tx, MODELS)
            if before is None or before.config.document != config.document:
                await bump_version(tx, ROUTES)
                await leave_unused(tx, config)
                action = "model.changed" if before else "model.added"
                detail = {"revision": config_revision(config), "backend": config.backend}
                await append_event(tx, actor=actor, action=action, subject=config.name, detail=detail)
            await _refresh_aliases(tx, {config.name, config.alias_of, before.alias_of if before else ""})
            stored = await find_model(tx, config.name)
            assert stored is not None
            return stored

        return await self._database.write(body)

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
    if before.revision != expected:
        raise Conflict(
            f"the model {name!r} was changed meanwhile, by {before.changed_by}; look at it again before you change it"
        )


def _check_names(config: ModelConfig, models: Iterable[StoredModel]) -> None:
    others = [model for model in models if model.name != config.name]
    taken: dict[str, str] = {}
    for model in others:
        taken[model.name] = f"the model {model.name!r}"
        taken.update(dict.fromkeys(model.config.aliases, f"an alias of {model.name!r}"))
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
    others = (model.config for model in models if model.name != config.name)
    clash = find_clash(config, others, before.config if before is not None else None)
    if clash:
        raise Conflict(clash)


async def _write(tx: Tx, config: ModelConfig, text: str, actor: str) -> None:
    revision = config_revision(config)
    await tx.execute(
        "INSERT INTO models (name, revision, config, document, backend, aliases, alias_of, changed_at, changed_by)"
        " VALUES ($1, $2, $3, $4, $5, '[]', $6, now_ms(), $7)"
        " ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, config = excluded.config,"
        " document = excluded.document, backend = excluded.backend, alias_of = excluded.alias_of,"
        " changed_at = excluded.changed_at, changed_by = excluded.changed_by, deleted_at = NULL",
        config.name,
        revision,
        text,
        canonical_json(config),
        config.backend,
        config.alias_of or None,
        actor,
    )
    await _append_revision(tx, config.name, revision, text, actor)


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
