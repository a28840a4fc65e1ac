"""Checks a model configuration before it is saved, so that mistakes are reported before anything changes."""

from collections.abc import Sequence

from corral.artifacts.content.manifest import Manifest
from corral.artifacts.errors import NotInstalled
from corral.core.errors import InvalidInput
from corral.core.models.config import ATTACHED, TEMPLATE_FIELDS, ModelConfig, idle_fields
from corral.core.models.config_schema import refuse_unknown
from corral.core.models.load_plan import backend_of, find_mistyped_options, plan_engine
from corral.core.models.localai_options import StagedModel, model_options
from corral.core.nodes.observed import ObservedBackend, find_backend
from corral.core.replicas.routing import OPENAI
from corral.core.suggestions import near_names
from corral.frontend.galleries import Galleries
from corral.frontend.models.downloads import Downloads
from corral.store.backends.observed import ObservedStore


class ConfigChecks:
    def __init__(self, downloads: Downloads, observed: ObservedStore, galleries: Galleries) -> None:
        self.downloads, self._observed, self._galleries = downloads, observed, galleries

    async def warn(self, config: ModelConfig) -> list[str]:
        """What a stored configuration says in vain."""
        found = self.downloads.warn(config)
        if config.is_attached and not config.alias_of and (idle := idle_fields(config)):
            found.append(
                f"nothing is started for a model with the backend `{ATTACHED}`, so these fields have no effect:"
                f" {', '.join(idle)}. What its servers take and do is set with `corral models attach`"
            )
        fields = [field for field in TEMPLATE_FIELDS if getattr(config.template, field)]
        if fields and not config.alias_of and not config.disabled:
            why = await self._why_no_templates(config)
            found += [f"{', '.join(f'template.{field}' for field in fields)} has no effect: {why}"] if why else []
        return found

    async def _why_no_templates(self, config: ModelConfig) -> str:
        """LocalAI's models often have templates, which only backends of LocalAI's protocol need. So they are no
        mistake. Empty if the templates have an effect, or if that is not known."""
        if config.is_attached:
            return "attached servers render prompts themselves"
        manifests = await self._manifests(config.backend) if config.backend else []
        if not any(manifest.protocol == OPENAI for manifest in manifests):
            return ""
        hint = " A Jinja template can be set with the option `chat_template`."
        can_set = any("chat_template" in manifest.options for manifest in manifests)
        return (
            f"builds of {config.backend} with OpenAI's API render prompts themselves, with the template in the model's"
            f" file; Go templates are for builds with LocalAI's protocol.{hint if can_set else ''}"
        )

    async def _manifests(self, backend: str) -> list[Manifest]:
        catalogue = await self._galleries.backends()
        try:
            builds = catalogue.builds_of(catalogue.find(backend))
        except NotInstalled:
            return []
        manifests = (build.corral.manifest for build in builds if build.corral is not None)
        return [manifest for manifest in manifests if manifest is not None]

    async def check_new(self, config: ModelConfig, *, force: bool = False) -> None:
        """A backend that nobody knows may be installed or offered later, so only a mistyped one is rejected: a name
        that is close to a known one."""
        self.downloads.check(config)
        if force:
            return
        refuse_unknown(config.document)
        reject_fixed_prompts(config)
        if config.backend and not config.alias_of and not config.disabled and not config.is_attached:
            await self._check_backend(config.backend, only_mistyped=True)

    async def check_edit(self, config: ModelConfig, before: ModelConfig, *, force: bool = False) -> None:
        """Rejects what cannot be loaded, except mistakes that were already in the previous configuration."""
        self.downloads.check(config)
        if force:
            return
        refuse_unknown(config.document, known=before.document)
        reject_fixed_prompts(config, known=before)
        if config.alias_of or config.disabled or config.is_attached:
            return
        backend = backend_of(config)
        plan_engine(config, {})
        model_options(config, StagedModel(), backend=backend)
        if config.backend and config.backend != before.backend:
            await self._check_backend(backend)
        await self._check_options(config, before, backend)

    async def _check_backend(self, name: str, *, only_mistyped: bool = False) -> None:
        installed = [backend for found in (await self._observed.read_backends()).values() for backend in found]
        if find_backend(installed, name) is not None or await self._is_offered(name):
            return
        if only_mistyped and not await self._find_near(name, installed):
            return
        await self._galleries.look_again()  # the gallery may have just been edited
        if await self._is_offered(name):
            return
        catalogue = await self._galleries.backends()
        near = await self._find_near(name, installed)
        hint = f"did you mean {' or '.join(near)}?" if near else "`corral backends available` lists all backends"
        raise InvalidInput(
            " ".join(
                [
                    f"unknown backend {name!r}: no node has it and no gallery offers it; {hint}",
                    "Use --force (`force` in the API) to save the configuration anyway.",
                    *catalogue.unread(),
                ]
            )
        )

    async def _find_near(self, name: str, installed: Sequence[ObservedBackend]) -> list[str]:
        names = {one for backend in installed for one in (backend.name, backend.alias) if one}
        offered = {entry.name for entry in (await self._galleries.backends()).entries}
        return near_names(name, sorted(names | offered))

    async def _check_options(self, config: ModelConfig, before: ModelConfig, backend: str) -> None:
        """Only for engines whose gallery entries list their options. A node may have any build of the family."""
        manifests = await self._manifests(backend)
        known = {name for manifest in manifests for name in manifest.options}
        mistyped = find_mistyped_options(config, before, known) if manifests else {}
        if mistyped:
            listed = ", ".join(f"{name[:80]} (did you mean {near}?)" for name, near in mistyped.items())
            raise InvalidInput(
                f"the backend {backend!r} does not know these options, so they would have no effect: {listed}. Correct"
                " them, or use --force (`force` in the API) to save the configuration anyway"
            )

    async def _is_offered(self, name: str) -> bool:
        try:
            (await self._galleries.backends()).find(name)
        except NotInstalled:
            return False
        return True


def reject_fixed_prompts(config: ModelConfig, *, known: ModelConfig | None = None) -> None:
    """Rejects templates without placeholders. LocalAI's configurations may name a template file, and its name would
    then be every prompt. `known`: the previous configuration, whose templates are accepted."""
    for field in ("chat", "chat_message", "completion", "edit", "function"):
        text = getattr(config.template, field)
        if not text or "{{" in text or (known is not None and getattr(known.template, field) == text):
            continue
        raise InvalidInput(
            f"template.{field} has no placeholder such as {{{{.Input}}}}: every prompt would be the text {text[:80]!r}."
            f" If this is the name of a LocalAI template file, write the content of {text[:80]}.tmpl here, or import"
            " LocalAI's models directory. Use --force (`force` in the API) to save the configuration anyway"
        )
