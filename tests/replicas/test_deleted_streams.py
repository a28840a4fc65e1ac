"""A model that is deleted while it answers: its replicas end within a bound, and whoever listens is told."""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.cluster import ADMIN_KEY, Cluster
from harness.echo_cluster import CONFIG, add_echo_models, start_echo_worker
from harness.nats import Nats
from harness.programs import Admin
from harness.waiting import wait_until


@pytest.fixture
def cluster(tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    running = Cluster(tmp_path, nats)
    yield running
    running.stop()


class EndlessStream:
    """An answer that never comes to its end by itself."""

    def __init__(self, admin: Admin, model: str) -> None:
        address = urlsplit(admin.url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
        self._body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": "endless"}]})
        self.lines: list[str] = []
        self.problem: Exception | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        wait_until(lambda: any("and " in line for line in self.lines), what="it speaks", within_s=60)

    def _read(self) -> None:
        headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
        try:
            self._connection.request("POST", "/v1/chat/completions", self._body, headers)
            with self._connection.getresponse() as response:
                for line in response:
                    self.lines.append(line.decode())
        except (OSError, http.client.HTTPException) as error:
            self.problem = error
        finally:
            self._connection.close()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def last(self) -> str:
        return next(line for line in reversed(self.lines) if line.strip())


@pytest.mark.parametrize("way", ["deleted", "disabled"])
def test_a_model_that_goes_takes_its_replica_along_whatever_its_streams_do(cluster: Cluster, way: str) -> None:
    admin = cluster.start_frontend("a", "--deleted-model-drain", "2")
    start_echo_worker(cluster, "w1")
    add_echo_models(admin, "horse")
    stream = EndlessStream(admin, "horse")
    if way == "deleted":
        assert admin.call("DELETE", "/api/models/horse").status == 200
    else:
        text = CONFIG.format(name="horse") + "disabled: true\n"
        assert admin.call("PUT", "/api/models/horse", body={"config": text}).status == 200
    seen = len(stream.lines)
    wait_until(lambda: len(stream.lines) > seen + 5, what="what is being answered goes on for a while", within_s=30)
    wait_until(lambda: not cluster.replicas("horse"), what="its replica is gone", within_s=30)
    wait_until(lambda: not cluster.processes("w1"), what="and its process", within_s=30)
    wait_until(lambda: stream.is_over, what="the stream is over", within_s=30)
    assert stream.problem is None, "it was ended, and not cut off"
    assert "error" in stream.last, stream.last


def test_a_replica_that_is_replaced_ends_within_a_bound_too(cluster: Cluster) -> None:
    admin = cluster.start_frontend("a", "--replica-drain", "2")
    start_echo_worker(cluster, "w1", "--max-replicas-per-model", "2")
    add_echo_models(admin, "horse")
    stream = EndlessStream(admin, "horse")
    [old] = cluster.replicas("horse")
    text = CONFIG.format(name="horse") + "context_size: 512\n"
    assert admin.call("PUT", "/api/models/horse", body={"config": text}).status == 200
    wait_until(
        lambda: old["id"] not in {row["id"] for row in cluster.replicas("horse")},
        what="the old one is gone",
        within_s=60,
    )
    wait_until(lambda: stream.is_over, what="the stream is over", within_s=30)
    assert (stream.problem, "error" in stream.last) == (None, True)
