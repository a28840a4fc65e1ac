"""Where the one client goes and where it does not (S-17 to S-19)."""

import ipaddress
import socket
from pathlib import Path
from typing import Any

import pytest
from artifact_support import FakeRegistry, Reply

from corral.artifacts.cancel import CancelToken
from corral.artifacts.client import Outbound
from corral.artifacts.errors import BadReference, PolicyRefused, SourceUnavailable
from corral.artifacts.network import check_address, check_url, refusal_of
from corral.artifacts.settings import NetworkPolicy, TransferLimits
from corral.system import SystemClock, SystemIds

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


def outbound(**policy: Any) -> Outbound:
    limits = TransferLimits(connect_s=1.0, headers_s=1.0, attempts=2, retry_base_s=0.01)
    return Outbound(NetworkPolicy(**policy), limits, clock=SystemClock(), ids=SystemIds())


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

    registry.hooks.append(around)  # type: ignore[arg-type]
    with pytest.raises(PolicyRefused, match="redirected more than"):
        outbound(trusted_hosts=frozenset({"127.0.0.1"})).fetch(f"{registry.url}/x", cancel=CancelToken(), limit=10)
    assert len(registry.requests) == 6


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://10.0.0.1/", "http://[::ffff:10.0.0.1]/", "ftp://x/"])
def test_a_redirect_is_judged_like_a_first_address(target: str, registry: FakeRegistry) -> None:
    def away(exchange: object) -> None:
        raise Reply(302, b"", {"Location": target})

    registry.hooks.append(away)  # type: ignore[arg-type]
    with pytest.raises(PolicyRefused):
        outbound(trusted_hosts=frozenset({"127.0.0.1"})).fetch(f"{registry.url}/x", cancel=CancelToken(), limit=10)


def test_a_connection_is_used_again_and_a_closed_one_replaced(registry: FakeRegistry) -> None:
    client = outbound(trusted_hosts=frozenset({"127.0.0.1"}))
    registry.pages["/x"] = (b"hello", {})
    for _ in range(3):
        assert client.fetch(f"{registry.url}/x", cancel=CancelToken(), limit=10)[1] == b"hello"
    (kept,) = [connection for connections in client._idle.values() for connection in connections]
    kept.sock._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
    assert client.fetch(f"{registry.url}/x", cancel=CancelToken(), limit=10)[1] == b"hello"
    client.close()


def test_an_untrusted_certificate_is_refused_and_not_retried(tmp_path: Path) -> None:
    """A server that speaks no TLS at all is a transient fault; one with a bad certificate would be PolicyRefused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = outbound(trusted_hosts=frozenset({"127.0.0.1"}))
        server.close()
        with pytest.raises(SourceUnavailable, match="could not be reached"):
            client.fetch(f"https://127.0.0.1:{port}/x", cancel=CancelToken(), limit=10)
