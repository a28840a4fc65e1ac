"""A model configuration made from the location of a GGUF file."""

import json
from pathlib import PurePosixPath

from corral.core.errors import InvalidInput
from corral.core.models.load_plan import address_path

SUFFIX = ".gguf"
BACKEND = "llama-cpp"


def is_location(name: str) -> bool:
    return "://" in name


def config_for(uri: str, *, name: str = "") -> str:
    """The configuration for `hf://owner/repository/file.gguf` or another location of such a file, as JSON (which is
    also YAML)."""
    path = uri.partition("?")[0]
    file = PurePosixPath(path[: path.lower().find(SUFFIX) + len(SUFFIX)]).name
    if SUFFIX not in path.lower():
        raise InvalidInput(
            f"{uri} is not a {SUFFIX} file, the only format installed without a configuration; pass one with --file"
        )
    model = name or file[: -len(SUFFIX)].lower()
    kept_as = f"{model}/{address_path(uri)}"
    document = {
        "name": model,
        "backend": BACKEND,
        "parameters": {"model": kept_as},
        "template": {"use_tokenizer_template": True},
        "download_files": [{"filename": kept_as, "uri": uri}],
    }
    return json.dumps(document, indent=2)
