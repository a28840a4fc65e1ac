"""`/api/models`: model configurations."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict, Field

from corral.core.errors import InvalidInput, NotFound
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.models.view import ModelDetail, ModelObject, view_model, view_model_detail
from corral.frontend.api.times import time_of
from corral.frontend.models.check import ConfigChecks
from corral.store.serving.models import ModelRevision, ModelStore, StoredModel, parse_config_text

IfMatch = Annotated[str | None, Header()]
"""The revision that the client has edited."""


class RevisionView(BaseModel):
    revision: str
    config: str
    at: datetime
    actor: str


class Revert(BaseModel):
    model_config = ConfigDict(extra="forbid")
    revision: str = Field(default="", max_length=64)
    """The revision to go back to, by its id or the beginning of its id. Without it: the one that serves while a newer
    one is pending, otherwise the one before."""


class ConfigText(BaseModel):
    model_config = ConfigDict(extra="forbid")
    config: str
    """YAML in the form of LocalAI's model configurations."""
    force: bool = False
    """Save it also with fields that Corral does not know, and with a backend that no node has and no gallery offers."""


def model_routes(models: ModelStore, checks: ConfigChecks, notify_routes: Callable[[], Awaitable[None]]) -> APIRouter:
    router = APIRouter(prefix="/api/models", tags=["models"])

    @router.get("")
    async def list_models() -> list[ModelObject]:
        """Lists all models."""
        return [view_model(model) for model in await models.read_all()]

    @router.get("/{name:path}/revisions")
    async def list_revisions(name: str) -> list[RevisionView]:
        """Lists the revisions of a model, newest first. A deletion has an empty configuration."""
        return [
            RevisionView(revision=item.revision, config=item.text, at=time_of(item.at), actor=item.actor)
            for item in await models.read_revisions(name)
        ]

    @router.get("/{name:path}")
    async def show_model(name: str, response: Response) -> ModelDetail:
        """Shows a model with its configuration; its revision is the ETag."""
        return view_model_detail(await models.read(name), response, checks.downloads)

    _add_change_routes(router, models, checks, notify_routes)
    return router


def _add_change_routes(
    router: APIRouter, models: ModelStore, checks: ConfigChecks, notify_routes: Callable[[], Awaitable[None]]
) -> None:
    @router.post("", status_code=201)
    async def add_model(body: ConfigText, actor: Actor, response: Response) -> ModelDetail:
        """Adds a model from its configuration."""
        await checks.check_new(parse_config_text(body.config), force=body.force)
        model = await models.save(body.config, actor, new=True)
        await notify_routes()
        return view_model_detail(model, response, checks.downloads)

    @router.put("/{name:path}")
    async def edit_model(
        name: str, body: ConfigText, actor: Actor, response: Response, if_match: IfMatch = None
    ) -> ModelDetail:
        """Checks and saves a configuration. While replicas serve that must be loaded again, it is `pending` until one
        with it is ready; those with the previous configuration serve until then."""
        config = parse_config_text(body.config)
        if config.name != name:
            raise InvalidInput(
                f"the configuration has the name {config.name!r}, but the path has {name!r}; a model cannot be renamed"
            )
        before = next((model for model in await models.read_all() if model.name == name), None)
        if before is None:
            await checks.check_new(config, force=body.force)
        else:
            await checks.check_edit(config, before.newest.config, force=body.force)
        model = await models.save(body.config, actor, expected=_read_if_match(if_match))
        await notify_routes()
        return view_model_detail(model, response, checks.downloads)

    @router.post("/{name:path}/revert")
    async def revert_model(
        name: str, actor: Actor, response: Response, body: Revert | None = None, if_match: IfMatch = None
    ) -> ModelDetail:
        """Goes back to an earlier configuration. A pending one is discarded; replicas that serve keep running."""
        model = await models.read(name)
        text = _find_earlier(model, await models.read_revisions(model.name), (body or Revert()).revision)
        saved = await models.save(text, actor, expected=_read_if_match(if_match) or model.newest.revision)
        await notify_routes()
        return view_model_detail(saved, response, checks.downloads)

    @router.delete("/{name:path}")
    async def delete_model(name: str, actor: Actor, if_match: IfMatch = None) -> ModelObject:
        """Deletes a model and stops its replicas."""
        model = await models.delete(name, actor, expected=_read_if_match(if_match))
        await notify_routes()
        return view_model(model)


def _read_if_match(header: str | None) -> str | None:
    """None for `*` and no header: any revision."""
    if header is None or header.strip() == "*":
        return None
    return header.strip().removeprefix("W/").strip('"')


def _find_earlier(model: StoredModel, revisions: Sequence[ModelRevision], prefix: str) -> str:
    """The configuration text to go back to."""
    if not prefix and model.pending is not None:
        return model.text
    newest = model.newest.revision
    found = [item for item in revisions if item.text and item.revision.startswith(prefix.lower())]
    matching = {item.revision: item for item in reversed(found) if prefix or item.revision != newest}
    if not matching:
        missing = f"no revision {prefix!r}" if prefix else "no earlier revision"
        raise NotFound(f"{model.name} has {missing}; `corral models show {model.name} --history` lists its revisions")
    if prefix and len(matching) > 1:
        raise InvalidInput(f"{len(matching)} revisions of {model.name} begin with {prefix!r}; give more characters")
    return max(matching.values(), key=lambda item: item.at).text
