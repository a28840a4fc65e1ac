"""`/api/models`: model configurations."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from corral.core.errors import InvalidInput
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.models.history import Comment
from corral.frontend.api.models.if_match import IfMatch, read_if_match
from corral.frontend.api.models.view import ModelDetail, ModelObject, view_model, view_model_detail
from corral.frontend.models.check import ConfigChecks
from corral.store.serving.models import ModelStore, parse_config_text


class ConfigText(BaseModel):
    model_config = ConfigDict(extra="forbid")
    config: str
    """YAML in the form of LocalAI's model configurations."""
    force: bool = False
    """Save it also with fields that Corral does not know, and with a backend that no node has and no gallery offers."""
    comment: Comment = ""
    """Why it is changed, for the history."""


def model_routes(models: ModelStore, checks: ConfigChecks, notify_routes: Callable[[], Awaitable[None]]) -> APIRouter:
    router = APIRouter(prefix="/api/models", tags=["models"])

    @router.get("")
    async def list_models() -> list[ModelObject]:
        """Lists all models."""
        return [view_model(model) for model in await models.read_all()]

    @router.get("/{name:path}")
    async def show_model(name: str, response: Response) -> ModelDetail:
        """Shows a model with its configuration; its revision is the ETag."""
        return await view_model_detail(await models.read(name), response, models, checks)

    _add_change_routes(router, models, checks, notify_routes)
    return router


def _add_change_routes(
    router: APIRouter, models: ModelStore, checks: ConfigChecks, notify_routes: Callable[[], Awaitable[None]]
) -> None:
    @router.post("", status_code=201)
    async def add_model(body: ConfigText, actor: Actor, response: Response) -> ModelDetail:
        """Adds a model from its configuration."""
        await checks.check_new(parse_config_text(body.config), force=body.force)
        model = await models.save(body.config, actor, new=True, comment=body.comment)
        await notify_routes()
        return await view_model_detail(model, response, models, checks)

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
        expected = read_if_match(if_match)
        model = await models.save(body.config, actor, expected=expected, comment=body.comment)
        await notify_routes()
        return await view_model_detail(model, response, models, checks)

    @router.delete("/{name:path}")
    async def delete_model(name: str, actor: Actor, if_match: IfMatch = None) -> ModelObject:
        """Deletes a model and stops its replicas."""
        model = await models.delete(name, actor, expected=read_if_match(if_match))
        await notify_routes()
        return view_model(model)
