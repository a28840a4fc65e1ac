"""The address of a client: the connection's, or the one that a trusted proxy reports."""

import http.client
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from corral.frontend.http.proxies import TrustedProxies
from harness.frontend import Frontend
from harness.nats import Nats

guesses = itertools.count()
TRUSTED = TrustedProxies(["127.0.0.1", "10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        pytest.param("192.0.2.9", {"x-forwarded-for": "198.51.100.1"}, "192.0.2.9", id="a-stranger-says-so"),
        pytest.param("127.0.0.1", {}, "127.0.0.1", id="nothing-said"),
        pytest.param("127.0.0.1", {"x-forwarded-for": "198.51.100.1"}, "198.51.100.1", id="one-proxy"),
        pytest.param("127.0.0.1", {"x-forwarded-for": "6.6.6.6, 198.51.100.1"}, "198.51.100.1", id="made-up-first"),
        pytest.param("127.0.0.1", {"x-forwarded-for": "198.51.100.1, 10.1.2.3"}, "198.51.100.1", id="two-proxies"),
        pytest.param("10.9.9.9", {"x-forwarded-for": "10.1.2.3"}, "10.1.2.3", id="all-trusted"),
        pytest.param("127.0.0.1", {"x-forwarded-for": "198.51.100.1:443"}, "198.51.100.1", id="with-port"),
        pytest.param("fd00::1", {"x-forwarded-for": "2001:db8::7"}, "2001:db8::7", id="ipv6"),
        pytest.param("::ffff:10.0.0.1", {"x-forwarded-for": "198.51.100.1"}, "198.51.100.1", id="mapped"),
        pytest.param("127.0.0.1", {"x-forwarded-for": "unknown"}, "127.0.0.1", id="unreadable"),
        pytest.param("127.0.0.1", {"x-forwarded-for": "198.51.100.1, nonsense"}, "127.0.0.1", id="unreadable-last"),
        pytest.param("127.0.0.1", {"forwarded": 'for="[2001:db8::7]:80";proto=https'}, "2001:db8::7", id="rfc7239"),
        pytest.param("127.0.0.1", {"forwarded": "For=6.6.6.6, for=198.51.100.1"}, "198.51.100.1", id="rfc7239-list"),
        pytest.param(
            "127.0.0.1",
            {"x-forwarded-for": "198.51.100.1", "forwarded": "for=198.51.100.1;proto=https"},
            "198.51.100.1",
            id="both-say-the-same",
        ),
        pytest.param(
            "127.0.0.1",
            {"x-forwarded-for": "6.6.6.6", "forwarded": "for=198.51.100.1"},
            "127.0.0.1",
            id="they-disagree",
        ),
        pytest.param("127.0.0.1", {"x-forwarded-for": "6.6.6.6", "forwarded": ""}, "127.0.0.1", id="one-says-nothing"),
        pytest.param("", {"x-forwarded-for": "198.51.100.1"}, "", id="no-peer"),
    ],
)
def test_who_is_the_client(peer: str, headers: dict[str, str], client: str) -> None:
    assert TRUSTED.client_of(peer, headers) == client


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats) -> Iterator[Frontend]:
    directory = tmp_path_factory.mktemp("proxied")
    running = Frontend(directory, nats_for_module, "--trusted-proxies", "127.0.0.1")
    yield running
    assert running.program.stop() == 0


def guess(frontend: Any, path: str, *clients: str, source: str = "127.0.0.1") -> int:
    """Each of `clients` in a header of its own, as proxies in a row may write them."""
    host, _, port = frontend.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20, source_address=(source, 0))
    connection.putrequest("GET", path)
    connection.putheader("Authorization", f"Bearer guess-{next(guesses)}")
    for number, client in enumerate(clients):
        connection.putheader("X-Forwarded-For" if number % 2 == 0 else "x-forwarded-for", client)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.parametrize("path", ["/api/nodes", "/v1/models"])
def test_the_limit_on_guesses_is_by_the_proxys_client(proxied: Frontend, path: str) -> None:
    guesser = f"198.51.100.{len(path)}"
    assert 429 in [guess(proxied, path, guesser) for _ in range(60)]
    assert guess(proxied, path, f"203.0.113.{len(path)}") == 401, "another client of the same proxy"
    assert 429 in [guess(proxied, path, f"192.0.2.{number}", source="127.0.0.6") for number in range(60)], (
        "what one says that is no proxy of ours does not count"
    )


@pytest.mark.parametrize("path", ["/api/nodes", "/v1/models"])
def test_a_header_that_comes_twice_is_one_list(proxied: Frontend, path: str) -> None:
    """The last part is a proxy of ours; without the first, every client would be that proxy."""
    guesser = f"198.51.100.{100 + len(path)}"
    assert 429 in [guess(proxied, path, guesser, "127.0.0.1") for _ in range(60)]
    assert guess(proxied, path, f"203.0.113.{100 + len(path)}", "127.0.0.1") == 401, (
        "another client of the same proxies"
    )
