"""Versions on disk: listing, rollback, garbage, leftovers, and directories of LocalAI's."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.versions import directory_name
from corral.artifacts.digests import Digest
from corral.artifacts.disk.in_use import paths_in_use
from corral.artifacts.disk.locks import held
from corral.artifacts.errors import BadReference, NotInstalled, SourceRejected, VersionInUse
from corral.artifacts.install.gc import collect_garbage
from corral.artifacts.install.installer import Installer
from harness.artifacts import FakeRegistry, Image, files_layer, install

RUN = b"#!/bin/sh\n"


def push(registry: FakeRegistry, *versions: bytes) -> list[str]:
    base = files_layer({"run.sh": RUN, "base": b"b"})
    return [registry.push(Image([base, files_layer({"app": v})]), tag=v.decode()) for v in versions]


def test_garbage_collection_keeps_the_last_n_and_their_layers(registry: FakeRegistry, installer: Installer) -> None:
    paths = [install(installer, uri).path for uri in push(registry, b"one", b"two", b"three")]
    assert len(installer.layers.stored_keys()) == 4
    freed = collect_garbage(installer, 2, (), CancelToken())
    assert [path.exists() for path in paths] == [False, True, True]
    assert (freed.layers, freed.blobs) == (1, 3)  # with manifest and config
    assert len(freed.versions) == 1
    assert installer.versions.current("demo").path == paths[2]


@pytest.mark.processes
def test_what_a_process_runs_from_stays(registry: FakeRegistry, installer: Installer) -> None:
    paths = [install(installer, uri).path for uri in push(registry, b"one", b"two", b"three")]
    command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    process = subprocess.Popen(command, cwd=paths[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        assert paths[0].resolve() in paths_in_use(installer.settings.backends_dir)
        collect_garbage(installer, 1, (), CancelToken())
        assert [path.exists() for path in paths] == [True, False, True]
        with pytest.raises(VersionInUse):
            installer.versions.remove("demo", lambda _: bool(paths_in_use(installer.settings.backends_dir)))
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
    collect_garbage(installer, 1, (), CancelToken())
    assert [path.exists() for path in paths] == [False, False, True]


def test_a_version_the_caller_holds_stays(registry: FakeRegistry, installer: Installer) -> None:
    paths = [install(installer, uri).path for uri in push(registry, b"one", b"two")]
    collect_garbage(installer, 1, (paths[0],), CancelToken())
    assert paths[0].exists()


def test_removal_takes_all_versions_and_garbage_collection_the_rest(
    registry: FakeRegistry, installer: Installer
) -> None:
    install(installer, push(registry, b"one")[0])
    installer.versions.remove("demo", lambda _: False)
    collect_garbage(installer, 1, (), CancelToken())
    assert installer.versions.list() == ()
    assert installer.layers.stored_keys() == []
    assert list(installer.blobs.digests()) == []
    with pytest.raises(NotInstalled):
        installer.versions.current("demo")


def test_what_a_failed_install_brought_is_spared_and_what_a_removed_version_had_is_not(
    registry: FakeRegistry, installer: Installer
) -> None:
    uris = push(registry, b"one", b"two")
    for uri in uris:
        install(installer, uri)
    unfinished = registry.push(Image([files_layer({"part": b"p"}), files_layer({"lost": b"l"})]), tag="lost")
    lost = list(registry.blobs)[-1]
    del registry.blobs[lost]
    with pytest.raises(SourceRejected):
        install(installer, unfinished, name="other")
    assert len(installer.layers.stored_keys()) == 4
    freed = collect_garbage(installer, 1, (), CancelToken(), spare_s=60)
    assert (len(freed.versions), freed.layers, freed.blobs) == (1, 1, 3)
    assert len(installer.layers.stored_keys()) == 3
    assert collect_garbage(installer, 1, (), CancelToken()).layers == 1


def test_versions_that_did_not_work_do_not_push_out_the_one_that_did(
    registry: FakeRegistry, installer: Installer
) -> None:
    good, *bad, new = push(registry, b"good", b"bad", b"worse", b"new")
    working = install(installer, good)
    for uri in bad:
        install(installer, uri)
        installer.versions.make_current("demo", Digest(working.digest))
    current = install(installer, new)
    collect_garbage(installer, 2, (), CancelToken())
    (backend,) = installer.versions.list()
    assert {version.digest for version in backend.versions} == {working.digest, current.digest}


def test_a_version_that_somebody_goes_back_to_meanwhile_is_not_collected(
    registry: FakeRegistry, installer: Installer
) -> None:
    old, new = [install(installer, uri) for uri in push(registry, b"one", b"two")]
    chosen = threading.Event()

    class InUse(tuple[Path, ...]):
        def __iter__(self) -> Iterator[Path]:
            chosen.set()  # asked once what is to go has been found
            return super().__iter__()

    with ThreadPoolExecutor(1) as pool:
        with held(installer.locks_dir, "backend-demo", CancelToken()):
            collecting = pool.submit(collect_garbage, installer, 1, InUse(), CancelToken())
            assert chosen.wait(60)
            installer.versions.rollback("demo", None)
        assert collecting.result(60).versions == ()
    assert installer.versions.current("demo").path == old.path
    assert new.path.exists()


def test_a_version_that_cannot_be_read_hides_no_other_and_an_install_replaces_it(
    registry: FakeRegistry, installer: Installer
) -> None:
    uris = push(registry, b"one", b"two")
    old, new = [install(installer, uri) for uri in uris]
    for damage in (b"", b'{"name": 1}'):
        (new.path / "metadata.json").write_bytes(damage)
        (backend,) = installer.versions.list()
        assert [version.digest for version in backend.versions] == [old.digest]
        assert backend.current is None
        assert new.path.name[:12] in backend.problem
        with pytest.raises(NotInstalled):
            installer.versions.make_current("demo", Digest(new.digest))
        assert install(installer, uris[1]).digest == new.digest
        assert installer.versions.current("demo").digest == new.digest
        assert installer.versions.list()[0].problem == ""


def test_directories_made_by_localai_are_recognised(installer: Installer) -> None:
    root = installer.settings.backends_dir
    concrete = root / "cpu-llama-cpp"
    concrete.mkdir()
    (concrete / "run.sh").write_text("#!/bin/sh\n")
    facts = {"name": "cpu-llama-cpp", "alias": "llama-cpp", "digest": "sha256:" + "4" * 64, "uri": "quay.io/x:y"}
    (concrete / "metadata.json").write_text(json.dumps(facts))
    meta = root / "llama-cpp"
    meta.mkdir()
    (meta / "metadata.json").write_text(json.dumps({"name": "llama-cpp", "meta_backend_for": "cpu-llama-cpp"}))
    (root / "bare").mkdir()
    (root / "bare" / "run.sh").write_text("")
    (root / "broken").mkdir()
    (root / "broken" / "run.sh").write_text("")
    (root / "broken" / "metadata.json").write_text("{")
    found = {backend.name: backend for backend in installer.versions.list()}
    assert found["cpu-llama-cpp"].versions[0].made_by == "localai"
    assert found["cpu-llama-cpp"].versions[0].digest == facts["digest"]
    assert found["llama-cpp"].versions[0].path == concrete
    assert found["bare"].versions[0].manifest.start[0] == "{dir}/run.sh"
    assert found["broken"].problem  # one unreadable directory does not hide the others
    assert collect_garbage(installer, 1, (), CancelToken()).versions == ()
    assert concrete.exists()


def test_leftovers_of_both_programs_are_swept(installer: Installer) -> None:
    root = installer.settings.backends_dir
    for name in ("a.install-tmp", "b.upgrade-tmp", "c", "c.backup", "d.install-backup"):
        (root / name).mkdir()
        (root / name / "run.sh").write_text(name)
    (root / "e").mkdir()
    os.symlink("x", root / "e" / ".current.123")
    installer.versions.sweep()
    assert sorted(path.name for path in root.iterdir()) == ["c", "d", "e"]
    assert (root / "c/run.sh").read_text() == "c"
    assert (root / "d/run.sh").read_text() == "d.install-backup"
    assert list((root / "e").iterdir()) == []


def test_a_dead_processs_corner_is_swept_and_a_living_ones_is_not(make_installer: Callable[..., Installer]) -> None:
    living, other = make_installer(), make_installer()
    work = living.staging.new_path()
    work.mkdir()
    dead = other.settings.data_dir / "staging" / "of-a-killed-process"
    dead.mkdir()
    (dead / "half").write_text("x")
    assert other.staging.sweep() == 1
    assert work.exists()
    assert not dead.exists()


@pytest.mark.parametrize("name", ["../x", "..", ".hidden", "current", "a\0b", "a b", "", "x" * 200, "-x", "a/../b"])
def test_a_name_that_would_leave_its_directory_is_refused(name: str) -> None:
    with pytest.raises(BadReference):
        directory_name(name)


def test_a_slash_in_a_name_becomes_two_underscores() -> None:
    assert directory_name("owner/name") == "owner__name"
    assert directory_name("gallery@name") == "gallery@name"


def test_a_changed_manifest_is_recorded_without_fetching(
    registry: FakeRegistry, installer: Installer, tmp_path: Path
) -> None:
    from corral.artifacts.content.manifest import Manifest

    (uri,) = push(registry, b"one")
    install(installer, uri)
    changed = Manifest(protocol="openai", start=("{dir}/run.sh",))
    assert install(installer, uri, manifest=changed).manifest == changed
