"""Model configurations as stored: canonical JSON."""

from functools import lru_cache

import msgspec

from corral.core.models.config import ModelConfig, parse_model_config


@lru_cache(maxsize=8192)
def read_document(document: str) -> ModelConfig:
    """Cached, because building routes reads every model, and on SQLite that happens on the event loop."""
    return parse_model_config(msgspec.json.decode(document))
