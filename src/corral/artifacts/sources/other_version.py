"""Where another version of a build may be, from the location of the one that its gallery offers now."""

import re

_PYPI_VERSION = re.compile(r"==[^,/?;\s]+")
_MOVING_TAG = re.compile(r"\b(?:latest|master|main|stable)\b")
_VERSION_TAG = re.compile(r"v?\d+(?:\.\d+)*\Z")


def version_locations(uri: str, offered: str, version: str) -> list[str]:
    """Locations to try in this order; none where the location says nothing about its version. `offered` is the version
    that the gallery gives for `uri`; empty where it gives none."""
    if not version:
        return []
    if uri.startswith("pypi://"):
        return [_pypi(uri, version)]
    if uri.startswith(("http://", "https://", "s3://", "file://")):
        return _replaced(uri, offered, version) if offered and offered in uri else []
    return _image(uri, offered, version)


def _replaced(text: str, offered: str, version: str) -> list[str]:
    """With the version as it was given, and in the spelling of the offered one: `v1.2` or `1.2`."""
    same = text.replace(offered.removeprefix("v"), version.removeprefix("v"))
    return list(dict.fromkeys([same, text.replace(offered, version)]))


def _pypi(uri: str, version: str) -> str:
    number = version.removeprefix("v")
    if _PYPI_VERSION.search(uri):
        return _PYPI_VERSION.sub(f"=={number}", uri, count=1)
    package = re.match(r"pypi://[A-Za-z0-9._\[\]-]+", uri)
    return f"{package.group()}=={number}{uri[package.end() :]}" if package else uri


def _image(uri: str, offered: str, version: str) -> list[str]:
    head, colon, tag = uri.partition("@")[0].rpartition(":")
    if not colon or "/" in tag:
        head, tag = uri.partition("@")[0], "latest"
    number = version.removeprefix("v")
    tags: list[str] = []
    if offered and offered in tag:
        tags = _replaced(tag, offered, version)
    elif _MOVING_TAG.search(tag):
        tags = [_MOVING_TAG.sub(one, tag, count=1) for one in (version, number, f"v{number}")]
    elif _VERSION_TAG.match(tag):
        tags = [version, number, f"v{number}"]
    return [f"{head}:{one}" for one in dict.fromkeys(tags)]
