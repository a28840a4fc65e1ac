"""From a model's configuration to what a load needs: files, their names, and how the engine is started."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from corral.core.config_fields import whole
from corral.core.errors import InvalidInput
from corral.core.model_config import ConfigFile, ModelConfig

# One conversation must not keep all others waiting; the memory of four contexts is what that costs.
DEFAULT_SLOTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPlan:
    files: tuple[ConfigFile, ...]
    """Fetched by the worker itself."""
    paths: tuple[str, ...]
    """Names below the models directory that the engine will open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    model: str
    model_name: str
    context: int | None = None
    slots: int | None = None
    embeddings: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


def backend_of(config: ModelConfig) -> str:
    if config.backend:
        return config.backend
    if config.model.lower().endswith(".gguf"):
        return "llama-cpp"
    raise InvalidInput(f"the model {config.name!r} names no backend; add for example `backend: llama-cpp` to it")


def plan_weights(config: ModelConfig) -> WeightsPlan:
    """Downloads the configuration lists, and those that its fields name by address."""
    named = (config.model, config.mmproj, config.draft_model)
    by_address = [ConfigFile(local_name(config, text), text) for text in named if is_address(text)]
    paths = dict.fromkeys((*config.weight_paths, *(file.filename for file in by_address)))
    return WeightsPlan(files=(*config.files, *by_address), paths=tuple(paths))


def is_address(text: str) -> bool:
    return "://" in text


def local_name(config: ModelConfig, text: str) -> str:
    """Where a file named by address is kept: below the model's own directory."""
    return f"{config.name}/{text.rstrip('/').rpartition('/')[2].partition('@')[0]}" if is_address(text) else text


def plan_engine(config: ModelConfig, found: Mapping[str, str], known_options: Collection[str]) -> EngineStart:
    """`found`: absolute paths on the node by name. What is not found there is a name that the engine knows itself."""
    given = _options(config)
    slots = _positive(given.pop("parallel", "")) or _positive(given.pop("slots", "")) or DEFAULT_SLOTS
    if config.mmproj:
        given["mmproj"] = found.get(local_name(config, config.mmproj), config.mmproj)
    for name, value in (
        ("threads", config.document.get("threads")),
        ("gpu_layers", config.document.get("gpu_layers")),
        ("batch", config.parameters.get("batch")),
    ):
        if value is not None and name not in given:
            given[name] = str(whole(value))
    main = local_name(config, config.model)
    context = config.context_size_or_default
    return EngineStart(
        model=found.get(main, config.model),
        model_name=config.name,
        context=context,
        slots=slots,
        embeddings=config.embeddings,
        options={name: value for name, value in given.items() if name in known_options},
    )


def _options(config: ModelConfig) -> dict[str, str]:
    """LocalAI writes `name:value`; a bare name is a switch."""
    found = {}
    for option in config.options:
        name, colon, value = option.partition(":")
        found[name.strip()] = value.strip() if colon else "true"
    return found


def _positive(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None
