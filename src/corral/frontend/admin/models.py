"""`/api/models`: model configurations."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from corral.artifacts.galleries.entries import ModelEntry
from corral.core.errors import Conflict, InvalidInput
from corral.core.model_config import check_model_path
from corral.frontend.admin.principal import Actor
from corral.frontend.gallery.listing import show_galleries
from corral.frontend.gallery.routes import GalleryView
from corral.frontend.model_gallery import ModelGallery
from corral.frontend.model_import import read_config_directory
from corral.store.models import StoredModel, parse_config_text
from corral.store.stores import Stores
from corral.system import Disk


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


class RevisionView(BaseModel):
    revision: str
    config: str
    at: datetime
    actor: str


class ConfigText(BaseModel):
    model_config = ConfigDict(extra="forbid")
    config: str
    """YAML, as LocalAI's model configurations are."""


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


def _detail(model: StoredModel, response: Response) -> ModelDetail:
    response.headers["ETag"] = f'"{model.revision}"'
    files = [{"filename": file.filename, "uri": file.uri, "sha256": file.sha256} for file in model.config.files]
    unknown = list(model.config.unknown_fields)
    return ModelDetail(**_view(model), config=model.text, files=files, unknown_fields=unknown)


def read_if_match(header: str | None) -> str | None:
    """The revision the caller edited. `*` and nothing mean: whatever is there."""
    if header is None or header.strip() == "*":
        return None
    return header.strip().removeprefix("W/").strip('"')


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


def model_routes(
    stores: Stores, gallery: ModelGallery, disk: Disk, models_dir: Path, changed: Callable[[], Awaitable[None]]
) -> APIRouter:
    router = APIRouter(prefix="/api/models", tags=["models"])
    models = stores.models

    @router.get("")
    async def list_models() -> list[ModelView]:
        return [model_view(model) for model in await models.read_all()]

    @router.post("", status_code=201)
    async def add_model(wanted: ConfigText, actor: Actor, response: Response) -> ModelDetail:
        model = await models.save(wanted.config, actor, new=True)
        await changed()
        return _detail(model, response)

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
        model = await models.save(text, actor, new=True)
        await changed()
        return _detail(model, response)

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
                await models.save(item.text, actor)
            except (InvalidInput, Conflict) as error:
                answer.refused.append(RefusedImport(file=item.file, reason=str(error)))
            else:
                answer.saved.append(item.name)
        if answer.saved:
            await changed()
        return answer

    @router.get("/{name:path}/revisions")
    async def list_revisions(name: str) -> list[RevisionView]:
        """Newest first. A deletion has an empty configuration."""
        return [
            RevisionView(revision=item.revision, config=item.text, at=_at(item.at), actor=item.actor)
            for item in await models.read_revisions(name)
        ]

    @router.get("/{name:path}")
    async def show_model(name: str, response: Response) -> ModelDetail:
        return _detail(await models.read(name), response)

    @router.put("/{name:path}")
    async def edit_model(
        name: str,
        wanted: ConfigText,
        actor: Actor,
        response: Response,
        if_match: Annotated[str | None, Header()] = None,
    ) -> ModelDetail:
        """Replicas of the configuration before get no more requests from the moment this is answered."""
        given = parse_config_text(wanted.config).name
        if given != name:
            raise InvalidInput(f"the configuration is of {given!r}, not of {name!r}; a model keeps its name")
        model = await models.save(wanted.config, actor, expected=read_if_match(if_match))
        await changed()
        return _detail(model, response)

    @router.delete("/{name:path}")
    async def delete_model(name: str, actor: Actor, if_match: Annotated[str | None, Header()] = None) -> ModelView:
        model = await models.delete(name, actor, expected=read_if_match(if_match))
        await changed()
        return model_view(model)

    return router
