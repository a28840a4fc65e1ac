"""Models that can be installed: gallery entries, and the configuration each becomes.

Installing stores a configuration and downloads nothing: it lists the files with their digests (`download_files`), and
the machine that is to serve the model fetches them from the source itself.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from corral.artifacts import ModelCatalogue, ModelEntry, ResolvedModel
from corral.artifacts.galleries.entries import merged
from corral.core.errors import NotFound
from corral.core.models.config import TEMPLATE_FIELDS
from corral.core.suggestions import near_names
from corral.system.yaml import dump_yaml


class ModelReader(Protocol):
    async def read_model(self, entry: ModelEntry) -> ResolvedModel: ...


class ModelCatalogues(Protocol):
    async def models(self) -> ModelCatalogue: ...

    async def look_again(self) -> None: ...


class ModelGallery:
    def __init__(self, reader: ModelReader, catalogues: ModelCatalogues) -> None:
        self._reader = reader
        self._catalogues = catalogues

    async def read_catalogue(self) -> ModelCatalogue:
        return await self._catalogues.models()

    async def read_config(self, wanted: str, *, name: str = "", overrides: Mapping[str, Any] | None = None) -> str:
        """The YAML that installing `wanted` (`name` or `gallery@name`) means."""
        try:
            entry = find_entry(await self.read_catalogue(), wanted)
        except NotFound:  # of what was last read; whoever asks for it may just have written it down
            await self._catalogues.look_again()
            entry = find_entry(await self.read_catalogue(), wanted)
        resolved = await self._reader.read_model(entry)
        return dump_yaml(config_document(resolved, entry, name=name, overrides=overrides or {}))


def find_entry(catalogue: ModelCatalogue, wanted: str) -> ModelEntry:
    entries = catalogue.entries
    gallery, at, plain = wanted.rpartition("@")
    for entry in entries:
        if entry.name.lower() == wanted.lower():
            return entry
        if at and entry.gallery == gallery and entry.name.lower() == plain.lower():
            return entry
    near = near_names(plain, [entry.name for entry in entries])
    hint = f"did you mean {', '.join(near)}?" if near else "`corral models available` shows what there is."
    raise NotFound(" ".join([f"no gallery has a model named {wanted!r}; {hint}", *catalogue.unread()]))


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
    """A gallery may keep templates apart, as files that the configuration names. A store has no such files."""
    contents = {part.name: part.content for part in resolved.prompt_templates}
    return {
        key: contents.get(value, value) if key in TEMPLATE_FIELDS and isinstance(value, str) else value
        for key, value in template.items()
    }
