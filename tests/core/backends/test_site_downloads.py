"""Who fetches a blob for its site."""

from typing import Any

import pytest

from corral.core.backends.site_downloads import (
    Alone,
    Answer,
    DownloadClaim,
    Follow,
    Lead,
    SiteDownload,
    Try,
    WaitForLeader,
    decide_claim,
    site_of,
)

MIB = 1 << 20


def leader(**changes: Any) -> SiteDownload:
    facts: dict[str, Any] = {"node": "a", "bytes_done": 50 * MIB, "bytes_at_start": 0}
    ages = {"granted_s": 20.0, "renewed_s": 1.0, "progressed_s": 1.0}
    return SiteDownload(**(facts | ages | changes))


@pytest.mark.parametrize(
    ("found", "claim", "serves", "expected"),
    [
        (None, {}, True, Lead()),
        (leader(), {}, True, Follow("a")),
        (leader(node="b"), {}, True, Lead()),  # its own
        (leader(), {}, False, Lead()),
        (leader(renewed_s=9), {}, True, WaitForLeader()),
        (leader(renewed_s=9), {"bytes_done": 40 * MIB}, True, Lead()),
        (leader(renewed_s=9), {"rate_bytes_per_s": 6.0 * MIB}, True, Lead()),
        (leader(renewed_s=15), {}, True, Lead()),
        (leader(progressed_s=16), {}, True, WaitForLeader()),
        (leader(progressed_s=16), {"bytes_done": 50 * MIB}, True, Lead()),
        (leader(progressed_s=22), {}, True, Lead()),
        (leader(), {"unreachable": "a"}, True, Follow("a")),  # alive: perhaps it is this node that cannot reach it
        (leader(bytes_done=MIB), {"bytes_done": MIB}, True, Lead()),  # 51 KiB/s
        (leader(bytes_done=MIB, granted_s=5.0), {}, True, Follow("a")),  # too early to tell
        (leader(), {"rate_bytes_per_s": 8.0 * MIB}, True, Follow("a")),
        (leader(), {"rate_bytes_per_s": 11.0 * MIB}, True, Lead()),
        (leader(is_done=True, renewed_s=60.0), {}, True, Follow("a")),
        (leader(is_done=True), {"unreachable": "a"}, True, Lead()),
        (leader(is_done=True, renewed_s=700.0), {}, True, Lead()),
        (leader(has_failed=True), {"followed": True}, True, Alone(after_failure=True)),
        (leader(has_failed=True), {}, True, Lead()),
        (leader(has_failed=True, renewed_s=11.0), {"followed": True}, True, Lead()),
    ],
)
def test_a_leader_is_followed_while_it_delivers(
    found: SiteDownload | None, claim: dict[str, Any], serves: bool, expected: Answer
) -> None:
    asked = DownloadClaim(digest="sha256:1", **claim)
    assert decide_claim(found, asked, node="b", serves=serves) == expected


NINE_GB = leader(bytes_done=9000 * MIB, bytes_at_start=9000 * MIB)


@pytest.mark.parametrize(
    ("found", "claim", "expected"),
    [
        (NINE_GB, {"rate_bytes_per_s": 100.0 * MIB}, Follow("a")),
        (NINE_GB, {"bytes_done": 9000 * MIB}, Lead()),
        (leader(bytes_done=9000 * MIB), {"bytes_done": 9200 * MIB}, Follow("a")),  # it will be there in a moment
        (leader(bytes_done=MIB), {"bytes_done": 9000 * MIB}, Lead()),
        (leader(bytes_done=MIB, displaced="b"), {"bytes_done": 9000 * MIB}, Alone()),
        (leader(bytes_done=MIB, displaced="b"), {"bytes_done": 2 * MIB, "is_done": True}, Lead()),
    ],
    ids=["a fast joiner", "as far as a leader that stands", "near", "resumed", "replaced as too slow", "finished"],
)
def test_who_has_most_of_a_blob_leads(found: SiteDownload, claim: dict[str, Any], expected: Answer) -> None:
    assert decide_claim(found, DownloadClaim(digest="sha256:1", **claim), node="b", serves=True) == expected


@pytest.mark.parametrize(
    ("found", "claim", "expected"),
    [
        (leader(), {"received_bytes_per_s": None}, Follow("a")),
        (leader(), {}, Try()),
        (leader(), {"received_bytes_per_s": 0.0}, Try()),
        (leader(), {"bytes_left": 3 * MIB}, Follow("a")),
        (leader(tried_s=3.0), {}, Follow("a")),
        (leader(tried_s=16.0), {}, Try()),
        (leader(), {"rate_bytes_per_s": 0.25 * MIB}, Follow("a")),
        (leader(), {"rate_bytes_per_s": 2.0 * MIB}, Try()),
        (leader(), {"tried": True, "rate_bytes_per_s": 1.0 * MIB}, Lead()),
        (leader(), {"tried": True, "rate_bytes_per_s": 0.5 * MIB}, Alone()),
        (leader(), {"tried": True, "rate_bytes_per_s": 0.25 * MIB}, Follow("a")),
        (leader(), {"tried": True, "rate_bytes_per_s": 0.0, "received_bytes_per_s": 0.0}, Follow("a")),
        (leader(), {"leader": "c", "tried": True, "rate_bytes_per_s": 1.0 * MIB}, Follow("a")),
        (leader(), {"leader": "c"}, Follow("a")),
        (leader(is_done=True), {}, Try()),
        (leader(is_done=True), {"tried": True, "rate_bytes_per_s": 1.0 * MIB}, Alone()),
        (leader(bytes_done=2 * MIB), {"tried": True, "rate_bytes_per_s": 0.4 * MIB}, Lead()),
    ],
    ids=[
        "not measured yet", "its own rate is unknown", "nothing arrives", "the rest is short", "another one tries",
        "the other one was not faster", "known to be slow itself", "known to be faster", "as fast as the leader",
        "the way to the leader is slow", "not faster", "the source does not answer",
        "another node led when it tried", "another node led before",
        "a finished blob", "fetched alone", "the leader is slow",
    ],
)  # fmt: skip
def test_a_follower_judges_its_leader_by_what_arrives(
    found: SiteDownload, claim: dict[str, Any], expected: Answer
) -> None:
    """The leader reports 2.5 MiB/s, and sends 0.25 MiB/s."""
    facts: dict[str, Any] = {"leader": "a", "received_bytes_per_s": 0.25 * MIB}
    asked = DownloadClaim(digest="sha256:1", **(facts | claim))
    assert decide_claim(found, asked, node="b", serves=True) == expected


def test_nodes_without_the_label_are_one_site() -> None:
    assert site_of({}) == site_of({"site": ""}) != site_of({"site": "east"})
