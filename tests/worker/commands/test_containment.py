"""A backend that was started by a real worker tries what it must not be able to do. Nothing is switched on for it."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

import harness
from corral.formats.localai_proto import MODEL_OPTIONS, RESULT, TTS_REQUEST
from harness.localai_backend import write_http_backend, write_localai_backend
from harness.nats import Nats
from harness.programs import call, clean_environment, run_cli
from harness.single_worker import Commander, SingleWorker
from harness.up import Up
from harness.worker_commands import install, start
from worker.commands.test_isolation import open_to_all

NOBODY = 65534
# The interpreter of these tests may lie below /root, where nobody else gets without this.
AS_NOBODY = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
)  # fmt: skip

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="workers are started as root and as nobody")


class Attacker:
    """What a running backend finds when it tries."""

    def __init__(self, started: dict[str, Any]) -> None:
        assert started["success"], started
        self.pid = started["corral"]["pid"]
        self._url, self._token = f"http://{started['address']}", started["corral"]["token"]

    def _ask(self, path: str) -> Any:
        return call("GET", f"{self._url}{path}", key=self._token).json()

    def can_read(self, path: Path | str) -> bool:
        return self._ask(f"/read{path}")["found"] is not None

    def can(self, what: str, target: object) -> bool:
        return self._ask(f"/{what}/{str(target).lstrip('/')}")["refused"] is None

    @property
    def facts(self) -> dict[str, Any]:
        return dict(self._ask("/environment"))


async def put_weights(worker: SingleWorker, frontend: Commander, *names: str) -> None:
    token = (await frontend.ask("corral.report.now"))["http_token"]
    for name in names:
        assert call("PUT", f"{worker.url}/v1/files/models/{name}", key=token, raw=b"weights").status == 200


@pytest.mark.parametrize("inside", [pytest.param((), id="root"), pytest.param(AS_NOBODY, id="nobody")])
async def test_a_backend_reaches_its_own_files_and_nothing_else(
    tmp_path: Path, nats: Nats, inside: tuple[str, ...]
) -> None:
    """H5, S-42, INV-60."""
    if inside:
        open_to_all(tmp_path)
        os.chown(tmp_path, NOBODY, NOBODY)
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", inside=inside)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            await install(frontend, write_http_backend(tmp_path / "other"), "other")
            await put_weights(worker, frontend, "mine.gguf", "others.gguf", "shared/part-1", "part-00001-of-00002.gguf")
            models = worker.data_dir / "models"
            mine = {"model": str(models / "mine.gguf"), "files": ["mine.gguf", "shared", "../identity.json"]}
            backend = Attacker(await start(frontend, "a", start=mine))
            sibling = Attacker(
                await start(frontend, "b", "other", start={"model": str(models / "others.gguf"), "files": []})
            )
            facts = backend.facts
            for own in (models / "mine.gguf", models / "shared" / "part-1", facts["cwd"], facts["environ"]["HOME"]):
                assert backend.can_read(own), own
            assert backend.can("write", f"{facts['environ']['HOME']}/x")
            if not inside:  # as the worker's own user only where there is a GPU
                assert backend.can("write", f"/proc/{backend.pid}/comm"), "CUDA names its threads"
                assert backend.can("name", "thread-of-a-child")

            processes = worker.data_dir / "run" / "processes"
            secrets = [
                *(worker.data_dir / name for name in ("identity.json", "http.token", "blob.token", ".")),
                worker.data_dir / "applied_generations.json",
                *processes.glob("*/record.json"), processes, worker.data_dir / "run" / "logs",
                models, models / "others.gguf", models / "part-00001-of-00002.gguf",
                sibling.facts["cwd"], sibling.facts["environ"]["HOME"], tmp_path / "worker.log", "/etc/shadow", "/root",
                *(f"/proc/{pid}/{name}" for pid in (worker.program.pid, sibling.pid, psutil.Process(backend.pid).ppid())
                  for name in ("environ", "maps", "fd/1", "root/etc/hostname")),
            ]  # fmt: skip
            assert [path for path in secrets if backend.can_read(path)] == []
            foreign = f"/proc/{worker.program.pid}/oom_score_adj"
            written = [
                foreign,
                "/proc/sys/kernel/core_pattern",
                models / "mine.gguf",
                worker.data_dir / "x",
                models / "x",
                Path(facts["cwd"]) / "x",
                "/usr/x",
            ]
            assert [path for path in written if backend.can("write", path)] == []
            for pid in (worker.program.pid, sibling.pid, psutil.Process(backend.pid).ppid()):
                assert not backend.can("signal", pid), pid
                assert not backend.can("trace", pid), pid
            assert (facts["uid"] == sibling.facts["uid"]) is bool(inside), "as root each has a user of its own"
            assert (facts["uid"] == NOBODY) is bool(inside)
    finally:
        assert worker.close() == []


async def test_files_of_requests_pass_between_frontend_and_backend_and_cannot_be_listed(
    tmp_path: Path, nats: Nats
) -> None:
    """Speech: the backend writes where the frontend said, as a user that owns nothing there."""
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends")
    try:
        async with worker.frontend() as frontend:
            token = (await frontend.ask("corral.report.now"))["http_token"]
            await install(frontend, write_localai_backend(tmp_path / "source"), "grpc")
            await install(frontend, write_http_backend(tmp_path / "http"))
            started = await start(frontend, "voice", "grpc", start={"files": []})
            assert started["success"], started
            made = call("PUT", f"{worker.url}/v1/files/ephemeral/outputs/one.wav", key=token, raw=b"")
            output = made.json()["local_path"]
            await speak(started, output, "hello")
            written = call("GET", f"{worker.url}/v1/files/ephemeral/outputs/one.wav", key=token).body
            assert written == b"RIFF:hello"
            assert psutil.Process(started["corral"]["pid"]).uids().real != 0
            plain = Attacker(await start(frontend, "m"))
            assert not plain.can_read(output), "a backend that is sent whole requests has no business there"
    finally:
        assert worker.close() == []


async def speak(started: dict[str, Any], output: str, text: str) -> None:
    metadata = (("authorization", f"Bearer {started['corral']['token']}"),)
    async with grpc.aio.insecure_channel(started["address"]) as channel:
        for name, kind, fields in (
            ("LoadModel", MODEL_OPTIONS, {"Model": "m"}),
            ("TTS", TTS_REQUEST, {"text": text, "dst": output}),
        ):
            call = channel.unary_unary(
                f"/backend.Backend/{name}", request_serializer=kind.encode, response_deserializer=RESULT.decode
            )
            result = await call(fields, metadata=metadata, timeout=60)
            assert result["success"], result


async def test_a_file_that_replaced_another_is_read_by_a_new_process(tmp_path: Path, nats: Nats) -> None:
    """Rules are about files, not names: the running process could not open what came later."""
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends")
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            await put_weights(worker, frontend, "mine.gguf")
            path = worker.data_dir / "models" / "mine.gguf"
            wanted = {"model": str(path), "files": ["mine.gguf", "later.gguf"]}
            first = Attacker(await start(frontend, "a", start=wanted))
            again = Attacker(await start(frontend, "a", start=wanted))
            assert again.pid == first.pid
            (tmp_path / "new").write_bytes(b"new weights")
            shutil.move(tmp_path / "new", path)
            second = Attacker(await start(frontend, "a", start=wanted))
            assert second.pid != first.pid
            assert second.can_read(path)
            await put_weights(worker, frontend, "later.gguf")
            third = Attacker(await start(frontend, "a", start=wanted))
            assert third.pid != second.pid
            assert third.can_read(path.with_name("later.gguf"))
    finally:
        assert worker.close() == []


async def test_what_an_administrator_names_is_reached_besides(tmp_path: Path, nats: Nats) -> None:
    voices, scratch = tmp_path / "voices", tmp_path / "scratch"
    for directory in (voices, scratch):
        directory.mkdir()
        directory.chmod(0o777)
        (directory / "one").write_text("x")
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", "--backend-paths", f"{voices},{scratch}:rw,{tmp_path}")
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            backend = Attacker(await start(frontend, "a"))
            assert (backend.can_read(voices / "one"), backend.can("write", voices / "two")) == (True, False)
            assert backend.can("write", scratch / "two")
            assert backend.can_read(tmp_path / "worker.log"), "beside the data directory"
            assert not backend.can_read(worker.data_dir / "identity.json"), "the private part is never included"
    finally:
        assert worker.close() == []


WITHOUT_LANDLOCK = (sys.executable, str(Path(harness.__file__).with_name("without_landlock.py")))


@pytest.mark.parametrize("setting", ["required", "auto", "off"])
async def test_where_nothing_contains_it_is_said_and_required_refuses(tmp_path: Path, nats: Nats, setting: str) -> None:
    open_to_all(tmp_path)
    os.chown(tmp_path, NOBODY, NOBODY)
    worker = SingleWorker(
        tmp_path, nats, "--no-keep-backends", "--backend-isolation", setting, inside=(*AS_NOBODY, *WITHOUT_LANDLOCK)
    )
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            started = await start(frontend, "a")
            assert started["success"] is (setting != "required"), started
            assert setting != "required" or "cannot confine backends" in started["error"]
            assert "Backends are not confined" in worker.program.output()
            told = worker.registrar.facts
            assert told["isolation"] == "none"
            assert "identity, keys and other models" in told["isolation_reason"]
    finally:
        assert worker.close() == []


async def test_root_without_landlock_still_gives_each_backend_a_user_of_its_own(tmp_path: Path, nats: Nats) -> None:
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", inside=WITHOUT_LANDLOCK)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            await put_weights(worker, frontend, "mine.gguf", "others.gguf")
            models = worker.data_dir / "models"
            backend = Attacker(await start(frontend, "a", start={"model": "x", "files": ["mine.gguf"]}))
            assert backend.facts["uid"] not in (0, NOBODY)
            assert backend.can_read(models / "mine.gguf")
            secrets: list[Path | str] = [
                worker.data_dir / "identity.json",
                models / "others.gguf",
                f"/proc/{worker.program.pid}/environ",
            ]
            assert [path for path in secrets if backend.can_read(path)] == []
            assert "this kernel has no Landlock" in worker.program.output()
    finally:
        assert worker.close() == []


WITHOUT_MOUNTS = ("setpriv", "--bounding-set=-sys_admin")


@pytest.mark.parametrize(
    ("inside", "level"),
    [
        pytest.param(WITHOUT_MOUNTS, "full", id="landlock"),
        pytest.param((*WITHOUT_MOUNTS, *WITHOUT_LANDLOCK), "none", id="nothing"),
    ],
)
async def test_root_that_may_not_mount_says_what_a_closed_data_directory_leaves(
    tmp_path: Path, nats: Nats, inside: tuple[str, ...], level: str
) -> None:
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", "--backend-isolation", "required", inside=inside)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            told = worker.registrar.facts
            assert told["isolation"] == level
            assert "to the data directory" in told["isolation_reason"]
            assert "a user of its own and" not in told["isolation_reason"]
            started = await start(frontend, "a")
            assert started["success"] is (level == "full"), started
            if level == "none":
                assert "cannot confine backends" in started["error"]
                return
            backend = Attacker(started)
            assert backend.facts["uid"] == 0
            assert backend.can("write", f"/proc/{backend.pid}/task/{backend.pid}/comm"), "CUDA names its threads"
            assert not backend.can("write", "/proc/sys/kernel/core_pattern"), "root owns it, and it is not root's now"
            assert not backend.can_read(worker.data_dir / "identity.json")
    finally:
        assert worker.close() == []


async def test_paths_around_or_into_corrals_own_are_not_granted_and_snapshots_are_whole(
    tmp_path: Path, nats: Nats
) -> None:
    cache = tmp_path / "cache"
    snapshot, blobs = cache / "models--x" / "snapshots" / "1", cache / "models--x" / "blobs"
    for directory in (snapshot, blobs):
        directory.mkdir(parents=True)
    for name in ("weights", "other"):
        (blobs / name).write_text(name)
    (snapshot / "model.safetensors").symlink_to("../../blobs/weights")
    (snapshot / "stolen").symlink_to(tmp_path / "worker" / "identity.json")
    home = tmp_path / "hf"
    home.mkdir()
    (home / "one").write_text("one")
    around = tmp_path / "around"
    around.symlink_to(tmp_path / "worker")
    worker = SingleWorker(
        tmp_path, nats, "--no-keep-backends", "--backend-environment", "HF_HOME,ROOT", HF_HOME=str(home), ROOT="/"
    )
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            refused = await start(frontend, "r", start={"model": "/", "files": []})
            assert not refused["success"]
            assert "contains Corral's own directory" in refused["error"]
            wanted = {"model": str(snapshot), "files": [], "options": {"flavour": "/"}}
            backend = Attacker(await start(frontend, "a", start=wanted))
            assert backend.can_read(snapshot / "model.safetensors")
            assert backend.can_read(home / "one")
            closed = [blobs / "other", snapshot / "stolen", worker.data_dir / "identity.json", tmp_path / "worker.log"]
            assert [path for path in closed if backend.can_read(path)] == []
            link = Attacker(await start(frontend, "b", start={"model": str(around), "files": []}))
            assert not link.can_read(worker.data_dir / "identity.json")
    finally:
        assert worker.close() == []


def load(up: Up, source: Path) -> Attacker:
    """A model of that backend, as an administrator would."""
    local = clean_environment(CORRAL_DATA_DIR=str(up.data))
    installed = run_cli("backends", "install", "web", "--uri", f"file://{source}", environment=local)
    assert installed.returncode == 0, installed.stderr
    config = source / "model.yaml"
    config.write_text("name: m\nbackend: web\nparameters: {model: weights}\n")
    assert run_cli("models", "install", "--file", str(config), environment=local).returncode == 0
    loaded = up.admin.call("POST", "/api/models/m/load", body={"wait_s": 60}, within_s=90)
    assert loaded.status == 200, loaded.body
    [path] = (up.data / "worker" / "run" / "processes").glob("*/record.json")
    record = json.loads(path.read_text())
    address = f"127.0.0.1:{record['port']}"
    return Attacker({"success": True, "address": address, "corral": {"pid": 0, "token": record["token"]}})


def test_up_contains_its_backends(tmp_path: Path) -> None:
    """The keys of the whole fleet lie beside the worker's directory."""
    up = Up(tmp_path, CORRAL_TRUSTED_HOSTS="127.0.0.1")
    try:
        admin = up.wait_ready()
        assert "not confined" not in up.program.output()
        node = admin.nodes()["first"]
        assert node["isolation"] == "full"
        assert "Landlock" in node["isolation_reason"]
        backend = load(up, write_http_backend(tmp_path / "source"))
        keys = [path for path in (up.data / "keys").rglob("*") if path.is_file()]
        assert {"admin.key", "operator.seed", "local.token"} <= {path.name for path in keys}
        secrets: list[Path | str] = [
            *keys,
            up.data,
            up.data / "corral.db",
            up.data / "worker" / "identity.json",
            up.data / "logs",
        ]
        pids = [up.program.pid, *(child.pid for child in up.children().values())]
        secrets += [f"/proc/{pid}/environ" for pid in pids]
        assert [path for path in secrets if backend.can_read(path)] == []
        assert [pid for pid in pids if backend.can("signal", pid)] == []
    finally:
        up.program.stop(30)
