"""Models in galleries, and the configuration of each.

Installing a model stores its configuration and downloads nothing: the configuration lists the files with their digests
(`download_files`), and the node that serves the model downloads them.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from corral.artifacts import ModelCatalogue, ModelEntry, ResolvedModel
from corral.artifacts.galleries.entries import merged
from corral.core.errors import NotFound
from corral.core.models.config import TEMPLATE_FIELDS
from corral.core.suggestions import near_names
from corral.frontend.galleries import Galleries
from corral.system.yaml import dump_yaml


class ModelResolver(Protocol):
    async def read_model(self, entry: ModelEntry) -> ResolvedModel: ...


class ModelGallery:
    def __init__(self, resolver: ModelResolver, galleries: Galleries) -> None:
        self._resolver, self._galleries = resolver, galleries

    async def read_catalogue(self) -> ModelCatalogue:
        return await self._galleries.models()

    async def read_config(self, reference: str, *, name: str = "", overrides: Mapping[str, Any] | None = None) -> str:
        """The YAML configuration of `reference` (`name` or `gallery@name`)."""
        try:
            entry = find_entry(await self.read_catalogue(), reference)
        except NotFound:  # the gallery may have been edited since the last refresh
            await self._galleries.look_again()
            entry = find_entry(await self.read_catalogue(), reference)
        resolved = await self._resolver.read_model(entry)
        return dump_yaml(config_document(resolved, entry, name=name, overrides=overrides or {}))


def find_entry(catalogue: ModelCatalogue, reference: str) -> ModelEntry:
    entries = catalogue.entries
    gallery, at, plain = reference.rpartition("@")
    for entry in entries:
        if entry.name.lower() == reference.lower():
            return entry
        if at and entry.gallery == gallery and entry.name.lower() == plain.lower():
            return entry
    near = near_names(plain, [entry.name for entry in entries])
    hint = f"did you mean {', '.join(near)}?" if near else "`corral models available` lists all models."
    raise NotFound(" ".join([f"no gallery has a model named {reference!r}; {hint}", *catalogue.unread()]))


def config_document(
    resolved: ResolvedModel, entry: ModelEntry, *, name: str, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    config = merged(resolved.config, overrides)
    document: dict[str, Any] = {"name": name or resolved.name}
    if resolved.backend:
        document["backend"] = resolved.backend
    if entry.description:
        document["description"] = entry.description.strip()
    document.update({key: value for key, value in config.items() if key != "name"})
    if resolved.prompt_templates and isinstance(document.get("template"), dict):
        document["template"] = _inlined(document["template"], resolved)
    if resolved.files:
        document["download_files"] = [
            {"filename": file.filename, "uri": file.uri, **({"sha256": file.sha256} if file.sha256 else {})}
            for file in resolved.files
        ]
    return document


def _inlined(template: Mapping[str, Any], resolved: ResolvedModel) -> dict[str, Any]:
    """A gallery may have templates as separate files that the configuration names; the store has no such files."""
    contents = {part.name: part.content for part in resolved.prompt_templates}
    return {
        key: contents.get(value, value) if key in TEMPLATE_FIELDS and isinstance(value, str) else value
        for key, value in template.items()
    }
