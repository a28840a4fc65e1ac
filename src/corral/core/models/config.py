"""A model configuration in LocalAI's format. Fields that are not used here are kept in `document`."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

from corral.core.errors import InvalidInput
from corral.core.models.config_schema import (
    DOWNLOAD,
    Read,
    check_fields,
    find_problems,
    find_unknown,
    flag,
    mapping,
    text,
    text_map,
    texts,
    whole,
)
from corral.core.models.golden_prompts import GoldenPrompt, parse_golden_prompts

ModelName = NewType("ModelName", str)

DEFAULT_CONTEXT_SIZE = 4096
ATTACHED = "attached"
"""In place of a backend's name: only servers that are attached serve the model."""
TEMPLATE_FIELDS = ("chat", "chat_message", "completion", "edit", "function", "multimodal", "reply_prefix")
NAME_MOST = 200
RETRY_AFTER_MOST_S = 3600
CONFIG_MOST_BYTES = 1 << 20
_BACKEND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/-]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SHA256 = re.compile(r"(?:sha256:)?[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """How a prompt is rendered: by the backend (`use_tokenizer_template`) or here, from Go templates."""

    chat: str = ""
    chat_message: str = ""
    completion: str = ""
    edit: str = ""
    function: str = ""
    multimodal: str = ""
    reply_prefix: str = ""
    use_tokenizer_template: bool = False
    join_chat_messages_by_character: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that the model downloads, with its path in the models directory."""

    filename: str
    uri: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    name: ModelName
    backend: str = ""
    model: str = ""
    """The weights: a path relative to the models directory, a repository or an address."""
    alias_of: str = ""
    """A redirect: requests for this name are served by the model named here."""
    aliases: tuple[str, ...] = ()
    description: str = ""
    context_size: int | None = None
    embeddings: bool = False
    reranking: bool = False
    known_usecases: tuple[str, ...] = ()
    template: Template = field(default_factory=Template)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Sampling defaults."""
    options: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    stopwords: tuple[str, ...] = ()
    cutstrings: tuple[str, ...] = ()
    extract_regex: tuple[str, ...] = ()
    trimspace: tuple[str, ...] = ()
    trimsuffix: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    system_prompt: str = ""
    mmproj: str = ""
    draft_model: str = ""
    lora_adapter: str = ""
    lora_adapters: tuple[str, ...] = ()
    lora_base: str = ""
    files: tuple[ConfigFile, ...] = ()
    golden_prompts: tuple[GoldenPrompt, ...] = ()
    """Requests whose answers are known; new versions and revisions must pass them."""
    concurrency_groups: tuple[str, ...] = ()
    max_concurrent: int | None = None
    retry_after_s: int | None = None
    """What clients are told when all replicas are busy."""
    disabled: bool = False
    pinned: bool = False
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The whole document, with unknown fields."""

    @property
    def context_size_or_default(self) -> int:
        """LocalAI's default, for backends that speak its protocol; -1 means the maximum of the model."""
        return self.context_size or DEFAULT_CONTEXT_SIZE

    @property
    def is_attached(self) -> bool:
        """Whether nothing can be started for the model: only attached endpoints serve it."""
        return self.backend == ATTACHED

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What Ollama's clients are told that the model can, as far as the configuration says."""
        if self.embeddings:
            return ("embedding",)
        usecases = {case.upper().removeprefix("FLAG_") for case in self.known_usecases}
        found = ["completion", "tools"]
        if self.mmproj or self.template.multimodal or "VISION" in usecases:
            found.append("vision")
        reasoning = self.document.get("reasoning")
        if self.document.get("reasoning_effort") or (isinstance(reasoning, Mapping) and not reasoning.get("disable")):
            found.append("thinking")
        return tuple(found)

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        return tuple(find_unknown(self.document))

    @property
    def weight_paths(self) -> tuple[str, ...]:
        """All files and directories of the models directory that the configuration names, the main one first."""
        return tuple(name for name in self.weight_names if not _SCHEME.match(name))

    @property
    def weight_names(self) -> tuple[str, ...]:
        """All weights, including those named by URI."""
        named = (self.model, self.mmproj, self.draft_model, self.lora_adapter, *self.lora_adapters, self.lora_base)
        return tuple(dict.fromkeys(name for name in named if name))

    @property
    def companion_names(self) -> tuple[str, ...]:
        """Fields that name a file, or a value that the backend knows by name."""
        named = (
            self.parameters.get("tokenizer"),
            _get(self.document, "diffusers", mapping, {}).get("clip_model"),
            _get(self.document, "tts", mapping, {}).get("audio_path"),
        )
        return tuple(name for name in named if isinstance(name, str) and name)

    @property
    def option_values(self) -> tuple[str, ...]:
        """The values of `name:value` and `key=type:value`."""
        values = (*(one.partition(":")[2] for one in self.options), *(one.rpartition(":")[2] for one in self.overrides))
        return tuple(dict.fromkeys(value.strip() for value in values if value.strip()))


def parse_model_config(document: Any) -> ModelConfig:
    """The configuration in a parsed YAML document. Raises InvalidInput that names every wrong field."""
    if not isinstance(document, Mapping):
        raise InvalidInput("a model configuration is a map of fields, such as `name: tiny`")
    plain = _plain(document, depth=0)
    check_fields(plain)
    config = _build(plain)
    _check(config)
    return config


_READ_WITHOUT_REPLICAS = frozenset(
    [
        "name",
        "backend",
        "description",
        "usage",
        "aliases",
        "context_size",
        "embeddings",
        "known_usecases",
        "known_input_modalities",
        "known_output_modalities",
        "reasoning",
        "reasoning_effort",
        "disabled",
        "limits",
        "template",
    ]
)
"""Fields that say what clients are told of a model, or that have warnings of their own (`template`)."""


def idle_fields(config: ModelConfig) -> list[str]:
    """Fields of a model with attached endpoints only that have no effect, as paths."""
    set_fields = [name for name, value in config.document.items() if value not in (None, "", [], {}, False)]
    found = [name for name in set_fields if name not in _READ_WITHOUT_REPLICAS]
    return sorted([*found, *(["limits.max_concurrent"] if config.max_concurrent is not None else [])])


def config_revision(config: ModelConfig) -> str:
    """A hash of the content: comments and the order of fields do not change it."""
    return hashlib.sha256(canonical_json(config).encode()).hexdigest()


def deleted_revision(name: str) -> str:
    return hashlib.sha256(f"deleted\0{name}".encode()).hexdigest()


def canonical_json(config: ModelConfig) -> str:
    return json.dumps(config.document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, *, depth: int) -> Any:
    """Only JSON values, so that all readers see the same."""
    if depth > 64:
        raise InvalidInput("the model configuration is nested too deeply")
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth=depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"the model configuration contains the number {value}, which backends cannot use")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise InvalidInput(
        f"the model configuration contains a value of the type {type(value).__name__}, which JSON does not have"
    )


def _get(document: Mapping[str, Any], key: str, read: Read, default: Any) -> Any:
    value = document.get(key)
    return default if value is None else read(value)


def _build(document: Mapping[str, Any]) -> ModelConfig:
    def get(key: str, read: Read, default: Any) -> Any:
        return _get(document, key, read, default)

    parameters = get("parameters", mapping, {})
    text_fields = {
        key: get(key, text, "")
        for key in ("backend", "description", "system_prompt", "mmproj", "draft_model", "lora_adapter", "lora_base")
    }
    list_fields = {
        key: get(key, texts, ())
        for key in (
            *("aliases", "known_usecases", "options", "overrides", "stopwords", "cutstrings", "extract_regex"),
            *("trimspace", "trimsuffix", "lora_adapters", "concurrency_groups"),
        )
    }
    flags = {key: get(key, flag, False) for key in ("embeddings", "reranking", "disabled", "pinned")}
    return ModelConfig(
        name=ModelName(get("name", text, "")),
        model=_get(parameters, "model", text, ""),
        alias_of=get("alias", text, ""),
        context_size=get("context_size", whole, None),
        template=_template(get("template", mapping, {})),
        parameters=parameters,
        roles=get("roles", text_map, {}),
        files=_files(document),
        golden_prompts=parse_golden_prompts(document.get("golden_prompts")),
        max_concurrent=_get(get("limits", mapping, {}), "max_concurrent", whole, None),
        retry_after_s=_get(get("limits", mapping, {}), "retry_after_seconds", whole, None),
        document=document,
        **text_fields,
        **list_fields,
        **flags,
    )


def _template(document: Mapping[str, Any]) -> Template:
    return Template(
        **{key: _get(document, key, text, "") for key in TEMPLATE_FIELDS},
        use_tokenizer_template=_get(document, "use_tokenizer_template", flag, False),
        join_chat_messages_by_character=_get(document, "join_chat_messages_by_character", text, None),
    )


def _files(document: Mapping[str, Any]) -> tuple[ConfigFile, ...]:
    files = document.get("download_files") or []
    if not isinstance(files, list):
        raise InvalidInput("the model configuration has an invalid field: download_files must be a list of maps")
    found = []
    for at, item in enumerate(files):
        where = f"download_files[{at}]"
        if not isinstance(item, Mapping):
            raise InvalidInput(f"the model configuration has an invalid field: {where} must be a map")
        problems = [str(problem) for problem in find_problems(item, DOWNLOAD, within=f"{where}.")]
        if problems:
            raise InvalidInput(f"the model configuration has invalid fields: {'; '.join(problems)}")
        file = ConfigFile(*(_get(item, key, text, "") for key in ("filename", "uri", "sha256")))
        check_model_path(f"{where}.filename", file.filename)
        if not file.uri:
            raise InvalidInput(f"{where} has no uri to download {file.filename} from")
        if file.sha256 and not _SHA256.fullmatch(file.sha256):
            raise InvalidInput(f"{where}.sha256 must be 64 hexadecimal digits, not {file.sha256[:80]!r}")
        found.append(file)
    return tuple(found)


def check_model_name(name: str, *, what: str = "name") -> None:
    parts = name.split("/")
    if not name:
        raise InvalidInput(f"the model configuration has no {what}; add for example `{what}: tiny`")
    if (
        len(name) > NAME_MOST
        or not name.isprintable()
        or name != name.strip()
        or any(char in name for char in "#\\?%")
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise InvalidInput(
            f"{what} {name[:80]!r} is not a valid model name: up to {NAME_MOST} printable characters, none of # \\ ? %,"
            " and no empty, `.` or `..` part between slashes"
        )


def is_model_path(path: str) -> bool:
    """Whether it is a path inside of the models directory. Files are staged to nodes by it, so it must not lead out."""
    parts = path.replace("\\", "/").split("/")
    return bool(path) and not path.startswith(("/", "\\", "~")) and ".." not in parts and path.isprintable()


def check_model_path(what: str, path: str) -> None:
    if not is_model_path(path):
        raise InvalidInput(f"{what} must be a path within the models directory, not {path[:120]!r}")


def _check(config: ModelConfig) -> None:
    check_model_name(config.name)
    for alias in config.aliases:
        check_model_name(alias, what="alias")
    if config.name in config.aliases:
        raise InvalidInput(f"{config.name!r} is an alias of itself; remove it from `aliases`")
    if config.alias_of:
        _check_redirect(config)
        return
    if config.backend and not _BACKEND.fullmatch(config.backend):
        raise InvalidInput(f"backend {config.backend[:80]!r} is not a backend's name, such as llama-cpp")
    if config.is_attached and (config.weight_names or config.files):
        raise InvalidInput(
            f"{config.name!r} has the backend `{ATTACHED}`, for which nothing is started, so its weights would have no"
            " effect; remove them, or name the backend that loads them"
        )
    for path in config.weight_paths:
        check_model_path("a file of the model", path)
    if config.context_size is not None and config.context_size < -1:
        raise InvalidInput("context_size must be a number of tokens, or -1 for the model's maximum")
    if config.max_concurrent is not None and config.max_concurrent < 0:
        raise InvalidInput("limits.max_concurrent must not be negative")
    if config.retry_after_s is not None and not 0 <= config.retry_after_s <= RETRY_AFTER_MOST_S:
        raise InvalidInput(f"limits.retry_after_seconds must be a number from 0 to {RETRY_AFTER_MOST_S}")


def _check_redirect(config: ModelConfig) -> None:
    check_model_name(config.alias_of, what="alias")
    if config.alias_of == config.name:
        raise InvalidInput(f"{config.name!r} is an alias of itself; name another model in `alias`")
    if config.backend or config.model or config.aliases:
        raise InvalidInput(
            f"{config.name!r} has an `alias` and so sends every request to {config.alias_of!r};"
            " it must not have its own backend, model or aliases"
        )
