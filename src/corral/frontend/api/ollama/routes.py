"""`/api/pull` and `/api/delete`, as Ollama's clients call them, for admin keys.

A pull adds the model from a gallery and loads it, because nodes download a model's files when they load it first."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from corral.controller.loads.coordinator import LoadCoordinator
from corral.core.errors import Conflict, CorralError, InvalidInput
from corral.core.replicas.load_jobs import LoadProgress
from corral.frontend.api.access.principal import Actor
from corral.frontend.gateway.loads import describe
from corral.frontend.gateway.protocols.ollama_requests import LATEST, NamedModel, model_name
from corral.frontend.gateway.protocols.requests import read_request
from corral.frontend.models.install import ModelInstaller
from corral.store.serving.models import ModelStore, StoredModel

NAME_MAX_CHARS = 300
PROGRESS_EVERY_S = 1.0
PULL_MAX_S: Final = 6 * 3600
MEDIA_TYPE = "application/x-ndjson"
_NAME: dict[str, Any] = {"type": "string", "maxLength": NAME_MAX_CHARS}


class PullRequest(NamedModel, frozen=True):
    """A delete has the same fields but `stream`."""

    stream: bool | None = None


def _body(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Clients send this body with any content type, as they do to Ollama."""
    schema = {"type": "object", "required": ["model"], "properties": properties}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def _read(request: Request) -> tuple[str, PullRequest]:
    named = read_request(PullRequest, await request.body())
    name = model_name(named.model or named.name)
    if not 0 < len(name) <= NAME_MAX_CHARS:
        raise InvalidInput(f"`model` must be the name of a model, of at most {NAME_MAX_CHARS} characters")
    return name, named


def ollama_routes(
    models: ModelStore,
    installer: ModelInstaller,
    loads: LoadCoordinator,
    notify_routes: Callable[[], Awaitable[None]],
) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["ollama"])

    async def find_or_install(name: str, actor: str) -> StoredModel:
        """As Ollama does, accepts a model that is there already."""
        known = {model.name: model for model in await models.read_all()}
        found = known.get(name)
        return found if found is not None else await installer.install(name, actor)

    @router.post("/pull", response_class=Response, openapi_extra=_body(model=_NAME, stream={"type": "boolean"}))
    async def pull_model(request: Request, actor: Actor) -> Response:
        """Adds a model from a gallery and loads it. Answers with a line of JSON for each step, or with `stream: false`
        with one object at the end."""
        name, asked = await _read(request)
        model = await find_or_install(name, actor)
        if asked.stream is not False:
            return StreamingResponse(_lines(loads, model), media_type=MEDIA_TYPE)
        async for step in _pull(loads, model):
            if "error" in step:
                raise Conflict(str(step["error"]))
        return Response(msgspec.json.encode({"status": "success"}), media_type="application/json")

    @router.delete("/delete", response_class=Response, openapi_extra=_body(model=_NAME))
    async def delete_pulled_model(request: Request, actor: Actor) -> Response:
        """Deletes a model and stops its replicas. The answer has no body."""
        name, _ = await _read(request)
        await models.delete(name, actor)
        await notify_routes()
        return Response()

    return router


async def _lines(loads: LoadCoordinator, model: StoredModel) -> AsyncIterator[bytes]:
    async for step in _pull(loads, model):
        yield msgspec.json.encode(step) + b"\n"


async def _pull(loads: LoadCoordinator, model: StoredModel) -> AsyncIterator[dict[str, object]]:
    """The last step is `success` or an error. The load continues when the client leaves."""
    yield {"status": f"added {model.name}{LATEST}"}
    for _ in range(int(PULL_MAX_S / PROGRESS_EVERY_S)):
        try:
            settled = await loads.load(model.name, within_s=PROGRESS_EVERY_S, cause="a pull by an administrator")
        except CorralError as error:
            yield {"error": str(error)}
            return
        if settled.progress is None:
            if settled.cause is None:
                yield {"status": "success"}
            else:
                yield {"error": f"{model.name} was added, but could not be loaded: {settled.cause}"}
            return
        yield _step(settled.progress, model)
    yield {"error": f"{model.name} was added; its load takes longer than {PULL_MAX_S // 3600} h and continues"}


def _step(progress: LoadProgress, model: StoredModel) -> dict[str, object]:
    if not progress.total_bytes:
        return {"status": describe(progress)}
    # Ollama's clients draw one bar for each digest; numbers belong to it.
    return {
        "status": f"pulling {model.name}",
        "digest": model.revision,
        "total": progress.total_bytes,
        "completed": min(progress.bytes_sent, progress.total_bytes),
    }
