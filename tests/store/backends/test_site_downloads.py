"""One node of a site fetches a blob, whichever frontends its nodes ask."""

import asyncio

from corral.core.backends.site_downloads import Alone, DownloadClaim, Follow, Lead, Try
from corral.store.backends.site_downloads import ROWS_MOST
from corral.store.stores import Stores

BLOB = DownloadClaim(digest="sha256:1")
NODES = ("a", "b", "c", "d")


async def test_of_nodes_that_ask_at_once_one_leads(stores: Stores) -> None:
    store = stores.site_downloads
    asked = [store.claim("east", node, [BLOB], serving=NODES) for node in NODES]
    answers = [answer for (answer,) in await asyncio.gather(*asked)]
    (leader,) = [node for node, answer in zip(NODES, answers, strict=True) if isinstance(answer, Lead)]
    assert [answer for answer in answers if not isinstance(answer, Lead)] == [Follow(leader)] * 3
    assert await store.claim("west", "d", [BLOB], serving=NODES) == [Lead()], "another site has its own leader"


async def test_a_blob_is_taken_from_who_finished_it_and_alone_after_a_failure(stores: Stores) -> None:
    store = stores.site_downloads
    both = [BLOB, DownloadClaim(digest="sha256:0")]
    assert await store.claim("east", "a", both, serving=NODES) == [Lead(), Lead()]
    renewed = DownloadClaim(digest="sha256:1", bytes_done=5)
    assert await store.claim("east", "a", [renewed], serving=NODES) == [Lead()]
    done = DownloadClaim(digest="sha256:1", bytes_done=9, is_done=True)
    failed = DownloadClaim(digest="sha256:0", has_failed=True)
    await store.claim("east", "a", [done, failed], serving=NODES)
    followed = [BLOB, DownloadClaim(digest="sha256:0", followed=True)]
    assert await store.claim("east", "b", followed, serving=NODES) == [Follow("a"), Alone(after_failure=True)]
    assert await store.claim("east", "c", both, serving=NODES) == [Follow("a"), Lead()], "a download of a retry"
    lost = DownloadClaim(digest="sha256:1", unreachable="a")
    assert await store.claim("east", "b", [lost], serving=NODES) == [Lead()]
    assert await store.claim("east", "a", [BLOB], serving=NODES) == [Follow("b")]


async def test_who_needs_a_blob_no_longer_leaves_it_to_the_next(stores: Stores) -> None:
    store = stores.site_downloads
    await store.claim("east", "a", [BLOB], serving=NODES)
    await store.claim("east", "b", [DownloadClaim(digest="sha256:1", releases=True)], serving=NODES)
    assert await store.claim("east", "c", [BLOB], serving=NODES) == [Follow("a")], "only the leader releases it"
    await store.claim("east", "a", [DownloadClaim(digest="sha256:1", releases=True)], serving=NODES)
    assert await store.claim("east", "c", [BLOB], serving=NODES) == [Lead()]
    assert await store.claim("east", "d", [BLOB], serving=("d",)) == [Lead()], "the leader is not healthy"


async def test_one_follower_at_a_time_tries_the_source_and_may_take_the_lead(stores: Stores) -> None:
    store = stores.site_downloads
    await store.claim("east", "a", [BLOB], serving=NODES)
    slow = DownloadClaim(digest="sha256:1", leader="a", received_bytes_per_s=100.0)
    assert await store.claim("east", "b", [slow], serving=NODES) == [Try()]
    assert await store.claim("east", "c", [slow], serving=NODES) == [Follow("a")]
    tried = DownloadClaim(digest="sha256:1", leader="a", received_bytes_per_s=100.0, rate_bytes_per_s=1e6, tried=True)
    assert await store.claim("east", "b", [tried], serving=NODES) == [Lead()]
    assert await store.claim("east", "a", [BLOB], serving=NODES) == [Follow("b")]
    ahead = DownloadClaim(digest="sha256:1", bytes_done=1 << 30)
    assert await store.claim("east", "a", [ahead], serving=NODES) == [Alone()], "it was replaced for good reason"
    assert await store.claim("east", "c", [ahead], serving=NODES) == [Lead()]


async def test_a_node_leads_no_unlimited_number_of_blobs(stores: Stores) -> None:
    claims = [DownloadClaim(digest=f"sha256:{number}") for number in range(ROWS_MOST + 1)]
    answers = await stores.site_downloads.claim("east", "a", claims, serving=NODES)
    assert answers.count(Lead()) == ROWS_MOST
    assert answers.count(Alone()) == 1
