"""Adds a model from a gallery: for the admin API, and for Ollama's `/api/pull`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from corral.frontend.models.check import ConfigChecks
from corral.frontend.models.gallery import ModelGallery
from corral.store.serving.models import ModelStore, StoredModel, parse_config_text


class ModelInstaller:
    def __init__(
        self,
        models: ModelStore,
        gallery: ModelGallery,
        checks: ConfigChecks,
        notify_routes: Callable[[], Awaitable[None]],
    ) -> None:
        self._models, self._gallery, self._checks = models, gallery, checks
        self._notify_routes = notify_routes

    async def install(
        self, reference: str, actor: str, *, name: str = "", overrides: Mapping[str, Any] | None = None
    ) -> StoredModel:
        """`reference`: `name` or `gallery@name`. `name`: another name for the model in this cluster."""
        text = await self._gallery.read_config(reference, name=name, overrides=overrides)
        # The administrator did not write the gallery's entry: unknown fields are kept, and listed in the answer.
        await self._checks.check_new(parse_config_text(text), force=True)
        model = await self._models.save(text, actor, new=True, comment=f"from the gallery: {reference}")
        await self._notify_routes()
        return model
