"""Objects in a shared storage belong to models, and go with the last of them."""

import asyncio

from corral.store.stores import Stores
from harness.databases import Rig

BUCKET, LEASE_MS = "http://storage/shared", 60_000
A, B = "a" * 64, "b" * 64


async def add(stores: Stores, *names: str, more: str = "") -> None:
    for name in names:
        await stores.models.save(f"name: {name}\nbackend: b\nparameters: {{model: f.bin}}\n{more}", "ann")


async def claimed(stores: Stores) -> list[str]:
    return [one.sha256 for one in await stores.bucket_weights.claim_deletions(BUCKET, lease_ms=LEASE_MS)]


async def test_an_object_stays_while_any_model_that_needs_it_is_configured(stores: Stores) -> None:
    await add(stores, "m", more="mmproj: g.bin\n")
    await add(stores, "n")
    for model in ("m", "n"):
        assert await stores.bucket_weights.note(BUCKET, A, model, "f.bin")
    assert await stores.bucket_weights.note(BUCKET, B, "m", "g.bin")
    assert await claimed(stores) == []
    await stores.models.delete("m", "ann")
    assert await claimed(stores) == [B]
    await stores.models.delete("n", "ann")
    assert await claimed(stores) == [A], "the one that is being deleted is not claimed twice"


async def test_a_model_that_is_added_again_keeps_what_was_put_for_it(stores: Stores) -> None:
    await add(stores, "m")
    await stores.bucket_weights.note(BUCKET, A, "m", "f.bin")
    await stores.models.delete("m", "ann")
    await add(stores, "m")
    assert await claimed(stores) == []


async def test_an_object_passes_to_a_model_that_found_its_file_on_the_node(stores: Stores) -> None:
    await add(stores, "m", more="mmproj: dir/f.bin\n")
    await stores.models.save("name: n\nbackend: b\nparameters: {model: dir}\n", "ann")
    await stores.bucket_weights.note(BUCKET, A, "m", "dir/f.bin")
    await stores.models.delete("m", "ann")
    assert await claimed(stores) == []
    await stores.models.delete("n", "ann")
    assert await claimed(stores) == [A]


async def test_an_object_goes_when_the_last_model_that_needs_it_is_edited(stores: Stores) -> None:
    await add(stores, "m", "n", more="mmproj: ./g.bin\n")
    for model in ("m", "n"):
        for sha256, file in ((A, "f.bin"), (B, "g.bin")):
            assert await stores.bucket_weights.note(BUCKET, sha256, model, file)
    await add(stores, "m")
    assert await claimed(stores) == [], "another still needs it"
    await add(stores, "n", more="description: of the same files\nmmproj: g.bin\n")
    assert await claimed(stores) == []
    await add(stores, "n")
    assert await claimed(stores) == [B]


async def test_an_edit_that_is_taken_back_keeps_what_was_put(stores: Stores) -> None:
    await add(stores, "m", more="mmproj: g.bin\n")
    await stores.bucket_weights.note(BUCKET, B, "m", "g.bin")
    await add(stores, "m")
    await add(stores, "m", more="mmproj: g.bin\n")
    assert await claimed(stores) == []
    await add(stores, "m")
    assert await claimed(stores) == [B]


async def test_what_a_load_of_an_earlier_configuration_puts_is_deleted(stores: Stores) -> None:
    await add(stores, "m")
    assert await stores.bucket_weights.note(BUCKET, B, "m", "g.bin")
    assert await claimed(stores) == [B]


async def test_an_edit_and_a_note_at_the_same_time_leave_nothing_behind(stores: Stores, rig: Rig) -> None:
    others = [Stores(await rig.open()) for _ in range(2)]
    for turn in range(20):
        sha256 = f"{turn:064x}"
        await add(stores, "m", more="mmproj: g.bin\n")
        await asyncio.gather(
            others[0].bucket_weights.note(BUCKET, sha256, "m", "g.bin"),
            add(others[1], "m"),
        )
        assert await claimed(stores) == [sha256]


async def test_only_objects_of_this_bucket_are_deleted(stores: Stores) -> None:
    await stores.bucket_weights.note("http://elsewhere/other", A, "gone", "f.bin")
    assert await claimed(stores) == []


async def test_while_an_object_is_deleted_nobody_counts_on_it(stores: Stores) -> None:
    await add(stores, "n")
    await stores.bucket_weights.note(BUCKET, A, "gone", "old.bin")
    [deletion] = await stores.bucket_weights.claim_deletions(BUCKET, lease_ms=LEASE_MS)
    assert not await stores.bucket_weights.note(BUCKET, A, "n", "f.bin")
    await stores.bucket_weights.deleted(deletion)
    assert await stores.bucket_weights.note(BUCKET, A, "n", "f.bin")
    assert await claimed(stores) == []


async def test_a_deletion_whose_frontend_died_is_taken_over_and_a_failed_one_waits(stores: Stores, rig: Rig) -> None:
    await stores.bucket_weights.note(BUCKET, A, "gone", "old.bin")
    assert await claimed(stores) == [A]
    assert await claimed(stores) == []
    await rig.advance(LEASE_MS / 1000 + 1)
    [deletion] = await stores.bucket_weights.claim_deletions(BUCKET, lease_ms=LEASE_MS)
    await stores.bucket_weights.deletion_failed(deletion, "no answer", again_in_ms=5000)
    assert await claimed(stores) == []
    await rig.advance(6)
    [again] = await stores.bucket_weights.claim_deletions(BUCKET, lease_ms=LEASE_MS)
    assert again.attempts == 1


async def test_whoever_needs_an_object_and_whoever_deletes_it_do_not_both_win(stores: Stores, rig: Rig) -> None:
    await add(stores, "n")
    others = [Stores(await rig.open()) for _ in range(2)]
    for turn in range(20):
        sha256 = f"{turn:064x}"
        await stores.bucket_weights.note(BUCKET, sha256, "gone", "old.bin")
        noted, deletions = await asyncio.gather(
            others[0].bucket_weights.note(BUCKET, sha256, "n", "f.bin"),
            others[1].bucket_weights.claim_deletions(BUCKET, lease_ms=LEASE_MS),
        )
        assert noted is not (sha256 in [one.sha256 for one in deletions])
