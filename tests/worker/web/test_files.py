"""File transfer as LocalAI's clients do it, and as nobody should."""

import hashlib
import json
import os
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corral.core.backends.blob_tokens import VALID_S, make_blob_token
from corral.core.processes.process import ProcessKey
from corral.worker.files.areas import Area
from corral.worker.web.blobs import RESPONSES_MOST
from harness.file_server import BLOB_TOKEN, RunningFileServer
from harness.programs import Answer
from harness.waiting import wait_until

DATA = os.urandom(300_000)
SHA = hashlib.sha256(DATA).hexdigest()


def put(
    server: RunningFileServer, key: str, first: int, last: int, *, total: int = len(DATA), sha: str = SHA
) -> Answer:
    """Bytes `first` to `last`, both included."""
    body = DATA[first : last + 1]
    given = f"bytes {first}-{last}/{total}"
    return server.call("PUT", f"/v1/files/{key}", body, Content_Range=given, X_Content_SHA256=sha)


def test_a_whole_file_is_put_told_read_and_listed(server: RunningFileServer) -> None:
    answer = server.call("PUT", "/v1/files/models/qwen/model.gguf", DATA, X_Content_SHA256=SHA)
    path = server.root / "models" / "qwen" / "model.gguf"
    assert (answer.status, answer.json()) == (200, {"local_path": str(path)})
    assert path.read_bytes() == DATA
    head = server.call("HEAD", "/v1/files/models/qwen/model.gguf")
    assert head.status == 200
    assert head.headers["x-content-sha256"] == SHA
    assert (head.headers["x-file-size"], head.headers["content-length"]) == (str(len(DATA)), str(len(DATA)))
    assert (head.headers["x-local-path"], head.headers["accept-ranges"]) == (str(path), "bytes")
    assert "x-target-sha256" not in head.headers
    assert server.call("GET", "/v1/files/models/qwen/model.gguf").body == DATA
    assert server.call("GET", "/v1/files-list/models/qwen").json() == {"files": ["model.gguf", "model.gguf.sha256"]}
    assert server.call("GET", "/v1/files/models/none").status == 404
    assert server.call("HEAD", "/v1/files/models/qwen").status == 400
    assert server.call("GET", "/v1/files-list/models/none").status == 404


def test_a_file_whose_hash_nobody_noted_is_hashed_once(server: RunningFileServer) -> None:
    (server.root / "models" / "given.bin").write_bytes(DATA)
    assert server.call("HEAD", "/v1/files/models/given.bin").headers["x-content-sha256"] == SHA
    assert (server.root / "models" / "given.bin.sha256").read_text() == SHA
    changed = server.root / "models" / "given.bin"
    changed.write_bytes(b"other")
    note = (server.root / "models" / "given.bin.sha256").stat()
    os.utime(changed, ns=(note.st_atime_ns, note.st_mtime_ns + 1))
    assert server.call("HEAD", "/v1/files/models/given.bin").headers["x-content-sha256"] == (
        hashlib.sha256(b"other").hexdigest()
    )


def test_what_belongs_to_one_request_is_deleted_and_nothing_else(server: RunningFileServer) -> None:
    for key in ("ephemeral/inputs/one.wav", "ephemeral/inputs/two.wav", "models/kept", "other"):
        assert server.call("PUT", f"/v1/files/{key}", DATA).status == 200
    assert server.call("DELETE", "/v1/files/ephemeral/inputs/one.wav").status == 204
    assert server.call("DELETE", "/v1/files/ephemeral/inputs/one.wav").status == 404
    for key in ("models/kept", "other", "ephemeral", "ephemeral/inputs", "ephemeral/inputs/../../other"):
        assert server.call("DELETE", f"/v1/files/{key}").status in (400, 404), key
    assert server.call("DELETE", "/v1/files/ephemeral/inputs/two.wav", key="wrong").status == 401
    assert (server.root / "inbox" / "ephemeral" / "inputs" / "two.wav").read_bytes() == DATA
    assert (server.root / "models" / "kept").exists()
    assert (server.root / "inbox" / "other").exists()


def test_what_nobody_deleted_goes_when_it_is_old(server: RunningFileServer) -> None:
    for key in ("ephemeral/inputs/old.wav", "ephemeral/outputs/new.wav", "elsewhere"):
        assert server.call("PUT", f"/v1/files/{key}", DATA).status == 200
    inbox = server.root / "inbox"
    for name in ("ephemeral/inputs/old.wav", "elsewhere"):
        os.utime(inbox / name, (1, 1))
    area = Area(inbox)
    try:
        assert area.remove_older(re.compile("ephemeral/.+"), before_s=1000.0) == 1
        assert area.remove_older(re.compile("nothing/.+"), before_s=1000.0) == 0
    finally:
        area.close()
    left = {str(path.relative_to(inbox)) for path in inbox.rglob("*") if path.is_file()}
    assert {"elsewhere", "ephemeral/outputs/new.wav"} <= left
    assert "ephemeral/inputs/old.wav" not in left


def test_an_upload_is_resumed_where_it_was_left(server: RunningFileServer) -> None:
    first = put(server, "models/a", 0, 99_999)
    assert (first.status, first.headers["range"], first.headers["x-file-size"]) == (308, "bytes=0-99999", "100000")
    head = server.call("HEAD", "/v1/files/models/a")
    assert (head.headers["x-target-sha256"], head.headers["x-file-size"]) == (SHA, "100000")
    wrong_place = put(server, "models/a", 50_000, 99_999)
    assert (wrong_place.status, wrong_place.headers["x-file-size"]) == (416, "100000")
    assert wrong_place.headers["content-range"] == f"bytes */{len(DATA)}"
    again_from_0 = put(server, "models/a", 0, 10)
    assert again_from_0.status == 416, "the same file: go on, do not start over"
    rest = put(server, "models/a", 100_000, len(DATA) - 1)
    assert rest.status == 200
    assert (server.root / "models" / "a").read_bytes() == DATA
    assert (server.root / "models" / "a.sha256").read_text() == SHA
    assert not (server.root / "models" / "a.sha256.target").exists()


def test_a_last_part_sent_twice_is_answered_twice_and_the_file_stays(server: RunningFileServer) -> None:
    assert put(server, "models/a", 0, 99_999).status == 308
    for _ in range(2):
        again = put(server, "models/a", 100_000, len(DATA) - 1)
        assert (again.status, again.json()) == (200, {"local_path": str(server.root / "models" / "a")})
    other = put(server, "models/a", 100_000, len(DATA) - 1, sha="0" * 64)
    assert other.status == 409, "a complete file may be in use"
    assert (server.root / "models" / "a").read_bytes() == DATA
    assert server.call("HEAD", "/v1/files/models/a").headers["x-content-sha256"] == SHA


def test_nobody_but_the_server_says_a_files_hash(server: RunningFileServer) -> None:
    assert server.call("PUT", "/v1/files/models/early.sha256", b"0" * 64).status == 200, "a file like any other, so far"
    os.utime(server.root / "models" / "early.sha256", (2**31, 2**31))
    (server.root / "models" / "early").write_bytes(DATA)
    assert server.call("PUT", "/v1/files/models/late", DATA).status == 200
    for suffix in (".sha256", ".sha256.target"):
        refused = server.call("PUT", f"/v1/files/models/late{suffix}", b"0" * 64)
        assert refused.status == 400
        assert "is reserved for the hash" in refused.body.decode()
    for name in ("early", "late"):
        assert server.call("HEAD", f"/v1/files/models/{name}").headers["x-content-sha256"] == SHA


def test_bytes_of_another_file_are_not_continued(server: RunningFileServer) -> None:
    put(server, "models/a", 0, 99_999)
    other = put(server, "models/a", 100_000, len(DATA) - 1, sha="0" * 64)
    assert other.status == 409
    assert not (server.root / "models" / "a").exists()
    put(server, "models/a", 0, 99_999)
    replaced = put(server, "models/a", 0, 4, total=5, sha=hashlib.sha256(DATA[:5]).hexdigest())
    assert replaced.status == 200
    assert (server.root / "models" / "a").read_bytes() == DATA[:5]


def test_a_wrong_hash_leaves_nothing(server: RunningFileServer) -> None:
    for answer in (
        server.call("PUT", "/v1/files/models/a", DATA, X_Content_SHA256="0" * 64),
        put(server, "models/a", 0, len(DATA) - 1, sha="1" * 64),
    ):
        assert answer.status == 400
        assert list((server.root / "models").iterdir()) == []


@pytest.mark.parametrize("given", ["bytes 5-4/10", "bytes 0-10/10", "bytes x-y/z", "items 0-1/2", "bytes 0-1/*"])
def test_a_range_that_makes_no_sense_is_refused(server: RunningFileServer, given: str) -> None:
    assert server.call("PUT", "/v1/files/models/a", b"ab", Content_Range=given).status == 400


def test_what_came_before_the_sender_vanished_is_kept(server: RunningFileServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as sender:
        sender.sendall(
            f"PUT /v1/files/models/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer files-token\r\n"
            f"Content-Length: {len(DATA)}\r\nContent-Range: bytes 0-{len(DATA) - 1}/{len(DATA)}\r\n"
            f"X-Content-SHA256: {SHA}\r\n\r\n".encode()
            + DATA[:150_000]
        )
        wait_until(lambda: (server.root / "models" / "a").exists() or None, what="the upload has begun")

    def kept() -> Answer | None:
        head = server.call("HEAD", "/v1/files/models/a")
        return head if head.headers.get("x-file-size") == "150000" else None

    head = wait_until(kept, what="what came is kept")
    assert head.headers["x-target-sha256"] == SHA
    assert put(server, "models/a", 150_000, len(DATA) - 1).status == 200


def test_a_body_shorter_than_its_range_is_kept_and_told(server: RunningFileServer) -> None:
    answer = server.call(
        "PUT", "/v1/files/models/a", DATA[:100], Content_Range=f"bytes 0-199/{len(DATA)}", X_Content_SHA256=SHA
    )
    assert answer.status == 400
    assert server.call("HEAD", "/v1/files/models/a").headers["x-file-size"] == "100"


@pytest.mark.parametrize(
    "key",
    [
        "models/../../outside", "models/%2e%2e/%2e%2e/outside", "../outside", "models/a/../../../outside",
        "models/link/stolen", "models/link", "data/deep/link/x", "models/" + "d/" * 80 + "x", "models/%00",
        "models/pipe",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_an_area(server: RunningFileServer, key: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "stolen").write_text("secret")
    (tmp_path / "models" / "link").symlink_to(outside)
    (tmp_path / "data" / "deep").mkdir()
    (tmp_path / "data" / "deep" / "link").symlink_to(outside)
    os.mkfifo(tmp_path / "models" / "pipe")
    for method, body in (("PUT", b"evil"), ("GET", None), ("HEAD", None)):
        answer = server.call(method, f"/v1/files/{key}", body)
        assert answer.status in (400, 404), (method, answer.status, answer.body)
    assert server.call("GET", f"/v1/files-list/{key}").status in (400, 404)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"stolen": "secret"}


def test_a_file_larger_than_the_disk_is_refused_before_a_byte_is_written(server: RunningFileServer) -> None:
    answer = server.call("PUT", "/v1/files/models/a", b"x", Content_Range=f"bytes 0-0/{1 << 59}", X_Content_SHA256=SHA)
    assert answer.status == 507
    assert list((server.root / "models").iterdir()) == []


def test_a_temporary_file_is_made_in_the_inbox(server: RunningFileServer) -> None:
    path = Path(server.call("POST", "/v1/files/temp", b"").json()["local_path"])
    assert path.parent == server.root / "inbox"
    assert path.name.startswith("localai-output-")
    assert server.call("GET", f"/v1/files/{path.name}").status == 200


def test_every_path_but_health_wants_the_token(server: RunningFileServer) -> None:
    for method, path in (
        ("GET", "/v1/files/models/a"), ("HEAD", "/v1/files/models/a"), ("PUT", "/v1/files/models/a"),
        ("POST", "/v1/files/temp"), ("GET", "/v1/files-list/models"), ("GET", "/v1/backend-logs"),
        ("GET", "/v1/backend-logs/m"), ("GET", "/artifacts/blobs/sha256:00"), ("GET", "/nothing"),
    ):  # fmt: skip
        for key in (None, "wrong", "", "files-token2"):
            answer = server.call(method, path, b"" if method in ("PUT", "POST") else None, key=key)
            assert answer.status == 401, (method, path, key)
        if not path.startswith("/artifacts/"):
            body = b"" if method in ("PUT", "POST") else None
            assert server.call(method, path, body, key="blobs-token").status == 401
    for path in ("/healthz", "/readyz"):
        assert server.call("GET", path, key=None).body == b"ok"
        assert server.call("HEAD", path, key=None).status == 200


def test_a_token_of_one_blob_opens_that_blob_only(server: RunningFileServer, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(DATA)
    server.blobs.update({"sha256:aa": tmp_path / "blob", "sha256:bb": tmp_path / "blob"})
    token = make_blob_token(BLOB_TOKEN, "sha256:aa", now_s=time.time())
    assert server.call("GET", "/artifacts/blobs/sha256:aa", key=token).body == DATA
    assert server.call("GET", "/artifacts/blobs/sha256:bb", key=token).status == 401
    assert server.call("GET", "/v1/files/models/x", key=token).status == 401
    old = make_blob_token(BLOB_TOKEN, "sha256:aa", now_s=time.time() - 2 * VALID_S)
    assert server.call("GET", "/artifacts/blobs/sha256:aa", key=old).status == 401


def test_an_unfinished_blob_is_served_as_it_grows(server: RunningFileServer, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    partial.write_bytes(DATA[:1000])
    server.partial_blobs["sha256:aa"] = partial

    def ask(first: int) -> Answer:
        wanted = f"bytes={first}-"
        return server.call("GET", "/artifacts/blobs/sha256:aa", key=BLOB_TOKEN, Range=wanted, X_Corral_Wait="1")

    answer = ask(0)
    assert (answer.status, answer.body, answer.headers["content-range"]) == (206, DATA[:1000], "bytes 0-999/*")
    assert ask(1000).status == 204, "nothing new"
    assert server.call("GET", "/artifacts/blobs/sha256:aa", key=BLOB_TOKEN, X_Corral_Wait="1").status == 400

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, 1000)
        wait_until(lambda: server.watchers or None, what="it waits for news")
        partial.write_bytes(DATA * 10)
        for changed in list(server.watchers):
            changed()
        answer = waiting.result()
    assert (answer.status, answer.body) == (206, (DATA * 10)[1000:])

    (tmp_path / "whole").write_bytes(DATA)
    del server.partial_blobs["sha256:aa"]
    server.blobs["sha256:aa"] = tmp_path / "whole"
    assert ask(len(DATA) - 10).body == DATA[-10:]


def test_more_readers_of_unfinished_blobs_than_places_all_get_theirs(server: RunningFileServer, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    partial.write_bytes(DATA * 10)
    server.partial_blobs["sha256:aa"] = partial

    def ask(_: int) -> bytes:
        return server.call(
            "GET", "/artifacts/blobs/sha256:aa", key=BLOB_TOKEN, Range="bytes=0-", X_Corral_Wait="1"
        ).body

    with ThreadPoolExecutor(2 * RESPONSES_MOST) as threads:
        assert set(threads.map(ask, range(3 * RESPONSES_MOST))) == {DATA * 10}


def test_blobs_are_served_by_digest_with_ranges_to_other_workers(server: RunningFileServer, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(DATA)
    server.blobs["sha256:aa"] = tmp_path / "blob"
    assert server.call("GET", "/artifacts/blobs/sha256:aa", key="blobs-token").body == DATA
    part = server.call("GET", "/artifacts/blobs/sha256:aa", key="blobs-token", Range="bytes=100-")
    assert (part.status, part.body) == (206, DATA[100:])
    assert server.call("GET", "/artifacts/blobs/sha256:bb", key="blobs-token").status == 404


def write_log(server: RunningFileServer, key: str, *lines: str) -> None:
    log = server.logs.make(ProcessKey(key))
    with (log.directory / "current.log").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_logs_of_a_process_and_of_all_replicas_by_time(server: RunningFileServer) -> None:
    write_log(server, "org/m#0", "1700000000000 o first", "1700000000002 e third")
    write_log(server, "org/m#1", "1700000000001 o second \x1b[31m")
    assert server.call("GET", "/v1/backend-logs").json() == ["org/m#0", "org/m#1"]
    [line] = server.call("GET", "/v1/backend-logs/org/m%231").json()
    assert line["stream"] == "stdout"
    assert "\x1b" not in line["text"]
    merged = server.call("GET", "/v1/backend-logs/org/m").json()
    assert [entry["text"].split()[0] for entry in merged] == ["first", "second", "third"]
    assert merged[0]["timestamp"] == "2023-11-14T22:13:20.000Z"


def test_a_log_is_followed_over_a_websocket(server: RunningFileServer) -> None:
    from websockets.exceptions import ConnectionClosed, InvalidStatus
    from websockets.sync.client import connect

    write_log(server, "m#0", "1700000000000 o first")
    url = f"ws://127.0.0.1:{server.port}/v1/backend-logs/m/ws"
    with pytest.raises((InvalidStatus, ConnectionClosed)), connect(url, proxy=None) as refused:
        refused.recv(timeout=30)
    with connect(url, additional_headers={"Authorization": "Bearer files-token"}, proxy=None) as follower:
        initial = json.loads(follower.recv(timeout=30))
        assert (initial["type"], [line["text"] for line in initial["lines"]]) == ("initial", ["first"])
        write_log(server, "m#0", "1700000000001 e second")
        line = json.loads(follower.recv(timeout=30))
        assert (line["type"], line["line"]["text"], line["line"]["stream"]) == ("line", "second", "stderr")
        write_log(server, "m#1", "1700000000002 o of a replica that came later", "1700000000003 o more")
        write_log(server, "other#0", "1700000000002 o of another model")
        later = [json.loads(follower.recv(timeout=30))["line"]["text"] for _ in range(2)]
        assert later == ["of a replica that came later", "more"]
        write_log(server, "m#0", "1700000000004 o and the first goes on")
        assert json.loads(follower.recv(timeout=30))["line"]["text"] == "and the first goes on"
