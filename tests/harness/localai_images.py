"""Backends as a LocalAI worker keeps them: found in galleries, pulled from a registry, listed from the disk."""

import hashlib
import io
import json
import shutil
import tarfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

OnProgress = Callable[[str, float], None]
MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"
NOWHERE: OnProgress = lambda _name, _percent: None  # noqa: E731


class LocalAiError(Exception):
    """With LocalAI's words."""


class LocalAiImages:
    def __init__(self, directory: Path, *, capability: str) -> None:
        self.directory, self.capability = directory, capability
        self.refusal = ""
        """Why the next installs fail."""
        self.stale_tags = False
        """Behind a cache of its registry that goes on to answer with the image that a tag had."""
        self._tags: dict[str, bytes] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def install(self, galleries: list[dict[str, Any]], name: str, *, force: bool, on_progress: OnProgress) -> None:
        entries: dict[str, dict[str, Any]] = {}
        for gallery in galleries:
            with urllib.request.urlopen(gallery["url"], timeout=20) as response:
                for entry in json.load(response):
                    entries.setdefault(entry["name"].lower(), {**entry, "gallery_url": gallery["url"]})
        found = entries.get(name.lower())
        if found is None:
            raise LocalAiError(f"no backend found with name {name!r}")
        build = found
        if not found.get("uri"):
            builds = found["capabilities"]
            key = next((one for one in (self.capability, "default", "cpu") if one in builds), None)
            if key is None:
                raise LocalAiError(f"no backend found with capabilities {self.capability!r}")
            build = entries[builds[key].lower()]
        if force or not (self.directory / build["name"] / "run.sh").exists():
            self._pull(build, on_progress)
        if build is not found:
            told = {"name": name, "meta_backend_for": build["name"], "gallery_url": found["gallery_url"]}
            self._write(self.directory / name, told)

    def _pull(self, entry: dict[str, Any], on_progress: OnProgress) -> None:
        if self.refusal:
            raise LocalAiError(self.refusal)
        uri: str = entry["uri"]
        if not uri.startswith(("oci://", "quay.io", "ghcr.io", "docker.io")):
            raise LocalAiError(f"could not fetch {uri!r}: not a recognized downloadable URL")
        host, _, rest = uri.removeprefix("oci://").partition("/")
        repository, _, tag = rest.rpartition(":")
        base = f"http://{host}/v2/{repository}"
        tagged = f"{base}/manifests/{tag}"
        if not self.stale_tags or tagged not in self._tags:
            self._tags[tagged] = self._get(tagged, {"Accept": MANIFESTS})
        manifest = self._tags[tagged]
        layers = json.loads(manifest)["layers"]
        target = self.directory / entry["name"]
        staged = target.with_name(f"{entry['name']}.install-tmp")
        for number, layer in enumerate(layers, start=1):
            on_progress(f"Downloading {number}/{len(layers)} {uri}", 100.0 * (number - 0.5) / len(layers))
            data = self._get(f"{base}/blobs/{layer['digest']}", {})
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(staged, filter="tar")
        on_progress(f"Extracting {uri}", 100.0)
        told = {key: entry[key] for key in ("name", "alias", "version", "uri", "gallery_url") if entry.get(key)}
        self._write(staged, {**told, "digest": "sha256:" + hashlib.sha256(manifest).hexdigest()})
        shutil.rmtree(target, ignore_errors=True)
        staged.rename(target)

    def _get(self, url: str, headers: dict[str, str]) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as response:
            data: bytes = response.read()
            return data

    def _write(self, directory: Path, told: dict[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        whole = {"installed_at": "2026-08-01T10:11:12Z", **told}
        (directory / "metadata.json").write_text(json.dumps(whole))

    def _told(self, directory: Path) -> dict[str, str]:
        path = directory / "metadata.json"
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {"name": directory.name}
        return found

    def _builds(self) -> dict[str, dict[str, str]]:
        return {path.parent.name: self._told(path.parent) for path in sorted(self.directory.glob("*/run.sh"))}

    def find(self, name: str) -> Path | None:
        """Where a build, a family or an alias is started from."""
        builds = self._builds()
        if name in builds:
            return self.directory / name
        build = self._told(self.directory / name).get("meta_backend_for", "")
        build = build or next((one for one, told in builds.items() if told.get("alias") == name), "")
        return self.directory / build if build in builds else None

    def identity(self, name: str) -> set[str]:
        """All names of the build of that name."""
        found = self.find(name)
        told = self._told(found) if found is not None else {}
        return {name, *(told.get(key, "") for key in ("name", "alias"))} - {""}

    def delete(self, name: str) -> None:
        build = self._told(self.directory / name).get("meta_backend_for", "")
        found = self.find(name)
        if found is None:
            raise LocalAiError(f'backend "{name}": backend not found')
        shutil.rmtree(found)
        if build:
            shutil.rmtree(self.directory / name)

    def list(self, *, with_aliases: bool) -> list[dict[str, Any]]:
        """An alias row takes the place of a family of that name; `with_aliases`: and is listed itself."""
        builds = self._builds()
        rows = {name: (told, False) for name, told in builds.items()}
        for path in sorted(self.directory.glob("*/metadata.json")):
            told = self._told(path.parent)
            if told.get("meta_backend_for") in builds:
                rows[told["name"]] = told, True
        for told in builds.values():
            if told.get("alias"):
                rows[told["alias"]] = told, False
        return [
            {
                "name": name,
                "is_system": False,
                "is_meta": is_meta,
                **{
                    key: told[key] for key in ("installed_at", "gallery_url", "version", "uri", "digest") if key in told
                },
            }
            for name, (told, is_meta) in rows.items()
            if with_aliases or name == told["name"]
        ]
