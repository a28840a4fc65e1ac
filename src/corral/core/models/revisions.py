"""Revisions of a model's configuration: their states, and when an edit takes effect."""

import hashlib
import json
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig
from corral.core.models.load_plan import backend_of, plan_engine, plan_weights
from corral.core.models.localai_options import StagedModel, model_options


class RevisionState(StrEnum):
    PENDING = "pending"
    """Is loaded for the first time, beside the current one."""
    FAILED = "failed"
    """Could not be loaded, or did not answer. The current one keeps serving."""
    CURRENT = "current"
    SUPERSEDED = "superseded"
    """Was current until a newer one replaced it."""
    DISCARDED = "discarded"
    """Was replaced or taken back before it was loaded."""
    DELETED = "deleted"
    """The deletion of the model."""


def load_revision(config: ModelConfig) -> str:
    """A hash of all fields that a process is started and loaded with. Configurations with the same hash are served
    by the same process: frontends and controllers apply the other fields."""
    try:
        backend = backend_of(config)
    except InvalidInput:  # nothing can be started from it
        backend = ""
    names = (*config.weight_names, *config.companion_names)
    staged = StagedModel(paths={name: name for name in names})
    said: dict[str, Any] = {
        "backend": backend,
        "weights": asdict(plan_weights(config)),
        "engine": asdict(plan_engine(config, {})),
        "options": model_options(config, staged, backend=backend),
        "artifacts": config.document.get("artifacts"),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def is_same_load(before: ModelConfig, after: ModelConfig) -> bool:
    """Whether a process that was started with one of them can serve the other."""
    if before.alias_of or after.alias_of:
        return False
    return load_revision(before) == load_revision(after)


def must_be_proven(before: ModelConfig, after: ModelConfig) -> bool:
    """Whether a replica must become ready before the change takes effect. Not when the model is disabled or becomes a
    redirect: its replicas end."""
    ends = any(config.alias_of or config.disabled for config in (before, after))
    return not ends and not is_same_load(before, after)
