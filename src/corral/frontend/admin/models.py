"""`/api/models`: model configurations."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict

from corral.core.errors import InvalidInput
from corral.frontend.admin.principal import Actor
from corral.frontend.drivers.prompts import warn_of_templates
from corral.frontend.model_downloads import Downloads
from corral.store.models import StoredModel, parse_config_text
from corral.store.stores import Stores


class ModelView(BaseModel):
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


class ModelDetail(ModelView):
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


class ConfigText(BaseModel):
    model_config = ConfigDict(extra="forbid")
    config: str
    """YAML, as LocalAI's model configurations are."""


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _view(model: StoredModel) -> dict[str, Any]:
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
    }


def model_view(model: StoredModel) -> ModelView:
    return ModelView(**_view(model))


def model_detail(model: StoredModel, response: Response, downloads: Downloads) -> ModelDetail:
    response.headers["ETag"] = f'"{model.revision}"'
    files = [{"filename": file.filename, "uri": file.uri, "sha256": file.sha256} for file in model.config.files]
    unknown = list(model.config.unknown_fields)
    warnings = [*downloads.warn(model.config), *warn_of_templates(model.config)]
    return ModelDetail(**_view(model), config=model.text, files=files, unknown_fields=unknown, warnings=warnings)


def read_if_match(header: str | None) -> str | None:
    """The revision the caller edited. `*` and nothing mean: whatever is there."""
    if header is None or header.strip() == "*":
        return None
    return header.strip().removeprefix("W/").strip('"')


def model_routes(stores: Stores, downloads: Downloads, changed: Callable[[], Awaitable[None]]) -> APIRouter:
    router = APIRouter(prefix="/api/models", tags=["models"])
    models = stores.models

    @router.get("")
    async def list_models() -> list[ModelView]:
        return [model_view(model) for model in await models.read_all()]

    @router.post("", status_code=201)
    async def add_model(wanted: ConfigText, actor: Actor, response: Response) -> ModelDetail:
        downloads.check(parse_config_text(wanted.config))
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
        """Replicas of the configuration before get no more requests from the moment this is answered."""
        given = parse_config_text(wanted.config)
        if given.name != name:
            raise InvalidInput(f"the configuration is of {given.name!r}, not of {name!r}; a model keeps its name")
        downloads.check(given)
        model = await models.save(wanted.config, actor, expected=read_if_match(if_match))
        await changed()
        return model_detail(model, response, downloads)

    @router.delete("/{name:path}")
    async def delete_model(name: str, actor: Actor, if_match: Annotated[str | None, Header()] = None) -> ModelView:
        model = await models.delete(name, actor, expected=read_if_match(if_match))
        await changed()
        return model_view(model)

    return router
