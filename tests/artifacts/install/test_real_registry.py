"""Against Debian's docker-registry, with images made by skopeo, compared with what umoci unpacks."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from corral.artifacts.install.installer import Installer
from harness.artifacts import Image, files_layer, install, member, tar_of, tree_of

TOOLS = ("skopeo", "umoci")
missing = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = [pytest.mark.registry, pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} missing")]


def write_layout(path: Path, image: Image) -> None:
    image.build()
    (path / "blobs/sha256").mkdir(parents=True)
    for digest, data in {**image.blobs, image.digest: image.manifest}.items():
        (path / "blobs/sha256" / digest.removeprefix("sha256:")).write_bytes(data)
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": {"org.opencontainers.image.ref.name": "latest"},
    }
    (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


def test_what_corral_installs_is_what_umoci_unpacks(
    real_registry: str, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    image = Image(
        [
            files_layer({"run.sh": b"#!/bin/sh\n", "gone": b"x", "dir/a": b"a", "dir/b": os.urandom(200_000)}),
            tar_of(
                member(".wh.gone"),
                member("dir/.wh.a"),
                member("deep/er/file", b"1"),
                member("twin", type=b"1", linkname="deep/er/file"),
                member("link", type=b"2", linkname="dir/b"),
            ),
        ]
    )
    write_layout(tmp_path / "layout", image)
    copy = ["skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{tmp_path}/layout:latest"]
    subprocess.run([*copy, f"docker://{real_registry}/demo:latest"], check=True)
    unpack = ["umoci", "raw", "unpack", "--rootless", "--image", f"{tmp_path}/layout:latest", f"{tmp_path}/umoci"]
    subprocess.run(unpack, check=True, capture_output=True)
    version = install(make_installer(), f"{real_registry}/demo:latest")
    assert version.digest == image.digest
    assert tree_of(version.path) == tree_of(tmp_path / "umoci")
