"""A model from nothing but the place of its weights."""

import json
from pathlib import PurePosixPath

from corral.core.errors import InvalidInput

SUFFIX = ".gguf"
BACKEND = "llama-cpp"


def is_location(name: str) -> bool:
    return "://" in name


def config_for(uri: str, *, name: str = "") -> str:
    """`hf://owner/repository/file.gguf`, or any other location of such a file. JSON is YAML too."""
    path = uri.partition("?")[0]
    file = PurePosixPath(path[: path.lower().find(SUFFIX) + len(SUFFIX)]).name
    if SUFFIX not in path.lower():
        raise InvalidInput(
            f"{uri} is not a {SUFFIX} file, of which it is known how to run it; give a configuration with --file"
        )
    document = {
        "name": name or file[: -len(SUFFIX)].lower(),
        "backend": BACKEND,
        "parameters": {"model": file},
        "template": {"use_tokenizer_template": True},
        "download_files": [{"filename": file, "uri": uri}],
    }
    return json.dumps(document, indent=2)
