"""Backends and models of galleries in LocalAI's own listings: its fields, its paging, its order."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query

from corral.artifacts import BackendEntry, ModelEntry
from corral.controller.backends.upgrades import UpgradeCheck
from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgressStatus, Operation, OperationState
from corral.core.backends.variants import is_meta
from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend
from corral.frontend.api.galleries.offers import Offers, all_tags, entry_id, is_development, matches
from corral.frontend.api.galleries.routes import GalleryView, OfferReader, view_galleries
from corral.store.backends.operations import OperationStore
from corral.store.serving.models import ModelStore

ITEMS = 9
ITEMS_MAX = 2000
_MODALITIES = {
    "text-to-text": "text", "llm": "text", "embeddings": "embeddings", "reranker": "reranker",
    "text-to-speech": "tts", "tts": "tts", "audio-transcription": "asr", "asr": "asr", "speech-to-text": "asr",
    "text-to-image": "image", "image-generation": "image", "text-to-video": "video", "video-generation": "video",
    "object-detection": "detection", "vad": "vad", "sound-generation": "audio",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """The operation that changes a backend now."""

    id: str
    task: str
    """`Installation`, `Waiting` or `Deletion`."""
    is_deletion: bool


def _running_job(operation: Operation) -> RunningJob:
    if operation.verb is Verb.DELETE:
        return RunningJob(id=operation.id, task="Deletion", is_deletion=True)
    begun = any(node.status is not NodeProgressStatus.QUEUED for node in operation.nodes)
    return RunningJob(id=operation.id, task="Installation" if begun else "Waiting", is_deletion=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    term: str = ""
    tag: str = ""
    page: int = 1
    items: int = ITEMS
    sort: str = ""
    order: str = "asc"


def _status(offers: Offers, entry: BackendEntry) -> tuple[bool, str]:
    return not offers.holders(entry.name), entry.name.lower()


_SORTS: Mapping[str, Callable[[Offers, BackendEntry], Any]] = {
    "name": lambda _, entry: entry.name.lower(),
    "repository": lambda _, entry: (entry.gallery.lower(), entry.name.lower()),
    "license": lambda _, entry: (entry.license.lower(), entry.name.lower()),
    "status": _status,
}


def localai_gallery_routes(
    reader: OfferReader, operations: OperationStore, upgrades: UpgradeCheck, models: ModelStore
) -> APIRouter:
    router = APIRouter(tags=["localai"])

    @router.get("/api/backends")
    async def list_backends_page(
        term: str = "",
        tag: str = "",
        page: Annotated[int, Query(ge=1)] = 1,
        items: Annotated[int, Query(ge=1)] = ITEMS,
        sort: str = "",
        order: str = "asc",
    ) -> dict[str, Any]:
        """Lists the backends of the galleries in pages."""
        request = PageRequest(term=term, tag=tag, page=page, items=items, sort=sort, order=order)
        running = [one for one in await operations.read_open() if one.state is OperationState.RUNNING]
        return list_page(await reader.read(), request, {one.backend: _running_job(one) for one in running})

    @router.get("/backends")
    async def list_installed_backends() -> list[dict[str, Any]]:
        """Lists the backends that are installed on some node."""
        newer = {name: upgrade.nodes[0].available_version for name, upgrade in (await upgrades.read()).items()}
        return list_installed(await reader.read(), newer)

    @router.get("/backends/available")
    async def list_available_backends() -> list[dict[str, Any]]:
        """Lists the backends that some node can run."""
        return list_available(await reader.read())

    @router.get("/backends/known")
    async def list_known_backends() -> list[dict[str, Any]]:
        """Lists the backends that a model may name."""
        return list_known(await reader.read())

    @router.get("/backends/galleries")
    async def list_backend_galleries() -> list[GalleryView]:
        """Lists the backend galleries."""
        return view_galleries((await reader.galleries.backends()).galleries)

    @router.get("/models/available")
    async def list_available_models() -> list[dict[str, Any]]:
        """Lists the models of the galleries."""
        known = {model.name for model in await models.read_all()}
        return [view_model_entry(entry, known) for entry in (await reader.galleries.models()).entries]

    return router


def view_model_entry(entry: ModelEntry, known: Collection[str]) -> dict[str, Any]:
    """`known`: the names of all models."""
    return {
        "name": entry.name,
        "url": entry.url,
        "description": entry.description.strip(),
        "license": entry.license,
        "icon": entry.icon,
        "urls": entry.urls,
        "tags": entry.tags,
        "size": entry.size,
        "backend": entry.backend,
        "gallery": {"name": entry.gallery},
        "installed": entry.name in known,
    }


def list_page(offers: Offers, request: PageRequest, jobs: Mapping[str, RunningJob]) -> dict[str, Any]:
    """`jobs`: the running job of each backend, by its plain name."""
    entries = offers.catalogue.entries
    found = [entry for entry in entries if matches(entry, term=request.term, tag=request.tag)]
    found = [entry for entry in found if offers.fits_any_node(entry) or offers.holders(entry.name)]
    if request.sort:
        if request.sort not in _SORTS or request.order not in ("asc", "desc"):
            raise InvalidInput(f"`sort` must be one of {', '.join(_SORTS)}, and `order` asc or desc")
        found.sort(key=lambda entry: _SORTS[request.sort](offers, entry), reverse=request.order == "desc")
    items = max(1, min(request.items, ITEMS_MAX))
    pages = max(1, -(-len(found) // items))
    page = max(1, min(request.page, pages))
    running = {entry_id(entry): jobs[entry.name] for entry in entries if entry.name in jobs}
    return {
        "backends": [_item(offers, entry, running) for entry in found[(page - 1) * items : page * items]],
        "repositories": view_galleries(offers.catalogue.galleries),
        "allTags": all_tags(entries),
        "processingBackends": {key: job.id for key, job in running.items()},
        "taskTypes": {key: job.task for key, job in running.items()},
        "availableBackends": len(found),
        "installedBackends": len({name for names in offers.installed.values() for name in _names(names)}),
        "currentPage": page,
        "totalPages": pages,
        "prevPage": max(1, page - 1),
        "nextPage": min(pages, page + 1),
        "systemCapability": ", ".join(sorted(offers.capabilities)) or "default",
        "preferDevelopmentBackends": False,
    }


def _names(backends: Sequence[ObservedBackend]) -> list[str]:
    return [backend.name for backend in backends]


def _item(offers: Offers, entry: BackendEntry, running: Mapping[str, RunningJob]) -> dict[str, Any]:
    job = running.get(entry_id(entry))
    nodes = node_refs(offers, entry.name)
    versions = {node["version"] for node in nodes if node.get("version")}
    return {
        "id": entry_id(entry),
        "name": entry.name,
        "description": entry.description.strip(),
        "icon": entry.icon,
        "license": entry.license,
        "urls": entry.urls,
        "tags": entry.tags,
        "gallery": entry.gallery,
        "installed": bool(nodes),
        "version": ", ".join(sorted(versions)) or entry.version,
        "processing": job is not None,
        "jobID": job.id if job is not None else "",
        "isDeletion": job is not None and job.is_deletion,
        "isMeta": is_meta(entry),
        "isAlias": False,
        "isDevelopment": is_development(entry),
        "capabilities": entry.capabilities,
        "metaBackendFor": ", ".join(sorted({node["concrete"] for node in nodes if node.get("concrete")})),
        "nodes": nodes,
    }


def node_refs(offers: Offers, name: str) -> list[dict[str, Any]]:
    """The nodes that have it: `node_id`, `node_name`, `node_status`, and the known facts about the build there."""
    return [
        _node_ref(node, backend)
        for node in offers.backend_nodes
        for backend in offers.installed.get(node.id, ())
        if backend.name.lower() == name.lower()
    ]


def _node_ref(node: Node, backend: ObservedBackend) -> dict[str, Any]:
    facts = {
        "version": backend.version,
        "digest": backend.digest,
        "uri": backend.uri,
        "installed_at": backend.installed_at,
        "concrete": backend.concrete,
    }
    known = {key: value for key, value in facts.items() if value}
    return {"node_id": node.id, "node_name": node.name, "node_status": node.localai_status.value, **known}


def list_available(offers: Offers) -> list[dict[str, Any]]:
    """`/backends/available`: the entries that some node can run."""
    return [
        {
            "name": entry.name,
            "alias": entry.alias,
            "uri": entry.uri,
            "mirrors": entry.mirrors,
            "capabilities": entry.capabilities,
            "version": entry.version,
            "description": entry.description.strip(),
            "license": entry.license,
            "icon": entry.icon,
            "urls": entry.urls,
            "tags": entry.tags,
            "size": entry.size,
            "gallery": {"name": entry.gallery, "url": entry.gallery_url},
            "installed": bool(offers.holders(entry.name)),
        }
        for entry in offers.catalogue.entries
        if offers.fits_any_node(entry)
    ]


def list_known(offers: Offers) -> list[dict[str, Any]]:
    """`/backends/known`: the backends that a model may name. Corral detects none from a model's files."""
    known: dict[str, BackendEntry] = {}
    for entry in offers.catalogue.entries:
        if not offers.families.is_variant(entry) and not is_development(entry):
            known.setdefault(entry.name.lower(), entry)
    return [
        {
            "name": entry.name,
            "modality": _modality(entry.tags),
            "auto_detect": False,
            "description": entry.description.strip(),
            "installed": bool(offers.holders(entry.name)),
        }
        for entry in sorted(known.values(), key=lambda entry: entry.name.lower())
    ]


def _modality(tags: Sequence[str]) -> str:
    return next((_MODALITIES[tag.lower()] for tag in tags if tag.lower() in _MODALITIES), "other")


def list_installed(offers: Offers, upgrades: Mapping[str, str]) -> list[dict[str, Any]]:
    """`/backends`: every backend that is installed on some node. `upgrades`: by name, the version that can be upgraded
    to."""
    by_name: dict[str, list[tuple[NodeId, ObservedBackend]]] = {}
    for node in offers.backend_nodes:
        for backend in offers.installed.get(node.id, ()):
            by_name.setdefault(backend.name, []).append((node.id, backend))
    return [_installed(offers, name, [one for _, one in found], upgrades) for name, found in sorted(by_name.items())]


def _installed(
    offers: Offers, name: str, found: Sequence[ObservedBackend], upgrades: Mapping[str, str]
) -> dict[str, Any]:
    newest = max(found, key=lambda backend: backend.installed_at)
    metadata = {
        "name": name,
        "alias": newest.alias,
        "meta_backend_for": newest.concrete,
        "gallery_url": newest.gallery_url,
        "installed_at": newest.installed_at,
        "version": newest.version,
        "uri": newest.uri,
        "digest": newest.digest,
    }
    shown: dict[str, Any] = {
        "Name": name,
        "RunFile": "",
        "IsMeta": newest.is_meta,
        "IsSystem": newest.is_system,
        "Metadata": {key: value for key, value in metadata.items() if value},
        "nodes": node_refs(offers, name),
    }
    if name in upgrades:
        shown |= {"upgrade_available": True, "available_version": upgrades[name]}
    return shown
