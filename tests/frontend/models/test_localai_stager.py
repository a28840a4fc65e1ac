"""Files on their way to a LocalAI worker: from this frontend's disk or downloaded by it, to LocalAI's file server."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.replicas.test_availability import node
from corral.artifacts.install.gc import Freed
from corral.artifacts.install.weights import PlacedFile
from corral.artifacts.progress import OnProgress
from corral.artifacts.requests import ModelFile
from corral.bus.messages import FoundPath
from corral.core.models.config import ConfigFile
from corral.core.models.load_plan import WeightsPlan
from corral.core.replicas.staging import FileTransfer
from corral.core.transfer import TransferProgress
from corral.frontend.models.localai_stager import LocalAiStager
from corral.frontend.models.weights_downloads import WeightsDownloads
from corral.system.worker_files import FileServer
from harness.localai_files import LocalAiFiles
from harness.ports import free_port

GO = node("go", key_hash=None)
TOKEN = "secret"
ORIGIN = b"downloaded"
SHA256 = hashlib.sha256(ORIGIN).hexdigest()


@dataclass
class Origin:
    """Downloads as the frontend's artifacts do them."""

    fetched: list[str] = field(default_factory=list)
    collected: int = 0

    async def install_files(
        self, files: Sequence[ModelFile], *, target_dir: Path | None = None, on_progress: OnProgress | None = None
    ) -> list[PlacedFile]:
        assert target_dir is not None
        for file in files:
            self.fetched.append(file.uri)
            path = target_dir / file.filename
            path.parent.mkdir(parents=True)
            path.write_bytes(ORIGIN)
            if on_progress is not None:
                on_progress(TransferProgress(file_name=file.filename, bytes_done=4, bytes_total=len(ORIGIN)))
        return []

    async def collect_garbage(self, *, spare_s: float = 0.0) -> Freed:
        self.collected += 1
        return Freed(versions=(), layers=0, blobs=0, bytes=0)


@pytest.fixture(params=[True, False], ids=["resumable", "as-of-2026-05-07"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalAiFiles]:
    server = LocalAiFiles(tmp_path / "go", port=free_port(), token=TOKEN, resumable=request.param)
    yield server
    server.stop()


@pytest.fixture
def origin() -> Origin:
    return Origin()


@pytest.fixture
def stager(tmp_path: Path, files: LocalAiFiles, origin: Origin) -> LocalAiStager:
    async def find(_node: str) -> FileServer:
        return FileServer(f"http://127.0.0.1:{files.server_port}", TOKEN)

    return LocalAiStager(tmp_path / "models", find, WeightsDownloads(origin, tmp_path / "downloads"))


def put(directory: Path, **files: bytes) -> None:
    for name, data in files.items():
        path = directory / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def plan(*names: str, files: Sequence[ConfigFile] = ()) -> WeightsPlan:
    return WeightsPlan(files=tuple(files), paths=names)


def read_all(found: Iterable[FoundPath]) -> set[bytes]:
    return {Path(one.path).read_bytes() for one in found}


def ignore(_transfer: FileTransfer) -> None:
    pass


async def test_files_and_directories_get_localais_keys_and_the_workers_paths(
    tmp_path: Path, stager: LocalAiStager, files: LocalAiFiles
) -> None:
    put(tmp_path / "models", weights_bin=b"weights", voice__a_onnx=b"a", voice__deep__b_json=b"bb")
    found = await stager.stage("horse", GO, plan("weights.bin", "voice", "owner/repository"), ignore)
    there = tmp_path / "go" / "models" / "horse"
    assert found == {
        "weights.bin": FoundPath(path=str(there / "weights.bin"), size=7),
        "voice": FoundPath(path=str(there / "voice"), size=None),
    }, "what is not a file here is left to the backend"
    assert (there / "voice" / "deep" / "b.json").read_bytes() == b"bb"
    files.received.clear()
    assert await stager.stage("horse", GO, plan("weights.bin"), ignore)
    assert files.received == [], "what is there is not sent again"
    put(tmp_path / "models", weights_bin=b"changed")
    await stager.stage("horse", GO, plan("weights.bin"), ignore)
    assert (there / "weights.bin").read_bytes() == b"changed"


async def test_downloads_are_made_once_and_kept_as_long_as_a_model_lists_them(
    tmp_path: Path, stager: LocalAiStager, origin: Origin
) -> None:
    file = ConfigFile("sub/m.gguf", "https://origin.test/m.gguf", SHA256)
    seen: list[FileTransfer] = []
    found = await stager.stage("horse", GO, plan("sub/m.gguf", files=[file]), seen.append)
    path = tmp_path / "go" / "models" / "horse" / "sub" / "m.gguf"
    assert found == {"sub/m.gguf": FoundPath(path=str(path), size=len(ORIGIN))}
    assert [(one.hop, one.hops) for one in (seen[0], seen[-1])] == [(1, 2), (2, 2)], "here is half the way"
    await stager.stage("other", GO, plan("sub/m.gguf", files=[file]), ignore)
    assert origin.fetched == [file.uri]
    await stager.keep_only([file])
    assert origin.collected == 0
    await stager.keep_only([])
    assert (origin.collected, list((tmp_path / "downloads").iterdir())) == (1, [])


async def test_the_very_file_in_the_models_directory_is_not_downloaded(
    tmp_path: Path, stager: LocalAiStager, origin: Origin
) -> None:
    put(tmp_path / "models", m_gguf=ORIGIN, other_gguf=b"another")
    files = [ConfigFile(name, f"https://origin.test/{name}", SHA256) for name in ("m.gguf", "other.gguf")]
    found = await stager.stage("horse", GO, plan("m.gguf", "other.gguf", files=files), ignore)
    assert origin.fetched == ["https://origin.test/other.gguf"]
    assert read_all(found.values()) == {ORIGIN}


async def test_what_is_in_the_workers_models_directory_is_found_there(tmp_path: Path, stager: LocalAiStager) -> None:
    put(tmp_path / "go" / "models", shared_bin=b"shared", all__x_bin=b"x")
    found = await stager.find(GO, ["shared.bin", "all", "nothing"])
    assert {name: (Path(one.path).name, one.size) for name, one in found.items()} == {
        "shared.bin": ("shared.bin", 6),
        "all": ("all", None),
    }
