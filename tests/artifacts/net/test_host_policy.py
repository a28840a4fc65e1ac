"""Where the one client goes and where it does not (S-17 to S-19)."""

import ipaddress
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import BadReference, PolicyRefused, SourceUnavailable
from corral.artifacts.net.client import Outbound
from corral.artifacts.net.host_policy import check_address, check_url, refusal_of
from corral.artifacts.settings import NetworkPolicy, TransferLimits
from corral.system import SystemClock, SystemIds
from harness.artifacts import FakeRegistry, Reply

OPEN = NetworkPolicy()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.0.9", "0.0.0.0", "10.1.2.3", "::10.0.0.1",
        "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "192.0.0.8", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
        "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::", "2001:0:1::",
        "::127.0.0.1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert refusal_of(ipaddress.ip_address(address)) is not None
    assert check_address(OPEN, "example.org", 443, address) is not None


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_a_public_address_is_not(address: str) -> None:
    assert check_address(OPEN, "example.org", 443, address) is None


@pytest.mark.parametrize("trust", ["inner", "inner:443", "10.0.0.0/8"])
def test_an_operator_may_trust_a_host_or_a_network(trust: str) -> None:
    policy = NetworkPolicy(trusted_hosts=frozenset({trust}))
    assert check_address(policy, "inner", 443, "10.1.2.3") is None
    assert check_address(policy, "other", 443, "192.168.0.1") is not None


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/x", "file:///etc/passwd", "gopher://x/", "http://example.org/x", "https://2130706433/",
        "https://0x7f000001/", "https://0177.0.0.1/", "https://127.1/", "https://0x7f.1/", "https://user:pw@example.org/",
        "https:///nohost", "https://example.org/a b", "https://example.org/\r\nX: y", "https://[::1",
        "javascript:alert(1)",
    ],
)  # fmt: skip
def test_an_odd_address_is_refused_before_any_look_up(url: str) -> None:
    with pytest.raises((PolicyRefused, BadReference)):
        check_url(OPEN, url)


def test_plain_http_is_for_loopback_or_by_setting() -> None:
    check_url(OPEN, "http://localhost:5000/x")
    check_url(OPEN, "http://127.0.0.1:5000/x")
    check_url(NetworkPolicy(plain_http_hosts=frozenset({"registry.lan"})), "http://registry.lan/x")


def outbound(*, tls: ssl.SSLContext | None = None, **policy: Any) -> Outbound:
    limits = TransferLimits(connect_s=1.0, headers_s=1.0, attempts=2, retry_base_s=0.01)
    return Outbound(NetworkPolicy(**policy), limits, clock=SystemClock(), ids=SystemIds(), tls=tls)


def test_a_name_that_changes_its_address_gains_nothing(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is checked on the very answer that is connected to; there is no second look-up to lie in."""
    looked_up: list[str] = []
    port = int(registry.host.rpartition(":")[2])

    def rebinding(host: str, *_: Any, **__: Any) -> list[Any]:
        looked_up.append(host)
        address = "1.1.1.1" if len(looked_up) > 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    client = outbound(plain_http_hosts=frozenset({"rebind.example"}))
    with pytest.raises(PolicyRefused, match="this machine"):
        client.fetch(f"http://rebind.example:{port}/x", cancel=CancelToken(), limit=10)
    assert looked_up == ["rebind.example"]
    assert registry.requests == []


def test_redirects_are_counted(registry: FakeRegistry) -> None:
    def around(exchange: object) -> None:
        raise Reply(302, b"", {"Location": "/again"})

    registry.hooks.append(around)
    with pytest.raises(PolicyRefused, match="redirected more than"):
        outbound(trusted_hosts=frozenset({"127.0.0.1"})).fetch(f"{registry.url}/x", cancel=CancelToken(), limit=10)
    assert len(registry.requests) == 6


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://10.0.0.1/", "http://[::ffff:10.0.0.1]/", "ftp://x/"])
def test_a_redirect_is_judged_like_a_first_address(target: str, registry: FakeRegistry) -> None:
    def away(exchange: object) -> None:
        raise Reply(302, b"", {"Location": target})

    registry.hooks.append(away)
    with pytest.raises(PolicyRefused):
        outbound(trusted_hosts=frozenset({"127.0.0.1"})).fetch(f"{registry.url}/x", cancel=CancelToken(), limit=10)


def test_a_connection_is_used_again_and_a_closed_one_replaced(registry: FakeRegistry) -> None:
    client = outbound(trusted_hosts=frozenset({"127.0.0.1"}))
    registry.pages["/x"] = (b"hello", {})
    for _ in range(3):
        assert client.fetch(f"{registry.url}/x", cancel=CancelToken(), limit=10)[1] == b"hello"
    (kept,) = [connection for connections in client._idle.values() for connection in connections]
    line: Any = kept.sock
    line._sock.shutdown(socket.SHUT_RDWR)
    assert client.fetch(f"{registry.url}/x", cancel=CancelToken(), limit=10)[1] == b"hello"
    client.close()


def test_an_answer_that_comes_after_its_headers_is_read_from_a_server_that_closes() -> None:
    """HTTP/1.0 and `Connection: close`: the connection ends with the answer, not before it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        first_bytes_read = threading.Event()

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n")
                first_bytes_read.wait(60)
                peer.sendall(b"hello")

        serving = threading.Thread(target=answer, daemon=True)
        serving.start()
        client = outbound(trusted_hosts=frozenset({"127.0.0.1"}))
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        with client.open(url, cancel=CancelToken()) as response:
            first_bytes_read.set()
            assert response.read_all(100) == b"hello"
        serving.join(10)


def test_a_refused_connection_is_a_transient_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SourceUnavailable, match="could not be reached"):
        outbound(trusted_hosts=frozenset({"127.0.0.1"})).fetch(
            f"https://127.0.0.1:{port}/x", cancel=CancelToken(), limit=10
        )


@dataclass
class TlsServer:
    """A server with a certificate that it signed itself."""

    certificate: Path
    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    @contextmanager
    def running(self, key: Path) -> Iterator[Self]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            thread = threading.Thread(target=self._serve, args=(listener, context))
            thread.start()
            try:
                yield self
            finally:
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread out of accept
                thread.join()

    def _serve(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, suppress(OSError):
                connection.settimeout(5.0)
                with context.wrap_socket(connection, server_side=True) as spoken:
                    self.requests.append(spoken.recv(4096))
                    spoken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")


@pytest.fixture
def self_signed(tmp_path: Path) -> Iterator[TlsServer]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    kind = ("-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", "req", *kind, *subject, *files], check=True, capture_output=True)
    with TlsServer(certificate).running(key) as server:
        yield server


@pytest.mark.processes
def test_an_untrusted_certificate_is_refused_and_not_retried(self_signed: TlsServer) -> None:
    """Although the host itself is trusted: that is about where it may lie, not about who it is."""
    client = outbound(trusted_hosts=frozenset({"127.0.0.1"}))
    with pytest.raises(PolicyRefused, match=r"certificate that is not trusted: self.signed certificate"):
        client.fetch(
            f"https://127.0.0.1:{self_signed.port}/x",
            cancel=CancelToken(),
            limit=10,
            headers={"Authorization": "Bearer canary"},
        )
    assert self_signed.connections == 1
    assert self_signed.requests == []


@pytest.mark.processes
def test_the_same_certificate_is_accepted_once_it_is_trusted(self_signed: TlsServer) -> None:
    tls = ssl.create_default_context(cafile=str(self_signed.certificate))
    client = outbound(tls=tls, trusted_hosts=frozenset({"127.0.0.1"}))
    _, body = client.fetch(f"https://127.0.0.1:{self_signed.port}/x", cancel=CancelToken(), limit=10)
    assert body == b"hello"
    client.close()
