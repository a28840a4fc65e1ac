"""Against Debian's docker-registry, with images made by skopeo, compared with what umoci unpacks."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from artifact_support import Image, files_layer, install, member, tar_of, tree_of, wait_until

from corral.artifacts.install import Installer

pytestmark = pytest.mark.registry
TOOLS = ("docker-registry", "skopeo", "umoci")
missing = [tool for tool in TOOLS if shutil.which(tool) is None]


@pytest.fixture
def real_registry(tmp_path: Path) -> Iterator[str]:
    if missing:
        pytest.skip(f"{', '.join(missing)} missing")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/registry}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def listening() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listening)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


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
