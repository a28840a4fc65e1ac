"""The backends that a real frontend offers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.frontend import Frontend
from harness.http_files import HttpFiles
from harness.nats import Nats
from harness.ports import free_port
from harness.programs import call, clean_environment, run_cli
from harness.waiting import wait_until

GALLERY = b"""
- &engine
  name: engine
  alias: engine
  description: An engine for tests.
  license: mit
  tags: [text-to-text, LLM]
  capabilities: {default: cpu-engine, nvidia: cuda-engine}
- <<: *engine
  name: cpu-engine
  uri: quay.io/test/engine:cpu
  version: "2"
  size: 12MB
- <<: *engine
  name: cuda-engine
  uri: quay.io/test/engine:cuda
- name: gpu-only
  tags: [TTS]
  capabilities: {nvidia: cuda-gpu-only}
- {name: cuda-gpu-only, uri: "quay.io/test/gpu:1"}
- {name: engine-development, uri: "quay.io/test/engine:dev"}
"""
GO = " (LocalAI worker)"
MODELS = b"- {name: tiny, description: A tiny model, tags: [chat], size: 94MB, overrides: {backend: engine}}\n"


@pytest.fixture(scope="module")
def files() -> Iterator[HttpFiles]:
    server = HttpFiles({"/backends.yaml": GALLERY, "/models.yaml": MODELS})
    yield server
    server.stop()


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats, files: HttpFiles) -> Iterator[Frontend]:
    galleries = json.dumps([{"name": "ours", "url": files.url("/backends.yaml")}])
    running = Frontend(
        tmp_path_factory.mktemp("frontend"),
        nats_for_module,
        "--auto-approve",
        "--trusted-hosts", "127.0.0.1",
        LOCALAI_BACKEND_GALLERIES=galleries,
        GALLERIES=f"ours={files.url('/models.yaml')}",
    )  # fmt: skip
    for name, capability in (("plain", "default"), ("big", "nvidia"), ("jetson", "nvidia-l4t-cuda-12")):
        assert running.register(name=name, capability=capability).status == 201
    assert running.register(name="helper", node_type="agent").status == 201
    yield running
    assert running.program.stop() == 0


def test_each_capability_has_its_variant_or_the_reason_why_there_is_none(frontend: Frontend) -> None:
    answer = frontend.admin.call("GET", "/api/backends/available?term=engine").json()
    (engine,) = answer["backends"]  # neither its parts nor the development build
    assert (engine["id"], engine["description"], engine["tags"]) == (
        "ours@engine",
        "An engine for tests.",
        engine["tags"],
    )
    # The nodes registered without a key, as LocalAI's workers do: they may get other builds than Corral's.
    variants = {variant["capability"].removesuffix(GO): variant for variant in engine["variants"]}
    assert variants["default"]["variant"] == "cpu-engine"
    assert (variants["default"]["version"], variants["default"]["size_bytes"]) == ("2", 12_000_000)
    assert variants["nvidia"]["variant"] == "cuda-engine"
    assert variants["nvidia-l4t-cuda-12"]["variant"] == "cpu-engine"
    assert "no build for nvidia-l4t-cuda-12" in variants["nvidia-l4t-cuda-12"]["reason"]
    assert {node["node_name"]: node["capability"] for node in answer["nodes"]} == {
        "plain": f"default{GO}", "big": f"nvidia{GO}", "jetson": f"nvidia-l4t-cuda-12{GO}",
    }  # fmt: skip
    (gpu_only,) = frontend.admin.call("GET", "/api/backends/available?name=gpu-only").json()["backends"]
    unfit = next(variant for variant in gpu_only["variants"] if variant["capability"] == f"default{GO}")
    assert unfit["variant"] is None
    assert unfit["reason"] == "gpu-only has no build for default; it has builds for nvidia"
    assert frontend.admin.call("GET", "/api/backends/available?name=nothing").status == 404


def test_a_name_shows_the_build_that_a_localai_worker_would_get_or_why_it_cannot_run_any(frontend: Frontend) -> None:
    (own,) = frontend.admin.call("GET", "/api/backends/available?name=llama-cpp").json()["backends"]
    (found,) = [variant for variant in own["variants"] if variant["capability"] == f"default{GO}"]
    assert found["variant"] is None
    assert found["reason"].startswith("a LocalAI worker cannot start ")


def test_corrals_own_gallery_comes_first(frontend: Frontend) -> None:
    galleries = frontend.admin.call("GET", "/backends/galleries").json()
    assert [(gallery["name"], gallery["problem"]) for gallery in galleries] == [("corral", ""), ("ours", "")]
    names = [offer["name"] for offer in frontend.admin.call("GET", "/api/backends/available").json()["backends"]]
    assert names.index("llama-cpp") < names.index("engine")


def test_localais_listings_have_its_keys(frontend: Frontend) -> None:
    available = {entry["name"]: entry for entry in frontend.admin.call("GET", "/backends/available").json()}
    assert available["engine"]["capabilities"] == {"default": "cpu-engine", "nvidia": "cuda-engine"}
    assert available["engine"]["installed"] is False
    assert available["engine"]["gallery"]["name"] == "ours"
    assert "cpu-engine" in available
    known = {entry["name"]: entry for entry in frontend.admin.call("GET", "/backends/known").json()}
    assert known["engine"] == {
        "name": "engine", "modality": "text", "auto_detect": False, "description": "An engine for tests.",
        "installed": False,
    }  # fmt: skip
    assert "cpu-engine" not in known
    assert frontend.admin.call("GET", "/backends").json() == []


def test_the_paged_listing_pages_filters_and_sorts(frontend: Frontend) -> None:
    first = frontend.admin.call("GET", "/api/backends?items=2&sort=name&page=1").json()
    assert set(first) == {
        "backends", "repositories", "allTags", "processingBackends", "taskTypes", "availableBackends",
        "installedBackends", "currentPage", "totalPages", "prevPage", "nextPage", "systemCapability",
        "preferDevelopmentBackends",
    }  # fmt: skip
    assert set(first["backends"][0]) == {
        "id", "name", "description", "icon", "license", "urls", "tags", "gallery", "installed", "version", "processing",
        "jobID", "isDeletion", "isMeta", "isAlias", "isDevelopment", "capabilities", "metaBackendFor", "nodes",
    }  # fmt: skip
    pages = first["totalPages"]
    assert pages == -(-first["availableBackends"] // 2)
    names = [
        entry["name"].lower()
        for page in range(1, pages + 1)
        for entry in frontend.admin.call("GET", f"/api/backends?items=2&sort=name&page={page}").json()["backends"]
    ]
    assert len(names) == first["availableBackends"]
    assert names == sorted(names)
    last = frontend.admin.call("GET", f"/api/backends?items=2&sort=name&page={pages + 7}").json()
    assert (last["currentPage"], last["nextPage"], last["prevPage"]) == (pages, pages, pages - 1)
    assert (first["prevPage"], first["nextPage"]) == (1, 2)
    down = frontend.admin.call("GET", "/api/backends?items=1&sort=name&order=desc").json()["backends"]
    assert down[0]["name"].lower() == names[-1]
    tagged = frontend.admin.call("GET", "/api/backends?tag=tts&items=50").json()["backends"]
    assert [entry["name"] for entry in tagged] == ["gpu-only"]
    assert "TTS" in first["allTags"]
    assert {entry["isMeta"] for entry in tagged} == {True}
    assert frontend.admin.call("GET", "/api/backends?sort=weather").status == 400
    assert frontend.admin.call("GET", "/api/backends?page=0").status == 400


def test_an_unknown_field_is_rejected_and_does_not_mean_every_node(frontend: Frontend) -> None:
    for path in ("install/engine", "upgrade/engine", "delete/engine", "engine/rollback"):
        answer = frontend.admin.call("POST", f"/api/backends/{path}", body={"node": "plain"})
        assert (answer.status, "node" in answer.json()["error"]["message"]) == (400, True), answer.body
    assert frontend.admin.call("GET", "/api/operations").json()["operations"] == []


def test_models_are_listed_as_localai_lists_them(frontend: Frontend) -> None:
    listed = {model["name"]: model for model in frontend.admin.call("GET", "/models/available").json()}
    tiny = listed["tiny"]
    assert (tiny["description"], tiny["tags"], tiny["gallery"]) == ("A tiny model", ["chat"], {"name": "ours"})
    assert tiny["installed"] is False


def test_only_administrators_see_them(frontend: Frontend) -> None:
    key = frontend.admin.call("POST", "/api/keys", body={"name": "someone", "scope": "user"}).json()["key"]
    for path in (
        "/backends",
        "/backends/available",
        "/api/backends",
        "/api/backends/available",
        "/api/models/available",
        "/models/available",
    ):
        assert call("GET", frontend.url + path).status == 401, path
        assert call("GET", frontend.url + path, key=key).status == 403, path


def test_a_gallery_is_read_once_and_then_only_checked_for_changes(frontend: Frontend, files: HttpFiles) -> None:
    frontend.admin.call("GET", "/api/backends/available")
    before = len(files.asked)
    for _ in range(3):
        frontend.admin.call("GET", "/api/backends/available")
    assert len(files.asked) == before
    assert frontend.admin.call("POST", "/api/galleries/refresh").status == 200
    assert ("/backends.yaml", 304) in files.asked[before:]


def test_an_entry_added_to_a_gallery_a_moment_ago_can_be_installed(frontend: Frontend, files: HttpFiles) -> None:
    frontend.admin.call("GET", "/api/backends/available")
    files.files["/late.tar"] = b"fetched by nobody here"
    late = f"- {{name: late, uri: '{files.url('/late.tar')}', sha256: {'0' * 64}}}\n"
    files.files["/backends.yaml"] = GALLERY + late.encode()
    files.files["/models.yaml"] = MODELS + b"- {name: late-model, overrides: {backend: engine}}\n"
    try:
        answer = frontend.admin.call("POST", "/api/backends/install/late", body={"selector": {"room": "none"}})
        assert answer.status in (200, 202), answer.body
        assert frontend.admin.call("POST", "/api/models/install", body={"name": "late-model"}).status == 201
        assert frontend.admin.call("POST", "/api/backends/install/never").status == 404
    finally:
        files.files.update({"/backends.yaml": GALLERY, "/models.yaml": MODELS})
        assert frontend.admin.call("POST", "/api/galleries/refresh").status == 200


def test_the_size_of_a_model_is_shown_in_binary_units(frontend: Frontend) -> None:
    [tiny] = frontend.admin.call("GET", "/api/models/available?term=tiny").json()["models"]
    assert tiny["size"] == "89.6 MiB"


def test_an_unreachable_gallery_is_shown_from_its_copy_with_its_age(tmp_path: Path, nats_for_module: Nats) -> None:
    files = HttpFiles({"/backends.yaml": GALLERY})
    flags = ("--trusted-hosts", "127.0.0.1", "--backend-galleries", f"ours={files.url('/backends.yaml')}")
    first = Frontend(tmp_path, nats_for_module, *flags)
    assert first.admin.call("GET", "/api/backends/available?name=engine").status == 200
    assert first.program.stop() == 0
    files.stop()
    again = Frontend(tmp_path, nats_for_module, *flags)
    # At once from the copy, though the server does not answer.
    assert again.admin.call("GET", "/api/backends/available?name=engine").status == 200

    def is_shown() -> bool:
        _, ours = again.admin.call("GET", "/backends/galleries").json()
        return bool(ours["problem"] and ours["entries"] == 6 and ours["age_s"] > 0)

    wait_until(is_shown, what="the gallery is shown as unreachable, with the age of the copy", within_s=60)
    assert again.admin.call("GET", "/api/backends/available?name=engine").status == 200
    assert again.program.stop() == 0


def test_an_unreadable_gallery_is_not_shown_as_empty(tmp_path: Path, nats_for_module: Nats) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}/index.yaml"
    flags = ("--backend-galleries", f"ours={nowhere}", "--model-galleries", f"ours={nowhere}")
    frontend = Frontend(tmp_path, nats_for_module, "--trusted-hosts", "127.0.0.1", *flags)
    try:
        environment = clean_environment(CORRAL_URL=frontend.url, CORRAL_API_KEY=frontend.admin.key)
        models = run_cli("models", "available", "qwen", environment=environment)
        assert models.stdout == "No model matches 'qwen' in the galleries that could be read.\n"
        assert "gallery ours: " in models.stderr
        page = frontend.admin.call("GET", "/api/models/available?term=qwen").json()
        assert [bool(gallery["problem"]) for gallery in page["galleries"]] == [False, True]
        upgrades = run_cli("backends", "upgrades", environment=environment)
        assert "not every gallery could be read" in upgrades.stdout
        missed = run_cli("backends", "install", "lama-cpp", environment=environment).stderr
        assert "Did you mean llama-cpp" in missed
        assert "Gallery ours could not be read: " in missed
    finally:
        assert frontend.program.stop() == 0


REAL = Path(os.environ.get("CORRAL_SHARED_DATA", Path(__file__).parents[5] / "shared" / "data")) / (
    "localai-backend-index.yaml"
)


@pytest.mark.skipif(not REAL.exists(), reason="the real LocalAI index is not on this machine")
def test_the_whole_real_gallery_is_listed(tmp_path: Path, nats_for_module: Nats) -> None:
    running = Frontend(tmp_path, nats_for_module, "--auto-approve", "--backend-galleries", f"localai=file://{REAL}")
    for name, capability in (("plain", "default"), ("big", "nvidia-cuda-12"), ("mac", "metal")):
        assert running.register(name=name, capability=capability).status == 201
    page = running.admin.call("GET", "/api/backends?items=2000").json()
    assert page["availableBackends"] > 500
    offers = running.admin.call("GET", "/api/backends/available").json()["backends"]
    assert 60 < len(offers) < 200
    assert running.program.stop() == 0
