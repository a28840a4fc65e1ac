"""The last edits of models, on both databases."""

from corral.core.models.revisions import RevisionState
from corral.store.stores import Stores

CONFIG = "name: tiny\nbackend: echo\nparameters: {model: tiny.gguf}\n"


async def test_edits_are_listed_newest_first_and_a_first_revision_is_none(stores: Stores) -> None:
    assert await stores.revision_changes.read_recent() == []
    await stores.models.save(CONFIG, "ann")
    assert await stores.revision_changes.read_recent() == []
    await stores.models.save(f"{CONFIG}threads: 2\n", "ben", comment="two are enough")
    [edited] = await stores.revision_changes.read_recent()
    assert (edited.model, edited.previous, edited.number, edited.actor, edited.comment) == (
        "tiny", 1, 2, "ben", "two are enough",
    )  # fmt: skip
    assert (edited.replicas, edited.other_replicas) == (0, 0)
    assert edited.state in (RevisionState.CURRENT, RevisionState.PENDING)
    await stores.models.save(f"{CONFIG}threads: 3\n", "ben")
    assert [one.number for one in await stores.revision_changes.read_recent()] == [3, 2]
    assert len(await stores.revision_changes.read_recent(limit=1)) == 1
