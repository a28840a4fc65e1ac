"""`/api/models`: adding models from galleries and from a directory of the frontend."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from corral.artifacts.galleries.entries import ModelEntry
from corral.core.errors import Conflict, InvalidInput
from corral.core.models.config import check_model_path
from corral.core.sizes import format_bytes, read_size_bytes
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.galleries.routes import GalleryView, view_galleries
from corral.frontend.api.models.view import ModelDetail, view_model_detail
from corral.frontend.models.check import ConfigChecks
from corral.frontend.models.directory_import import read_config_directory
from corral.frontend.models.gallery import ModelGallery
from corral.frontend.models.install import ModelInstaller
from corral.store.serving.models import ModelStore, parse_config_text
from corral.system import Disk


class Installation(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    name: Annotated[str, Field(min_length=1, max_length=300)]
    """The model in a gallery: `name` or `gallery@name`."""
    install_as: Annotated[str, Field(alias="as")] = ""
    """Another name for the model in this cluster."""
    overrides: dict[str, Any] = {}
    """Fields that replace those of the gallery."""


class Import(BaseModel):
    model_config = ConfigDict(extra="forbid")
    directory: str = ""
    """A directory below the frontend's models directory; empty for that directory itself."""
    replace: bool = False
    """Whether an existing model gets the configuration from the directory."""
    force: bool = False
    """Import also configurations with fields that Corral does not know, and with backends that no node has and no
    gallery offers."""


class RejectedImport(BaseModel):
    file: str
    reason: str


class Imported(BaseModel):
    directory: str
    saved: list[str]
    unchanged: list[str]
    refused: list[RejectedImport]


class AvailableModel(BaseModel):
    name: str
    gallery: str
    description: str
    backend: str
    license: str
    icon: str
    urls: list[str]
    tags: list[str]
    size: str
    installed: bool


class AvailablePage(BaseModel):
    models: list[AvailableModel]
    total: int
    """The number of matching models on all pages."""
    galleries: list[GalleryView]


def _available(entry: ModelEntry, names: set[str]) -> AvailableModel:
    return AvailableModel(
        name=entry.name,
        gallery=entry.gallery,
        description=entry.description,
        backend=entry.backend or str(entry.overrides.get("backend", "")),
        license=entry.license,
        icon=entry.icon,
        urls=entry.urls,
        tags=entry.tags,
        size=_size(entry.size),
        installed=entry.name in names,
    )


def _size(text: str) -> str:
    """In the units that Corral uses everywhere; a text that is not a size stays as it is."""
    size_bytes = read_size_bytes(text)
    return text if size_bytes is None else format_bytes(size_bytes)


def _matches(entry: ModelEntry, term: str) -> bool:
    return term in f"{entry.name} {entry.description} {' '.join(entry.tags)}".lower()


def _within(models_dir: Path, directory: str) -> Path:
    """An import must not read files outside the models directory."""
    if directory:
        check_model_path("directory", directory)
    return models_dir / directory


def model_source_routes(
    models: ModelStore,
    gallery: ModelGallery,
    installer: ModelInstaller,
    checks: ConfigChecks,
    disk: Disk,
    models_dir: Path,
    notify_routes: Callable[[], Awaitable[None]],
) -> APIRouter:
    """Goes before the routes of models, whose path parameters would match these paths."""
    router = APIRouter(prefix="/api/models", tags=["models"])

    @router.get("/available")
    async def list_available(
        term: str = "",
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=5000)] = 100,
    ) -> AvailablePage:
        """Lists the models that the galleries offer."""
        catalogue = await gallery.read_catalogue()
        entries = [entry for entry in catalogue.entries if _matches(entry, term.lower())]
        names = {model.name for model in await models.read_all()}
        page = [_available(entry, names) for entry in entries[offset : offset + limit]]
        return AvailablePage(models=page, total=len(entries), galleries=view_galleries(catalogue.galleries))

    @router.post("/install", status_code=201)
    async def install_model(body: Installation, actor: Actor, response: Response) -> ModelDetail:
        """Adds a model from a gallery. Nodes download its files when they load it first."""
        model = await installer.install(body.name, actor, name=body.install_as, overrides=body.overrides)
        return await view_model_detail(model, response, models, checks)

    @router.post("/import")
    async def import_models(body: Import, actor: Actor) -> Imported:
        """Adds every model configuration in the frontend's models directory."""
        directory = _within(models_dir, body.directory)
        found, rejected = await asyncio.to_thread(read_config_directory, disk, directory)
        answer = Imported(
            directory=str(directory),
            saved=[],
            unchanged=[],
            refused=[RejectedImport(file=item.file, reason=item.reason) for item in rejected],
        )
        before = {model.name: model for model in await models.read_all()}
        for item in found:
            known = before.get(item.name)
            if known and (known.text == item.text or not body.replace):
                answer.unchanged.append(item.name)
                continue
            try:
                config = parse_config_text(item.text)
                if known:
                    await checks.check_edit(config, known.newest.config, force=body.force)
                else:
                    await checks.check_new(config, force=body.force)
                await models.save(item.text, actor, comment=f"imported from {item.file}")
            except (InvalidInput, Conflict) as error:
                answer.refused.append(RejectedImport(file=item.file, reason=str(error)))
            else:
                answer.saved.append(item.name)
        if answer.saved:
            await notify_routes()
        return answer

    return router
