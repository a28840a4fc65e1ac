"""Nodes of one site that install at the same time fetch everything from the registry once, and need no registry for
what a node of the site has."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import ADMIN_KEY, Cluster, approve, ask
from harness.echo_cluster import add_echo_models, start_echo_worker
from harness.gated_files import GatedFiles
from harness.localai_backend import localai_files
from harness.machine_speed import promised
from harness.oci_registry import SharedLine, Trickle
from harness.programs import clean_environment, run_cli
from harness.proxy import Proxy, ProxyThread

pytestmark = pytest.mark.registry
LAYERS, LAYER_BYTES = 4, 3 << 20
IMAGE_BYTES = LAYERS * LAYER_BYTES
NAMES = ("one", "two", "three", "four")


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The leases of downloads are tested on both databases in tests/store."""
    return f"sqlite://{tmp_path / 'shared.db'}"


@pytest.fixture
def line(fleet: Cluster) -> Iterator[SharedLine]:
    line = SharedLine(fleet.registry.port, bytes_per_s=1.5e6)
    yield line
    line.stop()


@pytest.fixture
def digest(fleet: Cluster, line: SharedLine) -> str:
    layers = [{**localai_files("1")}, *({f"w{n}": os.urandom(LAYER_BYTES)} for n in range(LAYERS))]
    digest = fleet.registry.push("echo", *layers)
    fleet.offer("echo", uri=f"127.0.0.1:{line.port}/echo:latest")
    return digest


@pytest.fixture
def web() -> Iterator[GatedFiles]:
    server = GatedFiles({"weights": os.urandom(LAYER_BYTES)})
    server.let_go()
    yield server
    server.stop()


@pytest.fixture
def weights_line(web: GatedFiles) -> Iterator[SharedLine]:
    line = SharedLine(int(web.url("").split(":")[2].rstrip("/")), bytes_per_s=1.5e6)
    yield line
    line.stop()


@pytest.fixture
def proxies() -> Iterator[list[ProxyThread]]:
    made: list[ProxyThread] = []
    yield made
    for one in made:
        one.stop()


@pytest.fixture
def slow_lines() -> Iterator[list[Trickle]]:
    made: list[Trickle] = []
    yield made
    for one in made:
        one.stop()


def start(fleet: Cluster, *names: str, sites: dict[str, str] | None = None) -> None:
    admin = fleet.start_frontend()
    for name in names:
        fleet.start_worker(name, *(("--labels", f"site={sites[name]}") if sites else ()))
    for name in names:
        approve(admin, name)


def documents(line: SharedLine) -> list[str]:
    """The manifests that were read from the registry by digest."""
    asked = b"".join(line.asked)
    return [part.split(b" ")[0].decode() for part in asked.split(b"GET ") if b"/manifests/sha256:" in part[:200]]


def leader(fleet: Cluster) -> str:
    rows = fleet.read_sql("SELECT name FROM nodes JOIN site_downloads ON node_id = nodes.id WHERE state = 'leading'")
    name: str = rows[0][0]
    return name


def test_four_nodes_fetch_an_image_once(fleet: Cluster, digest: str, line: SharedLine) -> None:
    start(fleet, *NAMES)
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {}), within_s=120)
    fleet.wait_for_digests("echo", dict.fromkeys(NAMES, digest))
    assert IMAGE_BYTES <= line.passed_bytes < 1.2 * IMAGE_BYTES
    lookups = b"".join(line.asked).count(b"GET /v2/echo/manifests/latest ")  # of the frontend, which reads one more
    assert len(documents(line)) <= lookups + 1, "once for the site"


def test_each_of_two_sites_fetches_it_once(fleet: Cluster, digest: str, line: SharedLine) -> None:
    sites = {"one": "east", "two": "east", "three": "west", "four": "west"}
    start(fleet, *sites, sites=sites)
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {}), within_s=120)
    fleet.wait_for_digests("echo", dict.fromkeys(sites, digest))
    assert 2 * IMAGE_BYTES <= line.passed_bytes < 2.3 * IMAGE_BYTES


def test_nodes_of_another_site_are_asked_only_without_the_registry(
    fleet: Cluster, digest: str, line: SharedLine
) -> None:
    start(fleet, "one", "two", "three", sites={"one": "east", "two": "west", "three": "north"})
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {"nodes": ["one"]}), within_s=60)
    assert line.passed_bytes < 1.2 * IMAGE_BYTES
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {"nodes": ["two"]}), within_s=60)
    assert line.passed_bytes > 2 * IMAGE_BYTES, "not over the line between the sites"
    line.refuse()
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {"nodes": ["three"]}), within_s=120)
    fleet.wait_for_digests("echo", dict.fromkeys(("one", "two", "three"), digest))


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_leader_is_replaced(fleet: Cluster, digest: str, line: SharedLine, fault: signal.Signals) -> None:
    start(fleet, *NAMES)
    fleet.begin("/api/backends/install/echo", {})
    fleet.wait_for(lambda: line.passed_bytes > IMAGE_BYTES / 2, "half of the image is fetched", within_s=60)
    lost = leader(fleet)
    process = fleet.workers[lost].process
    os.kill(process.pid, fault)
    try:
        for name in NAMES:
            if name != lost:
                fleet.wait_until_on(name, "echo", digest, within_s=120)
        assert line.passed_bytes < 1.4 * IMAGE_BYTES, "what the others have is not fetched again"
    finally:
        if fault is signal.SIGSTOP:
            os.kill(process.pid, signal.SIGCONT)


def test_a_slow_leader_is_replaced(fleet: Cluster, digest: str, line: SharedLine) -> None:
    """Alone it would take minutes."""
    admin = fleet.start_frontend()
    slow = Trickle(fleet.registry.port, bytes_per_s=15_000)
    fleet.start_worker("one", "--registry-mirrors", f"127.0.0.1:{line.port}=127.0.0.1:{slow.port}")
    try:
        for name in NAMES[1:]:
            fleet.start_worker(name)
        approve(admin, *NAMES)
        fleet.begin("/api/backends/install/echo", {"nodes": ["one"]})
        fleet.wait_for(lambda: bool(fleet.read_sql("SELECT 1 FROM site_downloads")), "the slow node leads")
        fleet.begin("/api/backends/install/echo", {})
        for name in NAMES:
            fleet.wait_until_on(name, "echo", digest, within_s=120)
        assert line.passed_bytes < 1.5 * IMAGE_BYTES
    finally:
        slow.stop()


def test_a_node_does_not_wait_for_a_leader_that_sends_slowly(
    fleet: Cluster, digest: str, line: SharedLine, slow_lines: list[Trickle]
) -> None:
    """The leader fetches quickly. What it sends would take minutes."""
    start(fleet, "one", "two")
    for name in ("one", "two"):
        port = int(fleet.admin().nodes()[name]["http_address"].rpartition(":")[2])
        slow_lines.append(Trickle(port, bytes_per_s=15_000))
        fleet.run_sql(f"UPDATE nodes SET http_address = '127.0.0.1:{slow_lines[-1].port}' WHERE name = '{name}'")
    job = fleet.begin("/api/backends/install/echo", {})
    with promised("to fetch it from the registry", within_s=60):
        fleet.wait_for_operation(job, within_s=150)
    fleet.wait_for_digests("echo", {"one": digest, "two": digest})
    assert line.passed_bytes < 2.3 * IMAGE_BYTES


class Altering(Proxy):
    """Changes a byte of whatever is long."""

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data[:-1] + bytes([data[-1] ^ 1]) if len(data) > 8192 else data)
            await writer.drain()
        raise EOFError


@pytest.mark.parametrize("fault", ["refused", "silent", "altered"])
def test_nodes_that_do_not_get_the_bytes_of_their_leader_fetch_them(
    fleet: Cluster, digest: str, line: SharedLine, proxies: list[ProxyThread], fault: str
) -> None:
    """A firewall that rejects or drops, and a leader that sends something else."""
    start(fleet, "one", "two")
    for name in ("one", "two"):
        address = fleet.admin().nodes()[name]["http_address"]
        port = int(address.rpartition(":")[2])
        proxies.append(ProxyThread(Altering(port) if fault == "altered" else port))
        if fault != "altered":
            proxies[-1].do(Proxy.refuse if fault == "refused" else Proxy.swallow)
        fleet.run_sql(f"UPDATE nodes SET http_address = '127.0.0.1:{proxies[-1].port}' WHERE name = '{name}'")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {}), within_s=120)
    fleet.wait_for_digests("echo", {"one": digest, "two": digest})
    assert IMAGE_BYTES < line.passed_bytes < 2.3 * IMAGE_BYTES


def test_downloads_go_on_while_nobody_coordinates_them(fleet: Cluster, digest: str, line: SharedLine) -> None:
    start(fleet, "one", "two")
    job = fleet.begin("/api/backends/install/echo", {})
    fleet.wait_for(lambda: line.passed_bytes > IMAGE_BYTES / 4, "a quarter of the image is fetched", within_s=60)
    fleet.frontends["a"].kill()

    def is_installed(name: str) -> bool:
        return any(digest.removeprefix("sha256:") in str(path) for path in fleet.worker_dir(name).glob("backends/*/*"))

    for name in ("one", "two"):
        fleet.wait_for(lambda name=name: is_installed(name), f"{name} has it", within_s=120)  # type: ignore[misc]
    assert line.passed_bytes < 2.3 * IMAGE_BYTES
    fleet.start_frontend()
    fleet.wait_for_operation(job, within_s=60)


def test_a_failing_registry_fails_all_nodes_at_once(fleet: Cluster, digest: str, line: SharedLine) -> None:
    """The others do not repeat what the leader tried for all of them."""
    start(fleet, "one", "two", "three")
    job = fleet.begin("/api/backends/install/echo", {})
    fleet.wait_for(lambda: line.passed_bytes > IMAGE_BYTES / 4, "a quarter of the image is fetched", within_s=60)
    line.refuse()
    fleet.wait_for(
        lambda: all("127.0.0.1" in node["error"] for node in fleet.operation(job)["nodes"]),
        "all nodes report the failure",
        within_s=60,
    )
    line.refusing = False
    assert fleet.post(f"/api/operations/{job}/retry").status in (200, 202)
    fleet.wait_for_operation(job, within_s=120)
    fleet.wait_for_digests("echo", dict.fromkeys(("one", "two", "three"), digest))
    assert line.passed_bytes < 1.6 * IMAGE_BYTES


def test_installs_joins_repairs_and_loads_need_no_registry_for_what_the_site_has(
    fleet: Cluster, digest: str, line: SharedLine
) -> None:
    start(fleet, "one", "two")
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {"nodes": ["one"]}), within_s=60)
    line.refuse()
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo", {}), within_s=60)
    fleet.wait_for_digests("echo", {"one": digest, "two": digest})

    fleet.start_worker("three")
    approve(fleet.admin(), "three")
    fleet.wait_until_on("three", "echo", digest, within_s=60)

    fleet.workers["two"].kill()
    fleet.wipe("two")
    fleet.start_worker("two", wait=True)
    fleet.wait_until_on("two", "echo", digest, within_s=60)

    add_echo_models(fleet.admin(), "m")
    assert ask(fleet.admin(), "m").status == 200


def test_three_nodes_fetch_a_weight_file_once(fleet: Cluster, web: GatedFiles, weights_line: SharedLine) -> None:
    """Its digest is in the model's configuration. The file comes slowly enough for all to load it at the same time."""
    admin = fleet.start_frontend()
    names = NAMES[:3]
    for name in names:
        start_echo_worker(fleet, name)
    approve(admin, *names)
    content = web.files["weights"]
    listed = web.download("m/weights.bin", "weights").replace(web.url(""), f"http://127.0.0.1:{weights_line.port}/")
    add_echo_models(admin, "m", more=f"parameters: {{model: m/weights.bin}}\ndownload_files: [{listed}]\n")
    wanted = {"model_name": "m", "min_replicas": len(names), "max_replicas": len(names)}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    fleet.wait_for_ready("m", len(names), within_s=60)
    for name in names:
        assert (fleet.worker_dir(name) / "models" / "m" / "weights.bin").read_bytes() == content
    assert len(content) <= weights_line.passed_bytes < 1.2 * len(content)


def test_the_site_of_a_node_is_a_label(fleet: Cluster) -> None:
    start(fleet, "one")
    environment = clean_environment(CORRAL_URL=fleet.admin().url, CORRAL_API_KEY=ADMIN_KEY)

    def corral(*arguments: str) -> str:
        done = run_cli(*arguments, environment=environment)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def site() -> str:
        (shown,) = [row for row in corral("nodes", "show", "one").splitlines() if row.startswith("SITE")]
        return shown

    assert "default" in site()
    corral("nodes", "label", "one", "site=berlin")
    assert site().split() == ["SITE", "berlin"]
