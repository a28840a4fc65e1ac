"""A model as the API shows it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Response
from pydantic import BaseModel

from corral.frontend.api.times import time_of
from corral.frontend.gateway.drivers.prompts import warn_of_templates
from corral.frontend.models.check import ConfigChecks
from corral.store.serving.models import ModelStore, StoredModel


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingView:
    """The newest revision, which does not serve yet; the one before serves."""

    revision: str
    number: int
    serving: str
    """The revision that serves meanwhile."""
    serving_number: int
    reason: str
    """Why the revision does not serve yet; empty while it is loaded for the first time."""
    failures: int
    held: bool
    """Whether automatic retries have ended, because the replicas that serve would have to stop for another."""


class ModelObject(BaseModel):
    """A model as its newest revision configures it."""

    name: str
    backend: str
    model: str
    """The weights, as the configuration names them."""
    description: str
    revision: str
    number: int
    """Of the revision, counted from 1 for each model."""
    aliases: list[str]
    alias_of: str
    """For an alias: the model that serves its requests."""
    known_usecases: list[str]
    context_size: int | None
    embeddings: bool
    disabled: bool
    pinned: bool
    changed_at: datetime
    changed_by: str
    pending: PendingView | None
    """Set while `revision` does not serve yet."""


class ModelFileView(BaseModel):
    filename: str
    uri: str
    sha256: str


class ModelDetail(ModelObject):
    config: str
    """The YAML as it was written."""
    files: list[ModelFileView]
    unknown_fields: list[str]
    """Fields that are stored and passed on, but that Corral does not read."""
    restorable: int | None
    """Set while no replica with this revision has ever been ready: the number of the last one that served."""
    warnings: list[str]
    """Downloads that workers reject unless their settings allow them, with the setting; templates that cannot be
    rendered, or have no effect."""


def view_model(model: StoredModel) -> ModelObject:
    return ModelObject(**_fields(model))


async def view_model_detail(
    stored: StoredModel, response: Response, models: ModelStore, checks: ConfigChecks
) -> ModelDetail:
    """Also sets the ETag of the answer."""
    model = stored.newest
    response.headers["ETag"] = f'"{model.revision}"'
    return ModelDetail(
        **_fields(stored),
        config=model.text,
        files=[ModelFileView(filename=file.filename, uri=file.uri, sha256=file.sha256) for file in model.config.files],
        restorable=(await models.read_restorable()).get(stored.name),
        unknown_fields=list(model.config.unknown_fields),
        warnings=[*await checks.warn(model.config), *warn_of_templates(model.config)],
    )


def _fields(stored: StoredModel) -> dict[str, Any]:
    model = stored.newest
    config = model.config
    return {
        "name": model.name,
        "backend": config.backend,
        "model": config.model,
        "description": config.description,
        "revision": model.revision,
        "number": model.number,
        "aliases": list(model.aliases),
        "alias_of": model.alias_of,
        "known_usecases": list(config.known_usecases),
        "context_size": config.context_size,
        "embeddings": config.embeddings,
        "disabled": config.disabled,
        "pinned": config.pinned,
        "changed_at": time_of(model.changed_at),
        "changed_by": model.changed_by,
        "pending": view_pending(stored),
    }


def view_pending(model: StoredModel) -> PendingView | None:
    pending = model.pending
    if pending is None:
        return None
    return PendingView(
        revision=pending.revision,
        number=pending.number,
        serving=model.revision,
        serving_number=model.number,
        reason=pending.reason,
        failures=pending.failures,
        held=pending.held,
    )
