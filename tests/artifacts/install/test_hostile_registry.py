"""Registries that stall, lie, break off and redirect (F-37 to F-39, S-19 to S-21, S-28, S-29)."""

import base64
import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import (
    ArtifactError,
    Cancelled,
    DigestMismatch,
    PolicyRefused,
    SourceRejected,
    SourceUnavailable,
    Stalled,
    UnsafeArchive,
)
from corral.artifacts.install.installer import Installer
from corral.artifacts.install.weights import install_files
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.requests import ModelFile
from corral.artifacts.settings import NetworkPolicy, Peer, RegistryLogin
from corral.system import SystemClock, SystemIds
from harness.artifacts import (
    Exchange,
    FakeRegistry,
    Image,
    Reply,
    files_layer,
    install,
    leftovers,
    member,
    once,
    sha256,
    tar_of,
    times,
    tree_of,
    wait_until,
)
from harness.machine_speed import promised
from harness.site import OneSite, leader_with, shared

NOISE = os.urandom(1_200_000)


def big() -> Image:
    return Image([files_layer({"run.sh": b"#!/bin/sh\n", "noise": NOISE})])


def on_blob(image: Image, hook: Callable[[Exchange, bytes], None]) -> Callable[[Exchange], None]:
    def wrapped(exchange: Exchange) -> None:
        digest = image.layer_digests()[0]
        if exchange.path.endswith(digest) and exchange.command == "GET":
            hook(exchange, image.blobs[digest])

    return wrapped


def break_off(exchange: Exchange, blob: bytes) -> None:
    """Sends less than it promised and hangs up."""
    exchange.send_response(200)
    exchange.send_header("Content-Length", str(len(blob)))
    exchange.end_headers()
    exchange.wfile.write(blob[:400_000])
    exchange.wfile.flush()
    exchange.connection.shutdown(socket.SHUT_RDWR)
    raise BrokenPipeError


def test_a_truncated_download_is_continued_by_range(registry: FakeRegistry, installer: Installer) -> None:
    image = big()
    uri = registry.push(image)
    registry.hooks.append(once(on_blob(image, break_off)))
    version = install(installer, uri)
    assert tree_of(version.path)["noise"] == NOISE
    first, second = registry.blob_requests(image.layer_digests()[0])
    assert first == ""
    assert 0 < int(second.removeprefix("bytes=").rstrip("-")) <= 400_000


def test_a_server_without_ranges_still_finishes(registry: FakeRegistry, installer: Installer) -> None:
    image = big()
    uri = registry.push(image)

    def whole(exchange: Exchange, blob: bytes) -> None:
        raise Reply(200, blob)

    registry.hooks += [once(on_blob(image, break_off)), on_blob(image, whole)]
    assert tree_of(install(installer, uri).path)["noise"] == NOISE


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(status: int, registry: FakeRegistry, installer: Installer) -> None:
    uri = registry.push(big())

    def busy(exchange: Exchange) -> None:
        raise Reply(status, b"", {"Retry-After": "0.4"})

    registry.hooks.append(once(busy))
    started = time.monotonic()
    install(installer, uri)
    assert time.monotonic() - started >= 0.4


def test_a_retry_after_beyond_patience_fails_and_names_the_registry(
    registry: FakeRegistry, installer: Installer
) -> None:
    uri = registry.push(big())

    def busy(exchange: Exchange) -> None:
        raise Reply(429, b"", {"Retry-After": "86400"})

    registry.hooks.append(busy)
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1 returned 429") as caught:
        install(installer, uri)
    assert caught.value.retry_after_s == 86400
    assert len(registry.requests) == 1


def test_no_headers_is_noticed_and_bounded(registry: FakeRegistry, installer: Installer) -> None:
    uri = registry.push(big())
    released = threading.Event()

    def silent(exchange: Exchange) -> None:
        released.wait(120)
        raise Reply(503)

    registry.hooks.append(silent)
    try:
        with promised("to notice it", within_s=8), pytest.raises(Stalled, match="no complete response headers"):
            install(installer, uri)
    finally:
        released.set()


def test_dripping_headers_do_not_buy_time(registry: FakeRegistry, installer: Installer) -> None:
    uri = registry.push(big())
    released = threading.Event()

    def drip(exchange: Exchange) -> None:
        exchange.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(200):
            if released.wait(0.05):
                break
            exchange.wfile.write(b"X-Drip-%d: y\r\n" % number)
        raise BrokenPipeError

    registry.hooks.append(drip)
    try:
        with promised("to notice it", within_s=8), pytest.raises(SourceUnavailable):
            install(installer, uri)
    finally:
        released.set()


def test_a_stall_in_the_body_is_noticed_and_the_partial_is_kept(registry: FakeRegistry, installer: Installer) -> None:
    image = big()
    uri = registry.push(image)
    released = threading.Event()

    def stall(exchange: Exchange, blob: bytes) -> None:
        exchange.send_response(200)
        exchange.send_header("Content-Length", str(len(blob)))
        exchange.end_headers()
        exchange.wfile.write(blob[:300_000])
        released.wait(120)
        raise BrokenPipeError

    def resumed_stall(exchange: Exchange) -> None:
        if exchange.headers.get("Range"):
            released.wait(120)
            raise Reply(503)

    registry.hooks += [resumed_stall, on_blob(image, stall)]
    try:
        with pytest.raises(Stalled):
            install(installer, uri)
    finally:
        released.set()
    (partial,) = (installer.settings.data_dir / "blobs/partial").iterdir()
    assert partial.stat().st_size == 300_000
    registry.hooks.clear()
    registry.requests.clear()
    install(installer, uri)
    assert registry.blob_requests(image.layer_digests()[0]) == ["bytes=300000-"]


def corrupt(exchange: Exchange, blob: bytes) -> None:
    raise Reply(200, blob[:600_000] + b"\0" * 100 + blob[600_100:])


def test_wrong_bytes_once_are_fetched_again(registry: FakeRegistry, installer: Installer) -> None:
    image = big()
    uri = registry.push(image)
    registry.hooks.append(once(on_blob(image, corrupt)))
    assert tree_of(install(installer, uri).path)["noise"] == NOISE


def test_wrong_bytes_twice_fail_and_are_never_promoted(registry: FakeRegistry, installer: Installer) -> None:
    image = big()
    uri = registry.push(image)
    registry.hooks.append(on_blob(image, corrupt))
    with pytest.raises(DigestMismatch):
        install(installer, uri)
    assert leftovers(installer.settings.data_dir) == []


def test_a_peer_with_wrong_bytes_is_passed_over(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    from corral.artifacts.settings import Peer

    image = big()
    uri = registry.push(image)
    digest = image.layer_digests()[0]
    registry.pages[f"/artifacts/blobs/{digest}"] = (bytes(len(image.blobs[digest])), {})
    installer = make_installer(peers=(Peer(base_url=registry.url, token="t"),))
    assert tree_of(install(installer, uri).path)["noise"] == NOISE


def test_a_peer_that_has_the_blob_spares_the_registry(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    from corral.artifacts.settings import Peer

    image = big()
    uri = registry.push(image)
    digest = image.layer_digests()[0]
    registry.pages[f"/artifacts/blobs/{digest}"] = (image.blobs[digest], {})
    install(make_installer(peers=(Peer(base_url=registry.url, token="secret"),)), uri)
    asked = [
        (path, headers) for method, path, headers in registry.requests if path.endswith(digest) and method == "GET"
    ]
    assert [path for path, _ in asked] == [f"/artifacts/blobs/{digest}"]
    assert asked[0][1]["Authorization"] == "Bearer secret"


def edited(**changes: Any) -> Image:
    return Image([files_layer({"run.sh": b"#!/bin/sh\n"})], **changes)


def with_layer(**facts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["layers"][0].update(facts)


BENT = {
    "a-layer-larger-than-promised": (edited(edit_manifest=with_layer(size=10)), DigestMismatch),
    "a-layer-smaller-than-promised": (edited(edit_manifest=with_layer(size=1 << 20)), ArtifactError),
    "a-wrong-layer-digest": (edited(edit_manifest=with_layer(digest=sha256(b"other"))), SourceRejected),
    "a-digest-of-no-known-kind": (edited(edit_manifest=with_layer(digest="md5:abcd")), ArtifactError),
    "a-digest-that-is-a-path": (edited(edit_manifest=with_layer(digest="sha256:../../../etc")), ArtifactError),
    "an-odd-layer-type": (edited(edit_manifest=with_layer(mediaType="application/x-evil")), UnsafeArchive),
    "a-foreign-layer": (
        edited(edit_manifest=with_layer(mediaType="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")),
        UnsafeArchive,
    ),
    "a-wrong-diff-id": (
        edited(edit_config=lambda config: config["rootfs"].update(diff_ids=[sha256(b"other")])),
        UnsafeArchive,
    ),
    "too-few-diff-ids": (edited(edit_config=lambda config: config["rootfs"].update(diff_ids=[])), DigestMismatch),
    "a-wrong-config-digest": (
        edited(edit_manifest=lambda manifest: manifest["config"].update(digest=sha256(b"no"))),
        ArtifactError,
    ),
    "a-thousand-layers": (
        edited(edit_manifest=lambda manifest: manifest.update(layers=manifest["layers"] * 1000)),
        UnsafeArchive,
    ),
    "a-negative-size": (edited(edit_manifest=with_layer(size=-5)), ArtifactError),
}


@pytest.mark.parametrize(("image", "error"), [pytest.param(*value, id=name) for name, value in BENT.items()])
def test_a_bent_manifest_promotes_nothing(
    image: Image, error: type[Exception], registry: FakeRegistry, installer: Installer
) -> None:
    with pytest.raises(error):
        install(installer, registry.push(image))
    assert installer.versions.list() == ()
    assert list((installer.settings.data_dir / "blobs/sha256").iterdir()) == []


def test_layer_addresses_inside_a_manifest_are_ignored(registry: FakeRegistry, installer: Installer) -> None:
    image = edited(edit_manifest=with_layer(urls=[f"{registry.url}/elsewhere"]))
    install(installer, registry.push(image))
    assert not any("elsewhere" in path for _, path, _ in registry.requests)


def test_a_manifest_that_does_not_match_its_digest_is_refused(registry: FakeRegistry, installer: Installer) -> None:
    image = big()
    registry.push(image)
    registry.manifests["backend", image.digest] = (json.dumps({"other": 1}).encode(), "")
    with pytest.raises(DigestMismatch):
        install(installer, f"{registry.host}/backend@{image.digest}")


def test_a_huge_manifest_is_not_read(registry: FakeRegistry, installer: Installer) -> None:
    registry.manifests["backend", "latest"] = (b"[" * (5 << 20), "")
    with pytest.raises(ArtifactError):
        install(installer, f"{registry.host}/backend:latest")


def test_an_index_nested_in_itself_ends(registry: FakeRegistry, installer: Installer) -> None:
    inner = sha256(b"never reached")
    for _ in range(6):
        entry = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": inner, "size": 1}
        index = json.dumps({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}).encode()
        inner = sha256(index)
        registry.manifests["backend", inner] = (index, "")
    with pytest.raises(UnsafeArchive, match="nested"):
        install(installer, f"{registry.host}/backend@{inner}")


def test_a_redirect_to_a_private_address_is_not_followed(registry: FakeRegistry, installer: Installer) -> None:
    image = big()
    uri = registry.push(image)

    def away(exchange: Exchange, blob: bytes) -> None:
        raise Reply(307, b"", {"Location": "http://169.254.169.254/latest/meta-data"})

    registry.hooks.append(on_blob(image, away))
    with pytest.raises(PolicyRefused):
        install(installer, uri)
    assert leftovers(installer.settings.data_dir) == []


def test_a_redirect_to_another_host_gets_no_credentials(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    image = big()
    uri = registry.push(image)
    with FakeRegistry() as storage:
        digest = image.layer_digests()[0]
        storage.pages["/blob"] = (image.blobs[digest], {})

        def away(exchange: Exchange, blob: bytes) -> None:
            raise Reply(307, b"", {"Location": f"{storage.url}/blob"})

        def log_in(exchange: Exchange) -> None:
            if "Authorization" not in exchange.headers:
                raise Reply(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})

        registry.hooks += [log_in, on_blob(image, away)]
        login = RegistryLogin(username="me", password="canary-password")
        install(make_installer(registry_logins={registry.host: login}), uri)
        assert any("Authorization" in headers for _, _, headers in registry.requests)
        assert storage.requests
        assert not any("Authorization" in headers for _, _, headers in storage.requests)


def bearer(realm: str) -> Callable[[Exchange], None]:
    def demand(exchange: Exchange) -> None:
        if exchange.path.startswith("/v2/") and exchange.headers.get("Authorization") != "Bearer good":
            raise Reply(401, b"", {"WWW-Authenticate": f'Bearer realm="{realm}",service="s"'})

    return demand


@pytest.mark.parametrize(
    "login", [None, RegistryLogin(username="me", password="pw")], ids=["anonymous", "with-a-login"]
)
def test_token_auth_works_and_renews_an_expired_token(
    login: RegistryLogin | None, registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    registry.pages["/token"] = (b'{"token":"good"}', {})
    registry.hooks.append(bearer(f"{registry.url}/token"))
    uri = registry.push(big())
    installer = make_installer(registry_logins={registry.host: login} if login else {})
    install(installer, uri)
    tokens = [headers for _, path, headers in registry.requests if path.startswith("/token")]
    assert ("Authorization" in tokens[0]) == (login is not None)
    known = installer.resolver.registries.registry(registry.host)
    known._tokens["backend"] = "Bearer stale"
    install(installer, registry.push(Image([files_layer({"run.sh": b"2"})])))


def test_a_foreign_realm_gets_no_password(registry: FakeRegistry, make_installer: Callable[..., Installer]) -> None:
    with FakeRegistry() as thief:
        thief.pages["/token"] = (b'{"token":"good"}', {})
        registry.hooks.append(bearer(f"{thief.url}/token"))
        uri = registry.push(big())
        login = RegistryLogin(username="me", password="canary-password")
        install(make_installer(registry_logins={registry.host: login}), uri)
        assert thief.requests
        assert not any("Authorization" in headers for _, _, headers in thief.requests)


def test_a_registry_mirror_is_asked_first_and_the_registry_stands_in(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    image = big()
    uri = registry.push(image)
    with FakeRegistry() as mirror:
        mirror.push(image)
        mirror.blobs.pop(image.layer_digests()[0])
        installer = make_installer(registry_mirrors={registry.host: (mirror.host,)})
        assert tree_of(install(installer, uri).path)["noise"] == NOISE
        assert mirror.requests
        assert len(registry.blob_requests(image.layer_digests()[0])) == 1


def flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize("with_site", [False, True])
def test_a_mirror_with_wrong_bytes_is_passed_over(
    registry: FakeRegistry, make_installer: Callable[..., Installer], with_site: bool
) -> None:
    image = big()
    uri = registry.push(image)
    with FakeRegistry() as mirror:
        mirror.push(image)
        layer = image.layer_digests()[0]
        mirror.blobs[layer] = flipped(image.blobs[layer])
        installer = make_installer(registry_mirrors={registry.host: (mirror.host,)})
        site = OneSite()
        assert tree_of(install(shared(installer, site) if with_site else installer, uri).path)["noise"] == NOISE
        if with_site:
            assert "failed" not in site.reports
            assert site.reports.count("released") == 1, "nothing is offered that is not verified"
            assert site.reports[-1] == "done"


@pytest.mark.parametrize(
    "forged",
    [
        lambda layer: flipped(layer),
        lambda layer: gzip.compress(bytes(300_000_000), mtime=0)[: len(layer)].ljust(len(layer), b"x"),
        lambda layer: gzip.compress(tar_of(member("x", b"")), mtime=0).ljust(len(layer), b"x"),
    ],
    ids=["wrong bytes", "a bomb", "another archive"],
)
def test_a_node_that_sends_wrong_bytes_cannot_fail_an_install(
    registry: FakeRegistry, installer: Installer, forged: Callable[[bytes], bytes]
) -> None:
    image = big()
    uri = registry.push(image)
    layer = image.layer_digests()[0]
    with FakeRegistry() as node:
        site = OneSite(leader_with(node, image, forged(image.blobs[layer])))
        assert tree_of(install(shared(installer, site), uri).path)["noise"] == NOISE
        assert site.avoided == {"leader": "wrong bytes"}
        assert registry.blob_requests(layer) == [""], "once, whole"


def test_a_node_that_sends_without_end_cannot_fill_the_disk(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    """No size of these bytes is known."""
    weights = os.urandom(300_000)
    registry.pages["/w.gguf"] = (weights, {})

    def no_head(exchange: Exchange) -> None:
        if exchange.command == "HEAD":
            raise Reply(405)

    registry.hooks.append(no_head)
    installer = make_installer()
    free = installer.reservations.free_bytes()
    installer.blobs._keep_free_bytes = free - (20 << 20)  # room for 20 MiB
    with FakeRegistry() as node:

        def flood(exchange: Exchange) -> None:
            exchange.send_response(206)
            exchange.send_header("Content-Range", "bytes 0-99999999999/*")
            exchange.end_headers()
            while True:
                exchange.wfile.write(bytes(1 << 20))

        node.hooks.append(flood)
        site = OneSite(Peer(base_url=node.url))
        file = ModelFile(
            filename="w.gguf", uri=f"{registry.url}/w.gguf", sha256=sha256(weights).removeprefix("sha256:")
        )
        target = installer.settings.models_dir
        meter = ProgressMeter(None, SystemClock())
        (placed,) = install_files(shared(installer, site), [file], target, SystemIds(), CancelToken(), meter)
        assert placed.path.read_bytes() == weights
        assert site.avoided == {"leader": "wrong bytes"}


def weights(installer: Installer, uri: str, sha: str = "") -> bytes:
    files = [ModelFile(filename="w.gguf", uri=uri, sha256=sha)]
    meter = ProgressMeter(None, SystemClock())
    (placed,) = install_files(installer, files, installer.settings.models_dir, SystemIds(), CancelToken(), meter)
    return placed.path.read_bytes()


def busy(exchange: Exchange) -> None:
    raise Reply(503)


@pytest.mark.parametrize("is_pinned", [True, False])
def test_weights_that_are_here_need_no_origin(registry: FakeRegistry, installer: Installer, is_pinned: bool) -> None:
    registry.pages["/w.gguf"] = (NOISE, {"ETag": '"one"'})
    uri, sha = f"{registry.url}/w.gguf", sha256(NOISE).removeprefix("sha256:") if is_pinned else ""
    assert weights(installer, uri, sha) == NOISE
    (installer.settings.models_dir / "w.gguf").unlink()
    registry.hooks.append(busy)
    assert weights(installer, uri, sha) == NOISE
    with pytest.raises(SourceUnavailable):
        weights(installer, f"{registry.url}/other.gguf", "" if is_pinned else "ab" * 32)


def test_weights_without_a_digest_are_fetched_again_only_when_they_change(
    registry: FakeRegistry, installer: Installer
) -> None:
    uri = f"{registry.url}/w.gguf"
    registry.pages["/w.gguf"] = (NOISE, {"ETag": '"one"'})
    for _ in range(2):
        assert weights(installer, uri) == NOISE
    assert registry.blob_requests("/w.gguf") == [""]
    registry.pages["/w.gguf"] = (NOISE[::-1], {"ETag": '"two"'})
    assert weights(installer, uri) == NOISE[::-1]


def test_pinned_weights_come_from_the_site_while_their_origin_is_away(
    registry: FakeRegistry, installer: Installer
) -> None:
    sha = sha256(NOISE)
    registry.hooks.append(busy)
    with FakeRegistry() as node:
        image = Image([])
        image.blobs = {sha: NOISE}
        image.manifest = b'{"layers": []}'
        site = OneSite(leader_with(node, image))
        assert weights(shared(installer, site), f"{registry.url}/w.gguf", sha.removeprefix("sha256:")) == NOISE
        lost = shared(installer, OneSite())
        with pytest.raises(SourceUnavailable, match="503"):
            weights(lost, f"{registry.url}/x.gguf", "ab" * 32)


def test_gallery_mirrors_are_tried_in_order(registry: FakeRegistry, installer: Installer) -> None:
    good = registry.push(big())
    version = install(installer, f"{registry.host}/missing:latest", good)
    assert version.metadata.uri == good


def test_when_every_source_fails_each_is_named(registry: FakeRegistry, installer: Installer) -> None:
    with pytest.raises(SourceRejected, match=r"one:latest.*two:latest"):
        install(installer, f"{registry.host}/one:latest", f"{registry.host}/two:latest")


def test_a_definite_no_is_not_retried(registry: FakeRegistry, installer: Installer) -> None:
    with pytest.raises(SourceRejected):
        install(installer, f"{registry.host}/missing:latest")
    assert len(registry.requests) == 1


@pytest.mark.parametrize("keep", [True, False], ids=["a-shutdown-keeps-partials", "a-person-discards-them"])
def test_cancel_takes_effect_at_once(keep: bool, registry: FakeRegistry, installer: Installer) -> None:
    image = big()
    uri = registry.push(image)
    released, begun = threading.Event(), threading.Event()

    def stall(exchange: Exchange, blob: bytes) -> None:
        exchange.send_response(200)
        exchange.send_header("Content-Length", str(len(blob)))
        exchange.end_headers()
        exchange.wfile.write(blob[:300_000])
        begun.set()
        released.wait(120)
        raise BrokenPipeError

    registry.hooks.append(on_blob(image, stall))
    patient = replace(installer.settings.transfer, stall_window_s=60.0)
    installer.resolver.outbound._limits = patient
    token = CancelToken()
    caught: list[BaseException] = []

    def work() -> None:
        try:
            install(installer, uri, cancel=token)
        except ArtifactError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert begun.wait(60)
        partials = installer.settings.data_dir / "blobs/partial"
        wait_until(lambda: any(path.stat().st_size == 300_000 for path in partials.iterdir()))
        with promised("the cancel", within_s=5):
            token.cancel(keep_partials=keep)
            thread.join(60)
    finally:
        released.set()
        thread.join(60)
    assert isinstance(caught[0], Cancelled)
    kept = [name for name in leftovers(installer.settings.data_dir) if name.startswith("blobs/partial")]
    assert bool(kept) == keep


def test_the_bandwidth_cap_holds(registry: FakeRegistry, make_installer: Callable[..., Installer]) -> None:
    installer = make_installer()
    limits = replace(installer.settings.transfer, bandwidth_bytes_per_s=1_000_000)
    capped = make_installer(transfer=limits)
    uri = registry.push(big())
    started = time.monotonic()
    install(capped, uri)
    assert time.monotonic() - started > 0.9


def test_a_slow_link_that_breaks_again_and_again_finishes(registry: FakeRegistry, installer: Installer) -> None:
    """Progress earns new tries: more breaks than the retry budget has attempts."""
    image = big()
    uri = registry.push(image)

    def a_little(exchange: Exchange, blob: bytes) -> None:
        start = int(exchange.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        exchange.send_response(206)
        exchange.send_header("Content-Range", f"bytes {start}-{len(blob) - 1}/{len(blob)}")
        exchange.send_header("Content-Length", str(len(blob) - start))
        exchange.end_headers()
        exchange.wfile.write(blob[start : start + 100_000])
        exchange.wfile.flush()
        exchange.connection.shutdown(socket.SHUT_RDWR)
        raise BrokenPipeError

    registry.hooks.append(times(10, on_blob(image, a_little)))
    assert tree_of(install(installer, uri).path)["noise"] == NOISE


def test_private_hosts_need_trust(registry: FakeRegistry, make_installer: Callable[..., Installer]) -> None:
    uri = registry.push(big())
    with pytest.raises(PolicyRefused, match="this machine"):
        install(make_installer(network=NetworkPolicy()), uri)
    assert registry.requests == []


def test_logins_come_from_a_docker_config(
    registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    encoded = base64.b64encode(b"me:from-docker").decode()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"auths": {registry.host: {"auth": encoded}, "https://index.docker.io/v1/": {}}}))

    def demand(exchange: Exchange) -> None:
        if exchange.headers.get("Authorization") != f"Basic {encoded}":
            raise Reply(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})

    registry.hooks.append(demand)
    uri = registry.push(big())
    with pytest.raises(SourceRejected, match="requires a login"):
        install(make_installer(), uri)
    install(make_installer(docker_config=config), uri)
