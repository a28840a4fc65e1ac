"""Backends as LocalAI's clients expect them to be listed: its keys, its paging, its order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.artifacts import BackendEntry, GalleryStatus
from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgressStatus, Operation
from corral.core.backends.variants import is_meta
from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend
from corral.frontend.api.galleries.offers import Offers, all_tags, entry_id, is_development, matches

ITEMS = 9
ITEMS_MOST = 2000
_MODALITIES = {
    "text-to-text": "text", "llm": "text", "embeddings": "embeddings", "reranker": "reranker",
    "text-to-speech": "tts", "tts": "tts", "audio-transcription": "asr", "asr": "asr", "speech-to-text": "asr",
    "text-to-image": "image", "image-generation": "image", "text-to-video": "video", "video-generation": "video",
    "object-detection": "detection", "vad": "vad", "sound-generation": "audio",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class InWork:
    """A backend that some operation is at."""

    job_id: str
    task: str
    """`Installation`, `Waiting` or `Deletion`."""

    @property
    def is_deletion(self) -> bool:
        return self.task == "Deletion"


def task_of(operation: Operation) -> str:
    if operation.verb is Verb.DELETE:
        return "Deletion"
    begun = any(node.status is not NodeProgressStatus.QUEUED for node in operation.nodes)
    return "Installation" if begun else "Waiting"


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


def list_page(offers: Offers, wanted: PageRequest, in_work: Mapping[str, InWork]) -> dict[str, Any]:
    """`in_work` by plain name."""
    entries = offers.catalogue.entries
    found = [entry for entry in entries if matches(entry, term=wanted.term, tag=wanted.tag)]
    found = [entry for entry in found if offers.fits_anyone(entry) or offers.holders(entry.name)]
    if wanted.sort:
        if wanted.sort not in _SORTS or wanted.order not in ("asc", "desc"):
            raise InvalidInput(f"sort must be one of {', '.join(_SORTS)}, and order asc or desc")
        found.sort(key=lambda entry: _SORTS[wanted.sort](offers, entry), reverse=wanted.order == "desc")
    items = max(1, min(wanted.items, ITEMS_MOST))
    pages = max(1, -(-len(found) // items))
    page = max(1, min(wanted.page, pages))
    working = {entry_id(entry): in_work[entry.name] for entry in entries if entry.name in in_work}
    return {
        "backends": [_item(offers, entry, working) for entry in found[(page - 1) * items : page * items]],
        "repositories": show_galleries(offers.catalogue.galleries),
        "allTags": all_tags(entries),
        "processingBackends": {key: work.job_id for key, work in working.items()},
        "taskTypes": {key: work.task for key, work in working.items()},
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


def _item(offers: Offers, entry: BackendEntry, working: Mapping[str, InWork]) -> dict[str, Any]:
    work = working.get(entry_id(entry))
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
        "processing": work is not None,
        "jobID": work.job_id if work is not None else "",
        "isDeletion": work is not None and work.is_deletion,
        "isMeta": is_meta(entry),
        "isAlias": False,
        "isDevelopment": is_development(entry),
        "capabilities": entry.capabilities,
        "metaBackendFor": ", ".join(sorted({node["concrete"] for node in nodes if node.get("concrete")})),
        "nodes": nodes,
    }


def node_refs(offers: Offers, name: str) -> list[dict[str, Any]]:
    """Where it is installed: `node_id`, `node_name`, `node_status`, and what is known of the build there."""
    return [
        ref
        for node in offers.machines
        for backend in offers.installed.get(node.id, ())
        if backend.name.lower() == name.lower()
        for ref in (_node_ref(node, backend),)
    ]


def _node_ref(node: Node, backend: ObservedBackend) -> dict[str, Any]:
    facts = {
        "version": backend.version,
        "digest": backend.digest,
        "uri": backend.uri,
        "installed_at": backend.installed_at,
        "concrete": backend.concrete,
    }
    told = {key: value for key, value in facts.items() if value}
    return {"node_id": node.id, "node_name": node.name, "node_status": node.localai_status.value, **told}


def list_available(offers: Offers) -> list[dict[str, Any]]:
    """`/backends/available`: the entries that any machine can run."""
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
        if offers.fits_anyone(entry)
    ]


def list_known(offers: Offers) -> list[dict[str, Any]]:
    """`/backends/known`: the backends a model may name. Corral detects none from a model's files."""
    known: dict[str, BackendEntry] = {}
    for entry in offers.catalogue.entries:
        if not offers.families.is_part(entry) and not is_development(entry):
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
    """`/backends`: everything that is installed anywhere. `upgrades`: by name, the version there is to upgrade to."""
    by_name: dict[str, list[tuple[NodeId, ObservedBackend]]] = {}
    for node in offers.machines:
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


def show_galleries(galleries: Sequence[GalleryStatus]) -> list[dict[str, Any]]:
    """LocalAI's `name` and `url`, and how fresh what is known of it is."""
    return [
        {
            "name": gallery.name,
            "url": gallery.url,
            "entries": gallery.entries,
            "age_s": round(gallery.age_s, 1),
            "problem": gallery.problem,
        }
        for gallery in galleries
    ]
