"""Reads model configurations from a directory in LocalAI's layout: one `<name>.yaml` for each model."""

from dataclasses import dataclass
from pathlib import Path

from corral.core.errors import CorralError, InvalidInput
from corral.core.models.config import TEMPLATE_FIELDS, ModelConfig
from corral.core.models.load_plan import plan_weights
from corral.store.serving.models import parse_config_text
from corral.system import Disk
from corral.system.yaml import dump_yaml

FILES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class FoundConfig:
    file: str
    name: str
    text: str
    rank: int
    """The order of import: models with downloads first, because others may name their files; aliases last."""


@dataclass(frozen=True, slots=True)
class RejectedFile:
    file: str
    reason: str


def read_config_directory(disk: Disk, directory: Path) -> tuple[list[FoundConfig], list[RejectedFile]]:
    """Reads every YAML file directly in the directory, except LocalAI's own records (`._gallery_...`)."""
    try:
        paths = [
            path for path in disk.list(directory) if path.suffix in (".yaml", ".yml") and not path.name.startswith(".")
        ]
    except OSError as error:
        raise InvalidInput(f"cannot read the directory {directory}: {error.strerror}") from error
    if len(paths) > FILES_MAX:
        raise InvalidInput(f"{directory} has {len(paths)} YAML files; the limit is {FILES_MAX}")
    found: list[FoundConfig] = []
    rejected: list[RejectedFile] = []
    for path in paths:
        try:
            found.append(_read_config(disk, path))
        except (CorralError, OSError, UnicodeDecodeError) as error:
            rejected.append(RejectedFile(path.name, str(error)))
    found.sort(key=lambda item: item.rank)
    return found, rejected


def _read_config(disk: Disk, path: Path) -> FoundConfig:
    """Replaces the names of template files by their content, because the store has no such files."""
    text = (disk.read(path) or b"").decode()
    config = parse_config_text(text)
    contents = {name: content for name in TEMPLATE_FIELDS if (content := _template_file(disk, path, config, name))}
    contents = {**_template_beside_weights(disk, path, config), **contents}
    if contents:
        template = {**config.document.get("template", {}), **contents}
        text = dump_yaml({**config.document, "template": template})
    return FoundConfig(path.name, config.name, text, rank=2 if config.alias_of else int(not plan_weights(config).files))


def _template_beside_weights(disk: Disk, path: Path, config: ModelConfig) -> dict[str, str]:
    """`<model>.tmpl` is the template of all prompts without their own, unless the backend builds the prompts."""
    template = config.template
    if template.use_tokenizer_template or not config.model:
        return {}
    content = (disk.read(path.parent / f"{config.model}.tmpl") or b"").decode()  # a name below the models directory
    return {field: content for field in ("chat", "completion", "edit") if content and not getattr(template, field)}


def _template_file(disk: Disk, path: Path, config: ModelConfig, field: str) -> str:
    name = getattr(config.template, field)
    if not name or "\n" in name or "{{" in name or "/" in name:
        return ""
    return (disk.read(path.parent / f"{name}.tmpl") or b"").decode()
