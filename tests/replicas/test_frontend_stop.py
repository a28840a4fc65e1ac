"""A frontend that is told to stop: open streams end, new requests are refused, and both within a limit."""

import signal
from collections.abc import Iterator

import pytest

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.held_stream import HeldStream
from harness.programs import Admin
from harness.tiny_model import Shelf, write_weights

LOGGED = "gateway.draining"


@pytest.fixture(scope="module")
def slow_shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """A model that takes some milliseconds for a token, so that its answers last."""
    path = write_weights(tmp_path_factory.mktemp("slow") / "slow.gguf", size=256, layers=8, hidden=1024)
    running = Shelf(path.read_bytes())
    yield running
    running.close()


def serve(cluster: Cluster, shelf: Shelf, *flags: str) -> Admin:
    admin = cluster.start_frontend("a", *flags)
    cluster.start_worker("w1")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("slow", threads=1)}).status == 201
    assert ask(admin, "slow").status == 200
    return admin


def held(cluster: Cluster, admin: Admin) -> HeldStream:
    [engine] = cluster.engines("w1")
    return HeldStream(admin.url, ADMIN_KEY, "slow", engine=engine)


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_frontend_that_stops_lets_streams_end_and_refuses_new_requests(cluster: Cluster, slow_shelf: Shelf) -> None:
    admin = serve(cluster, slow_shelf, "--stop-wait", "60s")
    with held(cluster, admin) as stream:
        cluster.frontends["a"].send(signal.SIGTERM)
        cluster.frontends["a"].wait_for_output(LOGGED)
        for path in ("/v1/chat/completions", "/v1/messages", "/api/chat"):
            refused = admin.call("POST", path, body={"model": "slow", "messages": []})
            assert (refused.status, refused.headers["retry-after"]) == (503, "1"), refused.body
            assert "this frontend is stopping" in str(refused.json()["error"])
        ready = admin.call("GET", "/readyz")
        assert (ready.status, ready.json()["status"]) == (503, "stopping")
        stream.go_on()
        stream.wait()
    assert stream.problem is None
    assert stream.is_whole, stream.text[-300:]
    assert cluster.frontends["a"].wait() == 0


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_stream_that_does_not_end_holds_a_frontend_only_so_long(cluster: Cluster, slow_shelf: Shelf) -> None:
    admin = serve(cluster, slow_shelf, "--stop-wait", "1s")
    with held(cluster, admin) as stream:
        cluster.frontends["a"].send(signal.SIGTERM)
        stream.wait()
        assert cluster.frontends["a"].wait() == 0
    assert "this frontend is stopping" in stream.text, stream.text[-300:]
    assert "gateway.drain_timed_out" in cluster.frontends["a"].output()
