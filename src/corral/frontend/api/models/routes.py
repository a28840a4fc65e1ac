"""`/api/models`: model configurations."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict, Field

from corral.core.errors import InvalidInput, NotFound
from corral.frontend.api.access.principal import Actor
from corral.frontend.gateway.drivers.prompts import warn_of_templates
from corral.frontend.models.check import ConfigChecks
from corral.frontend.models.downloads import Downloads
from corral.store.serving.models import ModelRevision, StoredModel, parse_config_text
from corral.store.stores import Stores


class PendingView(BaseModel):
    """The revision that was written last does not serve yet; the one before does."""

    revision: str
    serving: str
    """The revision that serves meanwhile."""
    reason: str
    """Why it does not serve yet; empty while it is loaded for the first time."""
    failures: int
    held: bool
    """It is not tried again by itself: the replicas that serve would have to stop for it."""


class ModelObject(BaseModel):
    """As it was last written."""

    name: str
    backend: str
    model: str
    """The weights, as the configuration names them."""
    description: str
    revision: str
    aliases: list[str]
    alias_of: str
    """Of a redirect: the model that serves its requests."""
    known_usecases: list[str]
    context_size: int | None
    embeddings: bool
    disabled: bool
    pinned: bool
    changed_at: datetime
    changed_by: str
    pending: PendingView | None
    """Set while `revision` does not serve yet."""


class ModelDetail(ModelObject):
    config: str
    """The YAML as it was given."""
    files: list[dict[str, str]]
    unknown_fields: list[str]
    """Kept and handed on, but nothing in Corral looks at them."""
    warnings: list[str]
    """Downloads that workers refuse unless their settings allow them, and how to do that; templates that cannot be
    rendered."""


class RevisionView(BaseModel):
    revision: str
    config: str
    at: datetime
    actor: str


class Revert(BaseModel):
    model_config = ConfigDict(extra="forbid")
    revision: str = Field(default="", max_length=64)
    """Which to go back to, by its beginning. Without it: the one that serves, where a newer one is pending; else the
    one before."""


class ConfigText(BaseModel):
    model_config = ConfigDict(extra="forbid")
    config: str
    """YAML, as LocalAI's model configurations are."""
    force: bool = False
    """Save it also with fields that Corral does not know, and of a backend that nobody has or offers."""


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _pending_view(model: StoredModel) -> PendingView | None:
    pending = model.pending
    if pending is None:
        return None
    return PendingView(
        revision=pending.revision,
        serving=model.revision,
        reason=pending.reason,
        failures=pending.failures,
        held=pending.held,
    )


def _view(stored: StoredModel) -> dict[str, Any]:
    model = stored.newest
    config = model.config
    return {
        "name": model.name,
        "backend": config.backend,
        "model": config.model,
        "description": config.description,
        "revision": model.revision,
        "aliases": list(model.aliases),
        "alias_of": model.alias_of,
        "known_usecases": list(config.known_usecases),
        "context_size": config.context_size,
        "embeddings": config.embeddings,
        "disabled": config.disabled,
        "pinned": config.pinned,
        "changed_at": _at(model.changed_at),
        "changed_by": model.changed_by,
        "pending": _pending_view(stored),
    }


def model_view(model: StoredModel) -> ModelObject:
    return ModelObject(**_view(model))


def model_detail(stored: StoredModel, response: Response, downloads: Downloads) -> ModelDetail:
    model = stored.newest
    response.headers["ETag"] = f'"{model.revision}"'
    files = [{"filename": file.filename, "uri": file.uri, "sha256": file.sha256} for file in model.config.files]
    unknown = list(model.config.unknown_fields)
    warnings = [*downloads.warn(model.config), *warn_of_templates(model.config)]
    return ModelDetail(**_view(stored), config=model.text, files=files, unknown_fields=unknown, warnings=warnings)


def read_if_match(header: str | None) -> str | None:
    """The revision the caller edited. `*` and nothing mean: whatever is there."""
    if header is None or header.strip() == "*":
        return None
    return header.strip().removeprefix("W/").strip('"')


def _earlier(model: StoredModel, revisions: Sequence[ModelRevision], wanted: str) -> str:
    """The text to go back to."""
    if not wanted and model.pending is not None:
        return model.text
    newest = model.newest.revision
    found = [item for item in revisions if item.text and item.revision.startswith(wanted.lower())]
    fitting = {item.revision: item for item in reversed(found) if wanted or item.revision != newest}
    if not fitting:
        said = f"no revision {wanted!r}" if wanted else "no earlier revision"
        raise NotFound(f"{model.name} has {said}; `corral models show {model.name} --history` shows those it has")
    if wanted and len(fitting) > 1:
        raise InvalidInput(f"{len(fitting)} revisions of {model.name} begin with {wanted!r}; give more of it")
    return max(fitting.values(), key=lambda item: item.at).text


def model_routes(stores: Stores, checks: ConfigChecks, changed: Callable[[], Awaitable[None]]) -> APIRouter:
    router = APIRouter(prefix="/api/models", tags=["models"])
    models, downloads = stores.models, checks.downloads

    @router.get("")
    async def list_models() -> list[ModelObject]:
        return [model_view(model) for model in await models.read_all()]

    @router.post("", status_code=201)
    async def add_model(wanted: ConfigText, actor: Actor, response: Response) -> ModelDetail:
        await checks.check_new(parse_config_text(wanted.config), force=wanted.force)
        model = await models.save(wanted.config, actor, new=True)
        await changed()
        return model_detail(model, response, downloads)

    @router.get("/{name:path}/revisions")
    async def list_revisions(name: str) -> list[RevisionView]:
        """Newest first. A deletion has an empty configuration."""
        return [
            RevisionView(revision=item.revision, config=item.text, at=_at(item.at), actor=item.actor)
            for item in await models.read_revisions(name)
        ]

    @router.get("/{name:path}")
    async def show_model(name: str, response: Response) -> ModelDetail:
        return model_detail(await models.read(name), response, downloads)

    @router.put("/{name:path}")
    async def edit_model(
        name: str,
        wanted: ConfigText,
        actor: Actor,
        response: Response,
        if_match: Annotated[str | None, Header()] = None,
    ) -> ModelDetail:
        """Checked before it is taken. Where replicas serve and would have to be loaded anew, it is `pending` until one
        of it is ready; those of the configuration before serve until then."""
        given = parse_config_text(wanted.config)
        if given.name != name:
            raise InvalidInput(f"the configuration is of {given.name!r}, not of {name!r}; a model keeps its name")
        before = next((model for model in await models.read_all() if model.name == name), None)
        if before is None:
            await checks.check_new(given, force=wanted.force)
        else:
            await checks.check_edit(given, before.newest.config, force=wanted.force)
        model = await models.save(wanted.config, actor, expected=read_if_match(if_match))
        await changed()
        return model_detail(model, response, downloads)

    @router.post("/{name:path}/revert")
    async def revert_model(
        name: str,
        actor: Actor,
        response: Response,
        wanted: Revert | None = None,
        if_match: Annotated[str | None, Header()] = None,
    ) -> ModelDetail:
        """Back to an earlier configuration. A pending one is discarded, and what serves stays as it is."""
        model = await models.read(name)
        text = _earlier(model, await models.read_revisions(model.name), (wanted or Revert()).revision)
        saved = await models.save(text, actor, expected=read_if_match(if_match) or model.newest.revision)
        await changed()
        return model_detail(saved, response, downloads)

    @router.delete("/{name:path}")
    async def delete_model(name: str, actor: Actor, if_match: Annotated[str | None, Header()] = None) -> ModelObject:
        model = await models.delete(name, actor, expected=read_if_match(if_match))
        await changed()
        return model_view(model)

    return router
