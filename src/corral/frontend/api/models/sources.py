"""`/api/models`: where models come from: galleries, and a directory of the frontend."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from corral.artifacts.galleries.entries import ModelEntry
from corral.core.errors import Conflict, InvalidInput
from corral.core.models.config import check_model_path
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.galleries.routes import GalleryView
from corral.frontend.api.localai.gallery_listing import show_galleries
from corral.frontend.api.models.routes import ModelDetail, model_detail
from corral.frontend.models.check import ConfigChecks
from corral.frontend.models.directory_import import read_config_directory
from corral.frontend.models.gallery import ModelGallery
from corral.store.serving.models import ModelStore, parse_config_text
from corral.system import Disk


class Installation(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    name: Annotated[str, Field(min_length=1, max_length=300)]
    """A gallery's model: `name`, or `gallery@name`."""
    install_as: Annotated[str, Field(alias="as")] = ""
    """Another name for it here."""
    overrides: dict[str, Any] = {}
    """Fields that go over those of the gallery."""


class Import(BaseModel):
    model_config = ConfigDict(extra="forbid")
    directory: str = ""
    """Within the frontend's models directory; empty is that directory itself."""
    replace: bool = False
    """Whether a model that is there already gets the directory's configuration."""
    force: bool = False
    """Also those with fields that Corral does not know, and of backends that nobody has or offers."""


class RefusedImport(BaseModel):
    file: str
    reason: str


class Imported(BaseModel):
    directory: str
    saved: list[str]
    unchanged: list[str]
    refused: list[RefusedImport]


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
    """How many fit, on all pages together."""
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
        size=entry.size,
        installed=entry.name in names,
    )


def _fits(entry: ModelEntry, term: str) -> bool:
    return term in f"{entry.name} {entry.description} {' '.join(entry.tags)}".lower()


def _within(models_dir: Path, directory: str) -> Path:
    """Nobody gets to read another place of the frontend's machine by way of an import."""
    if directory:
        check_model_path("directory", directory)
    return models_dir / directory


def model_source_routes(
    models: ModelStore,
    gallery: ModelGallery,
    checks: ConfigChecks,
    disk: Disk,
    models_dir: Path,
    changed: Callable[[], Awaitable[None]],
) -> APIRouter:
    """Before the routes of models, whose names would swallow these."""
    router = APIRouter(prefix="/api/models", tags=["models"])

    @router.get("/available")
    async def list_available(
        term: str = "",
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=5000)] = 100,
    ) -> AvailablePage:
        """What galleries offer."""
        catalogue = await gallery.read_catalogue()
        entries = [entry for entry in catalogue.entries if _fits(entry, term.lower())]
        names = {model.name for model in await models.read_all()}
        page = [_available(entry, names) for entry in entries[offset : offset + limit]]
        asked = [GalleryView(**shown) for shown in show_galleries(catalogue.galleries)]
        return AvailablePage(models=page, total=len(entries), galleries=asked)

    @router.post("/install", status_code=201)
    async def install_model(wanted: Installation, actor: Actor, response: Response) -> ModelDetail:
        """Adds a gallery's model. The machines that are to serve it fetch its files when it is first loaded."""
        text = await gallery.read_config(wanted.name, name=wanted.install_as, overrides=wanted.overrides)
        # What the gallery's author wrote is not this person's mistake: unknown fields are told, and stay.
        await checks.check_new(parse_config_text(text), force=True)
        model = await models.save(text, actor, new=True)
        await changed()
        return model_detail(model, response, checks.downloads)

    @router.post("/import")
    async def import_models(wanted: Import, actor: Actor) -> Imported:
        """Adds every model configuration that lies in the frontend's models directory."""
        directory = _within(models_dir, wanted.directory)
        found, refused = await asyncio.to_thread(read_config_directory, disk, directory)
        answer = Imported(
            directory=str(directory),
            saved=[],
            unchanged=[],
            refused=[RefusedImport(file=item.file, reason=item.reason) for item in refused],
        )
        before = {model.name: model for model in await models.read_all()}
        for item in found:
            known = before.get(item.name)
            if known and (known.text == item.text or not wanted.replace):
                answer.unchanged.append(item.name)
                continue
            try:
                config = parse_config_text(item.text)
                if known:
                    await checks.check_edit(config, known.newest.config, force=wanted.force)
                else:
                    await checks.check_new(config, force=wanted.force)
                await models.save(item.text, actor)
            except (InvalidInput, Conflict) as error:
                answer.refused.append(RefusedImport(file=item.file, reason=str(error)))
            else:
                answer.saved.append(item.name)
        if answer.saved:
            await changed()
        return answer

    return router
