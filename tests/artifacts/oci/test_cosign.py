"""Images that have to be signed (S-29, S-30): a real registry, real keys, and every way not to be signed."""

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corral.artifacts.errors import SignatureRefused
from corral.artifacts.install.installer import Installer
from corral.artifacts.signatures import SignaturePolicy, read_policy
from harness.artifacts import MANIFEST, FakeRegistry, Image, files_layer, install, leftovers, push_to, sha256

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl missing")


@dataclass(frozen=True)
class Key:
    path: Path
    kind: str = "EC"

    @classmethod
    def make(cls, path: Path, kind: str = "EC") -> "Key":
        curve = ["-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "EC" else []
        command = ["openssl", "genpkey", "-algorithm", kind, *curve, "-out", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        return cls(path, kind)

    @property
    def policy(self) -> SignaturePolicy:
        pem = subprocess.run(["openssl", "pkey", "-in", self.path, "-pubout"], check=True, capture_output=True).stdout
        policy = read_policy({"public_key": pem.decode()})
        assert policy is not None
        return policy

    def sign(self, data: bytes) -> str:
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.path)]
        if self.kind == "ed25519":
            message = self.path.with_suffix(".message")
            message.write_bytes(data)
            command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", str(self.path), "-in", str(message)]
        return base64.b64encode(subprocess.run(command, input=data, check=True, capture_output=True).stdout).decode()


def payload(digest: str, **critical: Any) -> bytes:
    image = {"docker-manifest-digest": digest}
    facts = {"identity": {"docker-reference": ""}, "image": image, "type": "cosign container image signature"}
    return json.dumps({"critical": facts | critical, "optional": None}).encode()


def signatures(*signed: tuple[bytes, str]) -> tuple[bytes, dict[str, bytes]]:
    """The manifest that cosign writes, and its blobs."""
    config = b"{}"
    layers = [
        {
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": sha256(data),
            "size": len(data),
            "annotations": {"dev.cosignproject.cosign/signature": signature},
        }
        for data, signature in signed
    ]
    described = {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": sha256(config),
        "size": len(config),
    }
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": layers}
    return json.dumps(manifest).encode(), {sha256(data): data for data in (config, *(data for data, _ in signed))}


def image_of(text: bytes) -> Image:
    return Image([files_layer({"run.sh": b"#!/bin/sh\n", "app": text})]).build()


@dataclass(frozen=True)
class Shelf:
    """A repository of the real registry."""

    host: str

    def push(self, image: Image, tag: str) -> str:
        return push_to(self.host, "demo", tag, image.manifest, image.blobs)

    def sign(self, image: Image, *signed: tuple[bytes, str]) -> None:
        push_to(self.host, "demo", f"sha256-{image.digest.removeprefix('sha256:')}.sig", *signatures(*signed))


@pytest.fixture
def shelf(real_registry: str) -> Shelf:
    return Shelf(real_registry)


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return Key.make(tmp_path / "key.pem")


@pytest.mark.registry
@pytest.mark.parametrize("kind", ["EC", "ed25519"])
@pytest.mark.processes
def test_a_signed_image_installs_and_says_who_vouches_for_it(
    kind: str, shelf: Shelf, installer: Installer, tmp_path: Path
) -> None:
    image = image_of(b"1")
    uri = shelf.push(image, "one")
    key = Key.make(tmp_path / "key.pem", kind)
    stranger = Key.make(tmp_path / "stranger.pem")
    data = payload(image.digest)
    shelf.sign(image, (data, stranger.sign(data)), (data, key.sign(data)))
    version = install(installer, uri, signatures=key.policy)
    assert version.digest == image.digest
    assert version.metadata.signatures == key.policy
    assert version.metadata.verified_by.startswith("oci digest, cosign key sha256:")


def _unsigned(image: Image, key: Key, stranger: Key) -> tuple[tuple[bytes, str], ...]:
    return ()


def _by_a_stranger(image: Image, key: Key, stranger: Key) -> tuple[tuple[bytes, str], ...]:
    data = payload(image.digest)
    return ((data, stranger.sign(data)),)


def _of_another_image(image: Image, key: Key, stranger: Key) -> tuple[tuple[bytes, str], ...]:
    data = payload(image_of(b"another").digest)
    return ((data, key.sign(data)),)


def _with_the_payload_replaced(image: Image, key: Key, stranger: Key) -> tuple[tuple[bytes, str], ...]:
    return ((payload(image.digest), key.sign(payload(image_of(b"another").digest))),)


def _of_another_kind(image: Image, key: Key, stranger: Key) -> tuple[tuple[bytes, str], ...]:
    data = payload(image.digest, type="something else that was signed")
    return ((data, key.sign(data)),)


def _damaged(image: Image, key: Key, stranger: Key) -> tuple[tuple[bytes, str], ...]:
    data = payload(image.digest)
    return ((data, "!!!"), (data, ""), (data, base64.b64encode(b"\x30\x00").decode()), (b"[]", key.sign(b"[]")))


@pytest.mark.registry
@pytest.mark.parametrize(
    "signed",
    [_unsigned, _by_a_stranger, _of_another_image, _with_the_payload_replaced, _of_another_kind, _damaged],
)
@pytest.mark.processes
def test_what_is_not_signed_is_refused_before_a_layer_is_fetched(
    signed: Callable[[Image, Key, Key], tuple[tuple[bytes, str], ...]],
    shelf: Shelf,
    key: Key,
    installer: Installer,
    tmp_path: Path,
) -> None:
    image = image_of(b"1")
    uri = shelf.push(image, "one")
    if given := signed(image, key, Key.make(tmp_path / "stranger.pem")):
        shelf.sign(image, *given)
    with pytest.raises(SignatureRefused, match="Nothing was fetched"):
        install(installer, uri, signatures=key.policy)
    assert list(installer.blobs.digests()) == []
    assert leftovers(installer.settings.data_dir) == []


@pytest.mark.registry
@pytest.mark.processes
def test_an_upgrade_a_mirror_and_a_version_on_disk_need_the_signature_too(
    shelf: Shelf, key: Key, installer: Installer
) -> None:
    old, new = image_of(b"old"), image_of(b"new")
    old_uri, new_uri = shelf.push(old, "old"), shelf.push(new, "new")
    data = payload(old.digest)
    shelf.sign(old, (data, key.sign(data)))
    install(installer, old_uri, signatures=key.policy)
    absent = f"{shelf.host}/demo:absent"
    for uris in ((new_uri,), (absent, new_uri)):
        with pytest.raises(SignatureRefused):
            install(installer, *uris, signatures=key.policy)
    assert installer.versions.current("demo").digest == old.digest
    install(installer, new_uri)
    install(installer, old_uri)
    with pytest.raises(SignatureRefused):
        install(installer, new_uri, signatures=key.policy)
    assert installer.versions.current("demo").digest == old.digest


@pytest.mark.processes
def test_only_images_of_a_registry_can_be_signed(registry: FakeRegistry, key: Key, installer: Installer) -> None:
    registry.pages["/backend.tar"] = (files_layer({"run.sh": b"#!/bin/sh\n"}), {"ETag": '"1"'})
    with pytest.raises(SignatureRefused, match="only images"):
        install(installer, f"{registry.url}/backend.tar", signatures=key.policy)


@pytest.mark.processes
def test_the_digest_that_was_signed_is_installed_though_the_tag_moves(
    registry: FakeRegistry, key: Key, installer: Installer
) -> None:
    signed, moved = image_of(b"signed"), image_of(b"moved")
    uri = registry.push(signed)
    data = payload(signed.digest)
    manifest, blobs = signatures((data, key.sign(data)))
    tag = f"sha256-{signed.digest.removeprefix('sha256:')}.sig"
    registry.manifests["backend", tag] = (manifest, MANIFEST)
    registry.blobs |= blobs

    def move(exchange: Any) -> None:
        if exchange.path.endswith(tag):
            registry.push(moved)

    registry.hooks.append(move)
    assert install(installer, uri, signatures=key.policy).digest == signed.digest


@pytest.mark.processes
def test_an_index_is_signed_as_a_whole(registry: FakeRegistry, key: Key, installer: Installer) -> None:
    uri = registry.push_index([image_of(b"1")])
    index = sha256(registry.manifests["backend", "latest"][0])
    data = payload(index)
    manifest, blobs = signatures((data, key.sign(data)))
    registry.manifests["backend", f"sha256-{index.removeprefix('sha256:')}.sig"] = (manifest, MANIFEST)
    registry.blobs |= blobs
    assert install(installer, uri, signatures=key.policy).digest == index
