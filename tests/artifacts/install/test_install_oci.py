"""An image becomes a version on disk."""

import gzip
import json
import os
from collections.abc import Callable

import pytest
import zstandard

from corral.artifacts.cancel import CancelToken
from corral.artifacts.digests import Digest
from corral.artifacts.errors import BadManifest, DigestMismatch, NoPlatformFits, NotInstalled
from corral.artifacts.install.installer import Installer
from corral.artifacts.progress import Phase
from corral.core.transfer import TransferProgress
from harness.artifacts import FakeRegistry, Image, files_layer, install, leftovers, member, sha256, tar_of, tree_of

RUN = b"#!/bin/sh\nexit 0\n"


def demo(version: bytes = b"one", *extra: bytes) -> Image:
    return Image([files_layer({"run.sh": RUN, "lib/base": b"base"}), files_layer({"app": version}), *extra])


def test_an_image_becomes_a_version_with_a_pointer_and_full_metadata(
    registry: FakeRegistry, installer: Installer
) -> None:
    image = demo()
    uri = registry.push(image)
    version = install(installer, uri)
    assert version.current
    assert version.path.parent.joinpath("current").readlink().name == version.path.name
    assert tree_of(version.path) == {"run.sh": RUN, "lib/base": b"base", "app": b"one"}
    metadata = json.loads((version.path / "metadata.json").read_bytes())
    assert metadata["digest"] == image.digest
    assert metadata["uri"] == uri
    assert metadata["source"].endswith(f"@{image.digest}")
    assert metadata["verified_by"] == "oci digest"
    assert metadata["size_bytes"] == len(RUN) + len(b"base") + len(b"one")
    assert metadata["installed_at"].endswith("Z")
    assert version.manifest.protocol == "localai-grpc"


def test_run_sh_keeps_its_execute_bit_and_files_lose_their_write_bits(
    registry: FakeRegistry, installer: Installer
) -> None:
    version = install(installer, registry.push(demo()))
    assert os.stat(version.path / "run.sh").st_mode & 0o777 == 0o555
    assert os.stat(version.path / "app").st_mode & 0o777 == 0o444
    assert os.stat(version.path / "app").st_mtime == 1_700_000_000


def test_installing_the_same_again_fetches_nothing(registry: FakeRegistry, installer: Installer) -> None:
    uri = registry.push(demo())
    first = install(installer, uri)
    before = len(registry.requests)
    second = install(installer, uri)
    assert second.path == first.path
    assert [path for _, path, _ in registry.requests[before:]] == ["/v2/backend/manifests/latest"]
    install(installer, f"{uri.rpartition(':')[0]}@{first.digest}")
    assert len(registry.requests) == before + 1, "a pinned image needs no registry"


def test_the_same_bytes_under_another_version_and_address_are_known_as_that(
    registry: FakeRegistry, installer: Installer
) -> None:
    """Else an upgrade that brings nothing new would be offered for ever."""
    first = install(installer, registry.push(demo()), version="1.0")
    moved = registry.push(demo(), tag="moved")
    second = install(installer, moved, version="2.0")
    assert second.path == first.path
    assert (second.metadata.version, second.metadata.uri) == ("2.0", moved)
    assert install(installer, moved).metadata.version == "2.0", "who tells none means the same"


def test_an_upgrade_moves_only_the_changed_layer_and_shares_the_rest(
    registry: FakeRegistry, installer: Installer
) -> None:
    old, new = demo(b"one"), demo(b"two")
    first = install(installer, registry.push(old))
    second = install(installer, registry.push(new))
    shared, changed = new.layer_digests()
    assert registry.blob_requests(shared) == [""]
    assert registry.blob_requests(changed) == [""]
    assert tree_of(first.path)["app"] == b"one"
    assert tree_of(second.path)["app"] == b"two"
    assert os.path.samefile(first.path / "lib/base", second.path / "lib/base")


def test_rollback_is_a_pointer_switch(registry: FakeRegistry, installer: Installer) -> None:
    first = install(installer, registry.push(demo(b"one")))
    second = install(installer, registry.push(demo(b"two")))
    requests = len(registry.requests)
    assert installer.versions.rollback("demo", None).path == first.path
    assert installer.versions.current("demo").path == first.path
    assert installer.versions.rollback("demo", Digest(second.digest)).path == second.path
    assert len(registry.requests) == requests


def test_rollback_without_an_earlier_version_says_so(registry: FakeRegistry, installer: Installer) -> None:
    install(installer, registry.push(demo()))
    with pytest.raises(NotInstalled, match="no earlier version"):
        installer.versions.rollback("demo", None)


def test_the_platform_is_checked_before_a_layer_is_fetched(registry: FakeRegistry, installer: Installer) -> None:
    arm = Image([files_layer({"run.sh": RUN})], platform=("linux", "arm64"))
    with pytest.raises(NoPlatformFits, match="linux/arm64"):
        install(installer, registry.push_index([arm]))
    with pytest.raises(NoPlatformFits, match="built for linux/arm64"):
        install(installer, registry.push(arm, tag="plain"))
    assert registry.blob_requests(arm.layer_digests()[0]) == []


def test_the_index_entry_of_this_platform_is_taken(registry: FakeRegistry, installer: Installer) -> None:
    arm = Image([files_layer({"run.sh": RUN, "which": b"arm"})], platform=("linux", "arm64"))
    amd = Image([files_layer({"run.sh": RUN, "which": b"amd"})])
    version = install(installer, registry.push_index([arm, amd]))
    assert tree_of(version.path)["which"] == b"amd"


def test_zstd_layers_are_read(registry: FakeRegistry, installer: Installer) -> None:
    image = demo()
    image.compress = zstandard.ZstdCompressor().compress
    image.media_type = "application/vnd.oci.image.layer.v1.tar+zstd"
    assert tree_of(install(installer, registry.push(image)).path)["app"] == b"one"


def test_gzip_layers_of_several_members_are_read(registry: FakeRegistry, installer: Installer) -> None:
    image = demo()
    image.compress = lambda raw: b"".join(gzip.compress(raw[at : at + 700]) for at in range(0, len(raw), 700))
    assert tree_of(install(installer, registry.push(image)).path)["app"] == b"one"


def test_whiteouts_hide_what_lower_layers_have_and_nothing_of_their_own(
    registry: FakeRegistry, installer: Installer
) -> None:
    lower = files_layer({"run.sh": RUN, "gone": b"x", "dir/a": b"a", "dir/b": b"b", "kept/x": b"x"})
    upper = tar_of(
        member(".wh.gone"),
        member("dir/.wh..wh..opq"),
        member("dir/new", b"new"),
        member("kept/.wh.x"),
        member("kept/x", b"y"),
    )
    version = install(installer, registry.push(Image([lower, upper])))
    assert tree_of(version.path) == {"run.sh": RUN, "dir/new": b"new", "kept/x": b"y"}


def test_a_directory_replaces_a_file_of_a_lower_layer_and_a_file_a_directory(
    registry: FakeRegistry, installer: Installer
) -> None:
    lower = files_layer({"run.sh": RUN, "a": b"file", "b/inner": b"x"})
    upper = tar_of(member("a", type=b"5", mode=0o755), member("a/inner", b"y"), member("b", b"file"))
    version = install(installer, registry.push(Image([lower, upper])))
    assert tree_of(version.path) == {"run.sh": RUN, "a/inner": b"y", "b": b"file"}


def test_hard_links_within_and_across_layers_are_kept(registry: FakeRegistry, installer: Installer) -> None:
    lower = tar_of(member("run.sh", RUN, mode=0o755), member("one", b"1"), member("same", type=b"1", linkname="one"))
    upper = tar_of(member("below", type=b"1", linkname="run.sh"))
    version = install(installer, registry.push(Image([lower, upper])))
    assert os.path.samefile(version.path / "one", version.path / "same")
    assert (version.path / "below").read_bytes() == RUN


def test_a_layer_changed_on_disk_is_noticed_and_unpacked_again(registry: FakeRegistry, installer: Installer) -> None:
    first = install(installer, registry.push(demo(b"one")))
    victim = first.path / "lib/base"
    victim.chmod(0o644)
    victim.write_bytes(b"evil")
    second = install(installer, registry.push(demo(b"two")))
    assert tree_of(second.path)["lib/base"] == b"base"


def test_a_stored_blob_that_rotted_is_fetched_again(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    installer = make_installer()
    image = demo()
    uri = registry.push(image)
    install(installer, uri)
    for key in installer.layers.stored_keys():
        installer.layers.remove(key)
    installer.versions.remove("demo", lambda _: False)
    blob = installer.blobs.path(image.layer_digests()[0])
    blob.chmod(0o644)
    blob.write_bytes(b"\0" * blob.stat().st_size)
    assert tree_of(install(installer, uri).path)["lib/base"] == b"base"


def test_a_pin_refuses_what_the_tag_points_at_now(registry: FakeRegistry, installer: Installer) -> None:
    uri = registry.push(demo(b"one"))
    pinned = sha256(b"something else")
    with pytest.raises(DigestMismatch, match="was requested"):
        install(installer, uri, digest=pinned)
    assert leftovers(installer.settings.data_dir) == []


def test_a_tag_that_moves_after_it_was_resolved_changes_nothing(registry: FakeRegistry, installer: Installer) -> None:
    old = demo(b"one")
    uri = registry.push(old)
    moved: list[bool] = []

    def move(exchange: object) -> None:
        if any("/blobs/" in path for _, path, _ in registry.requests) and not moved:
            moved.append(True)
            registry.push(demo(b"two"))

    registry.hooks.append(move)
    version = install(installer, uri)
    assert moved
    assert version.digest == old.digest
    assert tree_of(version.path)["app"] == b"one"


def test_an_image_that_nothing_could_start_is_refused_and_leaves_nothing(
    registry: FakeRegistry, installer: Installer
) -> None:
    with pytest.raises(BadManifest, match=r"neither a run\.sh nor a Corral manifest"):
        install(installer, registry.push(Image([files_layer({"readme": b"hi"})])))
    assert installer.versions.list() == ()


def test_progress_is_one_for_all_layers_and_never_goes_back(registry: FakeRegistry, installer: Installer) -> None:
    image = Image([files_layer({"run.sh": RUN}), *(files_layer({f"f{i}": os.urandom(400_000)}) for i in range(4))])
    uri = registry.push(image)
    seen: list[TransferProgress] = []
    install(installer, uri, on_progress=seen.append)
    total = sum(len(registry.blobs[digest]) for digest in image.layer_digests())
    percentages = [item.percentage for item in seen]
    assert percentages == sorted(percentages)
    phases = [Phase[item.phase.upper()] for item in seen]
    assert phases == sorted(phases)
    assert {item.bytes_total for item in seen if item.phase != Phase.RESOLVING.label} <= {total, None}
    assert seen[-1].phase == Phase.READY.label
    assert (seen[-1].percentage, seen[-1].bytes_done) == (100.0, total)
    assert all(item.percentage < 100 for item in seen[:-1])


def test_cached_layers_count_as_done_from_the_start(registry: FakeRegistry, installer: Installer) -> None:
    big = files_layer({"run.sh": RUN, "big": os.urandom(900_000)})
    install(installer, registry.push(Image([big, files_layer({"app": b"1"})])))
    seen: list[TransferProgress] = []
    install(installer, registry.push(Image([big, files_layer({"app": b"2"})])), on_progress=seen.append)
    downloading = [item for item in seen if item.phase == Phase.DOWNLOADING.label and item.bytes_done]
    assert downloading[0].percentage > 90


def test_parallel_installs_of_one_image_fetch_each_layer_once(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    image = demo()
    uri = registry.push(image)
    installer = make_installer()
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda name: install(installer, uri, name=name).path, ["a", "b", "c", "a"]))
    assert len(set(paths)) == 3
    for digest in image.layer_digests():
        assert registry.blob_requests(digest) == [""]


def test_a_cancelled_token_stops_before_anything_is_written(registry: FakeRegistry, installer: Installer) -> None:
    from corral.artifacts.errors import Cancelled

    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        install(installer, registry.push(demo()), cancel=token)
    assert leftovers(installer.settings.data_dir) == []
