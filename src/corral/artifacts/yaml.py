"""Reads a gallery's YAML. Unreadable YAML is an error of the gallery."""

from typing import Any

from corral.artifacts.errors import BadGallery
from corral.system.yaml import BadYaml
from corral.system.yaml import load_yaml as load


def load_yaml(content: bytes | str) -> Any:
    try:
        return load(content)
    except BadYaml as error:
        raise BadGallery(str(error)) from error
