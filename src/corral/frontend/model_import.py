"""Model configurations from a directory, as LocalAI keeps them: one `<name>.yaml` for each model."""

from dataclasses import dataclass
from pathlib import Path

from corral.core.errors import CorralError, InvalidInput
from corral.core.model_config import CONFIG_MOST_BYTES, TEMPLATE_FIELDS, ModelConfig
from corral.store.models import parse_config_text
from corral.system.yaml import dump_yaml

FILES_MOST = 10_000


@dataclass(frozen=True, slots=True)
class FoundConfig:
    file: str
    text: str


@dataclass(frozen=True, slots=True)
class RefusedFile:
    file: str
    reason: str


def read_config_directory(directory: Path) -> tuple[list[FoundConfig], list[RefusedFile]]:
    """Every YAML file directly in it that can be a model; LocalAI's own records (`._gallery_...`) are left out."""
    try:
        paths = sorted(
            path
            for path in directory.iterdir()
            if path.suffix in (".yaml", ".yml") and not path.name.startswith(".") and path.is_file()
        )
    except OSError as error:
        raise InvalidInput(f"cannot read the directory {directory}: {error.strerror}") from error
    if len(paths) > FILES_MOST:
        raise InvalidInput(f"{directory} has {len(paths)} YAML files; at most {FILES_MOST} are imported at once")
    found: list[FoundConfig] = []
    refused: list[RefusedFile] = []
    for path in paths:
        try:
            found.append(FoundConfig(path.name, _read_config(path)))
        except (CorralError, OSError, UnicodeDecodeError) as error:
            refused.append(RefusedFile(path.name, str(error)))
    # A redirect needs its target to be there.
    found.sort(key=lambda item: bool(parse_config_text(item.text).alias_of))
    return found, refused


def _read_config(path: Path) -> str:
    """Template files that the configuration names are put into it: the store has no such files."""
    if path.stat().st_size > CONFIG_MOST_BYTES:
        raise InvalidInput(f"larger than {CONFIG_MOST_BYTES >> 20} MiB")
    text = path.read_text(encoding="utf-8")
    config = parse_config_text(text)
    contents = {name: content for name in TEMPLATE_FIELDS if (content := _template_file(path, config, name))}
    if not contents:
        return text
    template = {**config.document.get("template", {}), **contents}
    return dump_yaml({**config.document, "template": template})


def _template_file(path: Path, config: ModelConfig, field: str) -> str | None:
    name = getattr(config.template, field)
    if not name or "\n" in name or "{{" in name or "/" in name:
        return None
    file = path.parent / f"{name}.tmpl"
    if not file.is_file() or file.stat().st_size > CONFIG_MOST_BYTES:
        return None
    return file.read_text(encoding="utf-8")
