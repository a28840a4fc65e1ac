"""Other buses than the one we bring: with TLS, and (when someone insists) without credentials."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nats import NATS_SERVER, Nats
from harness.ports import free_port
from harness.programs import Admin, Program, call, clean_environment
from harness.waiting import is_listening, wait_until

TOKEN = "test-registration-token"


def start_frontend(directory: Path, *flags: str, environment: dict[str, str]) -> tuple[Program, Admin]:
    url = f"http://127.0.0.1:{free_port()}"
    program = Program(
        "frontend", "--data-dir", str(directory / "frontend"), "--listen", url.removeprefix("http://"),
        "--auto-approve", "--health-interval", "0.5", *flags, log=directory / "frontend.log",
        environment=clean_environment(CORRAL_REGISTRATION_TOKEN=TOKEN, CORRAL_ADMIN_KEY="corral-k", **environment),
    )  # fmt: skip
    return program, Admin(url, "corral-k")


def start_worker(directory: Path, admin: Admin, *flags: str) -> Program:
    return Program(
        "worker", "--join", admin.url, "--token", TOKEN, "--name", "one", "--data-dir", str(directory / "worker"),
        *flags, log=directory / "worker.log",
    )  # fmt: skip


@pytest.fixture
def open_bus(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    with (tmp_path / "nats.log").open("wb") as log:
        server = subprocess.Popen([str(NATS_SERVER), "-a", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        wait_until(lambda: is_listening(port), what="nats-server listens")
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(60)


def test_a_bus_without_credentials_is_used_only_when_both_sides_were_told_to(open_bus: str, tmp_path: Path) -> None:
    frontend, admin = start_frontend(tmp_path, "--insecure-anonymous-bus", environment={"CORRAL_BUS": open_bus})
    try:
        wait_until(lambda: call("GET", f"{admin.url}/readyz").status == 200, what="ready", within_s=30)
        assert "THE MESSAGE BUS HAS NO CREDENTIALS" in frontend.output()
        careful = start_worker(tmp_path, admin)
        assert careful.wait(30) == 2
        assert "--insecure-anonymous-bus" in careful.output()
        told = start_worker(tmp_path, admin, "--insecure-anonymous-bus")
        try:
            admin.wait_for_status("one", "healthy")
            assert "THE MESSAGE BUS HAS NO CREDENTIALS" in told.output()
        finally:
            assert told.stop() == 0
    finally:
        assert frontend.stop() == 0


def make_certificates(directory: Path) -> tuple[Path, Path, Path]:
    """An authority and a certificate for 127.0.0.1 signed by it."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=test authority")  # fmt: skip
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "bus.key", "-out", "bus.csr", "-subj", "/CN=127.0.0.1")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1")
    openssl("x509", "-req", "-in", "bus.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", "bus.pem", "-extfile", "names")  # fmt: skip
    return directory / "ca.pem", directory / "bus.pem", directory / "bus.key"


def test_a_bus_with_tls_is_used_and_one_that_cannot_prove_itself_is_not(nats: Nats, tmp_path: Path) -> None:
    authority, certificate, key = make_certificates(tmp_path)
    nats.stop()
    with nats.files.config.open("a") as config:
        config.write(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n')
    nats.start()
    secrets = {**nats.secrets(), "CORRAL_BUS": nats.url.replace("nats://", "tls://")}
    stranger, _ = start_frontend(tmp_path, environment=secrets)
    assert stranger.wait(30) == 3
    assert "certificate" in stranger.output().lower()
    frontend, admin = start_frontend(tmp_path, "--bus-ca-file", str(authority), environment=secrets)
    worker = start_worker(tmp_path, admin, "--bus-ca-file", str(authority))
    try:
        admin.wait_for_status("one", "healthy")
    finally:
        worker.stop()
        frontend.stop()
