"""`corral artifacts` without a fleet."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from corral.cli.commands.artifacts import artifacts_group
from harness.artifacts import FakeRegistry, Image, files_layer

ARCHITECTURE = "arm64" if os.uname().machine == "aarch64" else "amd64"


def image(app: bytes) -> Image:
    layers = [files_layer({"run.sh": b"#!/bin/sh\n"}), files_layer({"app": app})]
    return Image(layers, platform=("linux", ARCHITECTURE))


@pytest.fixture
def corral(data_dir: Path) -> Any:
    def run(*arguments: str, fails: bool = False) -> Any:
        done = CliRunner().invoke(artifacts_group, ["--data-dir", str(data_dir), *arguments])
        assert (done.exit_code != 0) == fails, done.output
        return json.loads(done.stdout) if "--json" in arguments and not fails else done.output

    return run


def test_pull_inspect_list_and_prune(registry: FakeRegistry, corral: Any) -> None:
    old, new = image(b"1"), image(b"2")
    uri = registry.push(old)
    seen = corral("inspect", uri, "--json")
    assert seen["digest"] == old.digest
    assert len(seen["pieces"]) == 2
    assert not registry.blob_requests(old.layer_digests()[0])
    pulled = corral("pull", uri, "--name", "demo", "--json")
    assert (pulled["digest"], pulled["current"]) == (old.digest, True)
    registry.push(new)
    corral("pull", uri, "--name", "demo")
    listed = corral("list", "--json")
    assert [(item["digest"], item["current"]) for item in listed] == [(new.digest, True), (old.digest, False)]
    assert f"* demo  {new.digest}" in corral("list")
    freed = corral("prune", "--keep", "1", "--json")
    assert freed["versions"] == [f"demo@{old.digest}"]
    assert len(corral("list", "--json")) == 1


def test_a_failure_says_what_stood_in_the_way_and_exits_non_zero(registry: FakeRegistry, corral: Any) -> None:
    assert "returned 404" in corral("pull", f"{registry.host}/none:latest", fails=True)
    for command in ("pull", "inspect"):
        assert "No gallery has a backend named nonsense. `corral" in corral(command, "nonsense", fails=True)
        assert "Did you mean llama-cpp" in corral(command, "llama-ccp", fails=True)
        assert "A model has that name: add --model." in corral(command, "smollm2", fails=True)
    assert "with --capability" in corral("pull", "cuda-vllm", fails=True)
    assert "cuda-vllm requires nvidia" in corral("inspect", "cuda-vllm", fails=True)
    assert "was requested" in corral("pull", registry.push(image(b"1")), "--digest", "sha256:" + "0" * 64, fails=True)


def test_a_data_directory_that_cannot_be_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "below", Path("/proc/none")):
        done = CliRunner().invoke(artifacts_group, ["--data-dir", str(place), "list"])
        assert done.exit_code == 1
        assert str(place.parent) in done.output
        assert "Traceback" not in done.output


def test_what_names_nothing_is_refused_at_once(corral: Any, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is empty" in corral("pull", "", fails=True)
    assert "not a digest" in corral("pull", "registry.lan/owner/name@sha256:abc", fails=True)
    data_dir.mkdir()
    for place in (data_dir, data_dir.parent):
        assert "the target of the copy" in corral("pull", str(place), fails=True)
    monkeypatch.chdir(data_dir)
    assert "the target of the copy" in corral("pull", ".", fails=True)


def test_a_log_shows_every_phase_and_no_bar(registry: FakeRegistry, corral: Any) -> None:
    told = corral("pull", registry.push(image(b"1")), "--name", "demo").splitlines()
    assert [line.split()[1] for line in told if line.startswith("demo: ")][:2] == ["resolving", "downloading"]
    assert told[-3] == "demo: ready"
    assert told[-1].startswith("installed in /")


def test_names_are_looked_up_in_the_shipped_gallery_and_in_given_ones(
    registry: FakeRegistry, corral: Any, tmp_path: Path
) -> None:
    uri = registry.push(image(b"1"))
    (tmp_path / "index.yaml").write_text(
        f"- {{name: mine, capabilities: {{default: c}}}}\n- {{name: c, uri: '{uri}'}}\n"
    )
    gallery = ("--gallery", f"local={tmp_path}", "--trust", "127.0.0.1")
    offered = corral(*gallery, "list", "--available", "--json")
    assert {"llama-cpp", "vllm", "sglang", "mine"} <= {item["name"] for item in offered}
    facts = corral(*gallery, "inspect", "mine", "--json")
    assert (facts["entry"], facts["reason"]) == ("c", "c is the build for default")
    assert corral(*gallery, "pull", "mine", "--json")["name"] == "c"


def test_weights_are_pulled_by_location(registry: FakeRegistry, corral: Any, data_dir: Path) -> None:
    registry.pages["/w.gguf"] = (b"weights", {})
    (placed,) = corral("pull", f"{registry.url}/w.gguf", "--model", "--json")
    weights = Path(placed["path"])
    (weights.parent / "theirs.bin").write_bytes(b"?")
    (weights.parent / ".hidden").write_bytes(b"?")
    listed = corral("list", "--json")
    assert [(item["kind"], item["name"], item["digest"]) for item in listed] == [
        ("weights", "theirs.bin", None),
        ("weights", "w.gguf", placed["digest"]),
    ]
    assert f"models/w.gguf  {placed['digest']}" in corral("list")
    assert Path(placed["path"]).read_bytes() == b"weights"


def test_damage_is_shown_with_its_remedy_and_repaired(registry: FakeRegistry, corral: Any) -> None:
    pulled = corral("pull", registry.push(image(b"1")), "--name", "demo", "--json")
    assert "2 files, all intact" in corral("verify")
    (Path(pulled["path"]) / "app").unlink()
    told = corral("verify", fails=True)
    assert "app: is missing" in told
    assert "corral artifacts verify demo --repair" in told
    assert "all intact" in corral("verify", "demo", "--repair")
    assert "is not installed here" in corral("verify", "nothing", fails=True)
    (Path(pulled["path"]) / "app").unlink()
    corral("pull", registry.push(image(b"1")), "--name", "demo", "--force")
    assert (Path(pulled["path"]) / "app").read_bytes() == b"1"


def test_a_key_is_asked_for_a_signature(registry: FakeRegistry, corral: Any, tmp_path: Path) -> None:
    key = tmp_path / "cosign.pub"
    key.write_text("no key")
    uri = registry.push(image(b"1"))
    for command in ("pull", "inspect"):
        assert "not a PEM public key" in corral(command, uri, "--key", str(key), fails=True)
        assert "does not exist" in corral(command, uri, "--key", f"{key}.none", fails=True)


def test_the_build_of_a_model_that_fits_is_pulled(registry: FakeRegistry, corral: Any, tmp_path: Path) -> None:
    names = {"m": "5GB", "m-large": "9GB", "m-vllm": "9GB"}
    (tmp_path / "index.yaml").write_text(
        "".join(
            f"- name: {name}\n  size: {size}\n  overrides: {{backend: {'vllm' if 'vllm' in name else 'llama-cpp'}}}\n"
            f"  files: [{{filename: {name}.gguf, uri: '{registry.url}/{name}.gguf'}}]\n"
            + ("  variants: [{model: m-large}, {model: m-vllm}, {model: absent}]\n" if name == "m" else "")
            for name, size in names.items()
        )
    )
    registry.pages |= {f"/{name}.gguf": (name.encode(), {}) for name in names}
    gallery = ("--model-gallery", f"local={tmp_path}", "--trust", "127.0.0.1")

    def pulled(*options: str) -> str:
        (placed,) = corral(*gallery, "pull", "m", "--model", "--json", *options)
        return Path(placed["path"]).name

    assert pulled("--memory", "6GB") == "m.gguf"
    assert pulled("--memory", "12GB") == "m-large.gguf"
    assert pulled("--memory", "12GB", "--capability", "nvidia-cuda-12") == "m-vllm.gguf"
    assert pulled("--memory", "1GB", "--variant", "m-large") == "m-large.gguf"
    assert "the best of 3 builds" in corral(*gallery, "pull", "m", "--model", "--memory", "12GB")
    assert "it has m, m-large, m-vllm" in corral(*gallery, "pull", "m", "--model", "--variant", "x", fails=True)
    seen = corral(*gallery, "inspect", "m", "--model", "--memory", "12GB", "--json")
    assert (seen["entry"], seen["gallery"], seen["backend"]) == ("m-large", "local", "llama-cpp")
    assert "the best of 3 builds" in seen["reason"]
    assert seen["files"] == [{"filename": "m-large.gguf", "uri": f"{registry.url}/m-large.gguf", "digest": None}]
    assert "m-vllm.gguf  -" in corral(*gallery, "inspect", "m", "--model", "--variant", "m-vllm")
    assert "No gallery has a model named none" in corral(*gallery, "inspect", "none", "--model", fails=True)
    assert "not a size" in corral(*gallery, "pull", "m", "--model", "--memory", "much", fails=True)
    assert "No gallery has a model named none" in corral(*gallery, "pull", "none", "--model", fails=True)


def test_what_a_worker_was_told_about_registries_holds_here_too(
    registry: FakeRegistry, corral: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.push(image(b"1"))
    monkeypatch.setenv("CORRAL_REGISTRY_MIRRORS", f"registry.invalid={registry.host}")
    assert corral("pull", "registry.invalid/backend:latest", "--name", "demo", "--json")["current"]
    monkeypatch.setenv("CORRAL_REGISTRY_MIRRORS", "registry.invalid=http://mirror")
    assert "CORRAL_REGISTRY_MIRRORS: " in corral("list", fails=True)
    monkeypatch.delenv("CORRAL_REGISTRY_MIRRORS")
    assert "'10.0.0.0/99' is neither a host nor a network" in corral("--trust", "10.0.0.0/99", "list", fails=True)


def test_weights_that_are_taken_for_a_backend_are_refused_before_they_are_fetched(
    registry: FakeRegistry, corral: Any
) -> None:
    registry.pages["/w.gguf"] = (b"weights", {})
    assert "pull --model" in corral("pull", f"{registry.url}/w.gguf", fails=True)
    assert {method for method, path, _ in registry.requests if path == "/w.gguf"} <= {"HEAD"}


def test_the_directory_of_corral_up_means_its_workers(registry: FakeRegistry, corral: Any, data_dir: Path) -> None:
    (data_dir / "keys").mkdir(parents=True)
    (data_dir / "keys" / "local.token").write_text("t")
    pulled = corral("pull", registry.push(image(b"1")), "--name", "demo", "--json")
    assert Path(pulled["path"]).is_relative_to(data_dir / "worker" / "backends")


def test_a_local_source_is_found_again_from_everywhere(
    corral: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.sh").write_text("#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    pulled = corral("pull", "mine", "--json")
    assert pulled["source"] == f"file://{tmp_path}/mine"
    with tarfile.open("mine.tar.gz", "w:gz") as archive:
        archive.add("mine", arcname=".")
    assert corral("pull", "mine.tar.gz", "--json")["path"].startswith(str(Path(pulled["path"]).parent))
    corral("pull", "./mine")
    monkeypatch.chdir("/")
    (Path(pulled["path"]) / "run.sh").unlink()
    assert "all intact" in corral("verify", "mine", "--repair")


def test_the_age_of_a_gallerys_copy_is_shown(registry: FakeRegistry, corral: Any) -> None:
    registry.pages["/index.yaml"] = (b"- {name: mine, uri: 'quay.io/owner/name:tag'}\n", {})
    gallery = ("--gallery", f"ours={registry.url}/index.yaml")
    assert "ours@mine" in corral(*gallery, "list", "--available")
    del registry.pages["/index.yaml"]
    told = corral(*gallery, "list", "--available")
    assert "gallery ours: " in told
    assert "showing a copy" in told
    assert "ours@mine" in told
