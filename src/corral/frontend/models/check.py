"""Whether a configuration that somebody writes can be what they meant. A mistake is told before anything changes."""

from typing import Protocol

from corral.artifacts import Catalogue
from corral.artifacts.errors import NotInstalled
from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig
from corral.core.models.config_schema import refuse_unknown
from corral.core.models.load_plan import backend_of, find_mistyped_options, plan_engine
from corral.core.models.localai_options import StagedModel, model_options
from corral.core.nodes.observed import find_backend
from corral.core.suggestions import near_names
from corral.frontend.models.downloads import Downloads
from corral.store.backends.observed import ObservedStore


class BackendCatalogues(Protocol):
    async def backends(self) -> Catalogue: ...

    async def look_again(self) -> None: ...


class ConfigChecks:
    def __init__(self, downloads: Downloads, observed: ObservedStore, galleries: BackendCatalogues) -> None:
        self.downloads, self._observed, self._galleries = downloads, observed, galleries

    async def check_new(self, config: ModelConfig, *, force: bool = False) -> None:
        """A backend that nobody has or offers yet may still come: `corral models install` says so."""
        self.downloads.check(config)
        if not force:
            refuse_unknown(config.document)
            refuse_fixed_prompts(config)

    async def check_edit(self, config: ModelConfig, before: ModelConfig, *, force: bool = False) -> None:
        """What could not be loaded is refused; what was let in before is not asked about again."""
        self.downloads.check(config)
        if force:
            return
        refuse_unknown(config.document, known=before.document)
        refuse_fixed_prompts(config, known=before)
        if config.alias_of or config.disabled:
            return
        backend = backend_of(config)
        plan_engine(config, {})
        model_options(config, StagedModel(), backend=backend)
        if config.backend and config.backend != before.backend:
            await self._check_backend(backend)
        await self._check_options(config, before, backend)

    async def _check_backend(self, name: str) -> None:
        installed = [backend for found in (await self._observed.read_backends()).values() for backend in found]
        if find_backend(installed, name) is not None or await self._is_offered(name):
            return
        await self._galleries.look_again()  # whoever names it may just have written it down there
        if await self._is_offered(name):
            return
        catalogue = await self._galleries.backends()
        names = {one for backend in installed for one in (backend.name, backend.alias) if one}
        near = near_names(name, sorted(names | {entry.name for entry in catalogue.entries}))
        hint = f"did you mean {' or '.join(near)}?" if near else "`corral backends available` shows the ones there are"
        raise InvalidInput(
            " ".join(
                [
                    f"there is no backend {name!r}: no node has it and no gallery offers it; {hint}",
                    "--force (`force` in the API) saves the configuration all the same.",
                    *catalogue.unread(),
                ]
            )
        )

    async def _check_options(self, config: ModelConfig, before: ModelConfig, backend: str) -> None:
        """Of engines whose gallery entry says which options they take; the others are asked with all of them."""
        try:
            entry = (await self._galleries.backends()).find(backend)
        except NotInstalled:
            return
        manifest = entry.corral.manifest if entry.corral is not None else None
        mistyped = find_mistyped_options(config, before, manifest.options) if manifest is not None else {}
        if mistyped:
            told = ", ".join(f"{name[:80]} (did you mean {near}?)" for name, near in mistyped.items())
            raise InvalidInput(
                f"the backend {backend!r} does not take these options, which would have no effect: {told}. Correct"
                " them, or save the configuration with --force (`force` in the API)"
            )

    async def _is_offered(self, name: str) -> bool:
        try:
            (await self._galleries.backends()).find(name)
        except NotInstalled:
            return False
        return True


def refuse_fixed_prompts(config: ModelConfig, *, known: ModelConfig | None = None) -> None:
    """LocalAI's configurations may name a file with a template. Taken for the template itself, its name would be the
    whole of every prompt. `known`: a configuration whose own were let in before."""
    for field in ("chat", "chat_message", "completion", "edit", "function"):
        text = getattr(config.template, field)
        if not text or "{{" in text or (known is not None and getattr(known.template, field) == text):
            continue
        raise InvalidInput(
            f"template.{field} has no placeholder such as {{{{.Input}}}}: every prompt would be the text {text[:80]!r}."
            f" If that names a file of LocalAI's, write the text of {text[:80]}.tmpl here, or import LocalAI's models"
            " directory, which does so; --force (`force` in the API) saves the configuration all the same"
        )
