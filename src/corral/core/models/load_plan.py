"""What a load needs, from the model configuration: files, their paths, and how to start the engine."""

import hashlib
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from corral.core.errors import InvalidInput
from corral.core.models.config import ConfigFile, ModelConfig, is_model_path
from corral.core.models.config_schema import numbers, text, whole

LAST_PART_MOST_BYTES = 200
LOCALAI_SLOT_OPTIONS = ("parallel", "n_parallel")
SLOT_OPTIONS = (*LOCALAI_SLOT_OPTIONS, "slots")
"""Names for one option that all engines have; the first that is set is used."""
MISTYPED_CUTOFF = 0.8


class Elastic(StrEnum):
    """What an engine gets more of where there is memory for it."""

    NOTHING = "nothing"
    SLOTS = "slots"
    """The context of each slot is configured."""
    CONTEXT = "context"
    """Slots and context, as far as they are not configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPlan:
    files: tuple[ConfigFile, ...]
    """Files that the worker downloads."""
    paths: tuple[str, ...]
    """Paths in the models directory that the engine opens."""
    maybe: tuple[str, ...] = ()
    """Names that may be files there, or values that only the engine knows."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.paths, *self.maybe)))

    def is_fetched(self, name: str) -> bool:
        """Whether it is a download, or inside of one."""
        return any(_is_within(name, file.filename) for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    model: str
    model_name: str
    context: int | None = None
    """Tokens of one conversation; -1 for all that the model was trained for. None: the engine decides."""
    slots: int | None = None
    """Requests at the same time. None: the engine decides."""
    embeddings: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    """Options that the engine does not know are ignored: the configuration may be written for another engine."""


def backend_of(config: ModelConfig) -> str:
    if config.backend:
        return config.backend
    if config.model.lower().endswith(".gguf"):
        return "llama-cpp"
    raise InvalidInput(f"the model {config.name!r} has no backend; add one, for example `backend: llama-cpp`")


def family_named_by(config: ModelConfig) -> str:
    """The name of its backend without a gallery; empty if it has none."""
    if config.backend or config.model.lower().endswith(".gguf"):
        return backend_of(config).rpartition("@")[2]
    return ""


def models_by_family(configs: Iterable[ModelConfig]) -> dict[str, set[str]]:
    """The names of the models, by the name of their backend without a gallery."""
    found: dict[str, set[str]] = {}
    for config in configs:
        found.setdefault(family_named_by(config), set()).add(config.name)
    return found


def plan_weights(config: ModelConfig) -> WeightsPlan:
    """Downloads that the configuration lists, and those that its fields name by URI."""
    by_address = [ConfigFile(local_name(config, name), name) for name in config.weight_names if is_address(name)]
    paths = dict.fromkeys((*config.weight_paths, *(file.filename for file in by_address)))
    maybe = dict.fromkeys(name for name in _hinted(config) if name not in paths)
    return WeightsPlan(files=(*config.files, *by_address), paths=tuple(paths), maybe=tuple(maybe))


def has_weights_of(before: ModelConfig, after: ModelConfig) -> bool:
    """Whether a node with all files of `before` has all files of `after`."""
    old, new = plan_weights(before), plan_weights(after)
    if before.document.get("artifacts") != after.document.get("artifacts"):
        return False
    return {*new.files} <= {*old.files} and {*new.names} <= {*old.names}


def uses_file(config: ModelConfig, file: str) -> bool:
    """Whether the configuration names the path, a directory above it, or a path below it."""
    plan = plan_weights(config)
    names = (*plan.names, *(one.filename for one in plan.files))
    return any(_is_within(file, name) or _is_within(name, file) for name in names)


def _is_within(path: str, other: str) -> bool:
    inner, outer = posixpath.normpath(path), posixpath.normpath(other)
    return inner == outer or inner.startswith(f"{outer}/")


def _hinted(config: ModelConfig) -> Iterator[str]:
    """As in LocalAI: a file that an option names is in the models directory, or beside the model."""
    if config.model.endswith(".onnx"):
        yield f"{config.model}.json"
    beside = config.model.rpartition("/")[0]
    for name in (*config.option_values, *config.companion_names):
        if not is_address(name) and is_model_path(name) and name.strip("./"):
            yield name
            if beside:
                yield f"{beside}/{name}"


def by_configured_name(config: ModelConfig, found: Mapping[str, str]) -> dict[str, str]:
    """Paths on the node by the names in the configuration: a URI leads to its downloaded file."""
    named = {name: found.get(local_name(config, name)) for name in config.weight_names if is_address(name)}
    return {**found, **{name: path for name, path in named.items() if path is not None}}


def is_address(name: str) -> bool:
    return "://" in name


def local_name(config: ModelConfig, name: str) -> str:
    """The path of a file that is named by URI: below the model's own directory."""
    return f"{config.name}/{address_path(name)}" if is_address(name) else name


def address_path(address: str) -> str:
    """A path of its own for each URI, so that files with equal names are not mixed up. The last part is the file
    name, for people and backends."""
    scheme, _, place = address.partition("://")
    if scheme.lower() in ("http", "https"):
        place = place.partition("#")[0].partition("?")[0]
    else:
        place = place.partition("@")[0]
    last = place.rstrip("/").rpartition("/")[2]
    kept = last if last != "." and is_model_path(last) and len(last.encode()) <= LAST_PART_MOST_BYTES else "weights"
    return f"{hashlib.sha256(address.encode()).hexdigest()[:16]}/{kept}"


def borrowed_files(config: ModelConfig, others: Iterable[ModelConfig]) -> dict[str, tuple[ConfigFile, str]]:
    """Files that this model uses and other models download, by name, with the owner. A name that one model downloads
    means that download for all models."""
    plan = plan_weights(config)
    plain = [name for name in plan.names if not plan.is_fetched(name)]
    return {
        name: (file, other.name)
        for other in others
        for file in plan_weights(other).files
        for name in plain
        if other.name != config.name and _is_within(name, file.filename)
    }


def find_clash(config: ModelConfig, others: Iterable[ModelConfig], before: ModelConfig | None = None) -> str:
    """Why a download cannot be stored under its name; empty when all can. `before`: the configuration that this one
    replaces."""
    known = tuple(others)
    return _clash_of_downloads(config, known) or _clash_with_plain_names(config, known, before)


def _clash_with_plain_names(config: ModelConfig, others: Sequence[ModelConfig], before: ModelConfig | None) -> str:
    """Another model already uses the name for a file in a frontend's models directory or on a node."""
    downloads = [file for one in (*others, *([before] if before else [])) for file in plan_weights(one).files]
    there = {posixpath.normpath(file.filename) for file in downloads}
    news = [file for file in plan_weights(config).files if posixpath.normpath(file.filename) not in there]
    for other in others:
        plan = plan_weights(other)
        for file in news:
            name = next((name for name in plan.names if _is_within(name, file.filename)), None)
            if name is not None and not plan.is_fetched(name):
                return (
                    f"{config.name!r} stores {file.uri} as {file.filename}, and {other.name!r} uses {name}, a file"
                    " that it does not download: one would be served with the weights of the other. Use another"
                    f" filename here; if both are the same file, add this download to {other.name!r} first"
                )
    return ""


def _clash_of_downloads(config: ModelConfig, others: Sequence[ModelConfig]) -> str:
    taken: dict[str, tuple[ConfigFile, str]] = {}
    for one in (*others, config):
        for file in plan_weights(one).files:
            name = posixpath.normpath(file.filename)
            before, owner = taken.setdefault(name, (file, one.name))
            if one is config and not _is_same_source(file, before):
                whose = "twice by this model" if owner == config.name else f"also by the model {owner!r}"
                return (
                    f"{config.name!r} stores {file.uri} as {file.filename}, and {before.uri} is stored under that name,"
                    f" {whose}: one would be served with the weights of the other. Use another filename; if both are"
                    " the same file, set its sha256 in both"
                )
    return ""


def _is_same_source(file: ConfigFile, other: ConfigFile) -> bool:
    if file.sha256 and other.sha256:
        return _hex(file.sha256) == _hex(other.sha256)
    return file.uri == other.uri


def _hex(sha256: str) -> str:
    return sha256.lower().removeprefix("sha256:")


def capacity_of(config: ModelConfig, slots: int | None) -> int | None:
    """How many requests a replica may have open by its configuration: the configured slots of its engine, limited by
    `limits.max_concurrent` (0 for no limit). Further requests are queued. None: the engine decides."""
    known = [number for number in (slots, config.max_concurrent) if number]
    return min(known) if known else None


def find_elastic(config: ModelConfig) -> Elastic:
    """What its engine gets more of where there is memory for it: llama.cpp, as far as nothing is configured."""
    if not config.model.lower().endswith(".gguf"):
        return Elastic.NOTHING
    if not config.context_size:
        return Elastic.CONTEXT
    return Elastic.NOTHING if _configured_slots(named_options(config)) else Elastic.SLOTS


def _configured_slots(given: Mapping[str, str]) -> int | None:
    return next(filter(None, (_positive(given.get(name, "")) for name in SLOT_OPTIONS)), None)


def plan_engine(config: ModelConfig, found: Mapping[str, str]) -> EngineStart:
    """`found`: absolute paths on the node, by the names in the configuration. A name that is not there is passed to the
    engine as it is."""
    given = named_options(config)
    slots = _configured_slots(given)
    for name in SLOT_OPTIONS:
        given.pop(name, None)
    for name, file in (
        ("mmproj", config.mmproj),
        ("draft_model", config.draft_model),
        ("tokenizer", text(config.parameters.get("tokenizer") or "")),
    ):
        if file:
            given[name] = found.get(file, file)
    given |= _adapters(config, found)
    for name, value in (
        ("threads", config.document.get("threads")),
        ("gpu_layers", config.document.get("gpu_layers")),
        ("batch", config.parameters.get("batch")),
    ):
        if value is not None and name not in given:
            given[name] = str(whole(value))
    if config.document.get("lora_scale") is not None:
        given.setdefault("lora_scale", text(config.document["lora_scale"]))
    return EngineStart(
        model=found.get(config.model, config.model),
        model_name=config.name,
        context=config.context_size or None,
        slots=slots,
        embeddings=config.embeddings,
        options=given,
    )


def _adapters(config: ModelConfig, found: Mapping[str, str]) -> dict[str, str]:
    """`lora_scale` applies to adapters without a value in `lora_scales`."""
    files = [found.get(file, file) for file in (config.lora_adapter, *config.lora_adapters) if file]
    if not files:
        return {}
    plain = ",".join(files)
    # Engine builds that are installed already accept commas only.
    given = {"lora_adapter": plain if plain.count(",") == len(files) - 1 else json.dumps(files, ensure_ascii=False)}
    scale = config.document.get("lora_scale")
    own = numbers(config.document.get("lora_scales") or ())
    if own:
        common = 1.0 if scale is None else float(scale)
        scales = [*([common] if config.lora_adapter else []), *own]
        given["lora_scales"] = ",".join(str(one) for one in (*scales, *(common for _ in files))[: len(files)])
    return given


def find_mistyped_options(config: ModelConfig, before: ModelConfig, taken: Iterable[str]) -> dict[str, str]:
    """Added options that the engine does not know and that look like one it knows: by name, the suggestion. Other
    unknown options may be for another engine."""
    known = sorted({*taken, *SLOT_OPTIONS})
    added = [name for name in named_options(config) if name not in known and name not in named_options(before)]
    near = {name: get_close_matches(name, known, n=1, cutoff=MISTYPED_CUTOFF) for name in added}
    return {name: found[0] for name, found in near.items() if found}


def named_options(config: ModelConfig) -> dict[str, str]:
    """LocalAI's form is `name:value`; a name alone is a switch."""
    found = {}
    for option in config.options:
        name, colon, value = option.partition(":")
        found[name.strip()] = value.strip() if colon else "true"
    return found


def _positive(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None
