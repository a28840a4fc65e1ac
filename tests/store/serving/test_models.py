"""Model configurations with their revisions, on both databases."""

import asyncio

import pytest

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.models.config import deleted_revision
from corral.store.engine.counters import ROUTES, read_counter
from corral.store.engine.database import Tx
from corral.store.serving.models import read_served_models
from corral.store.serving.revision_rows import MAX_REVISIONS
from corral.store.stores import Stores
from harness.databases import Rig

TINY = "# mine\nname: tiny\nbackend: llama-cpp\nparameters: {model: tiny.gguf}\n"


async def routes_version(stores: Stores) -> int:
    async def body(tx: Tx) -> int:
        return await read_counter(tx, ROUTES)

    return await stores.database.read(body)


async def test_a_saved_model_is_read_back_as_it_was_written_by_every_frontend(stores: Stores, rig: Rig) -> None:
    saved = await stores.models.save(TINY, "ann")
    assert (saved.name, saved.text, saved.changed_by) == ("tiny", TINY, "ann")
    assert await Stores(await rig.open()).models.read("tiny") == saved
    assert await stores.models.read_all() == [saved]


async def test_an_unknown_model_is_not_found_and_similar_names_are_suggested(stores: Stores) -> None:
    await stores.models.save(TINY, "ann")
    with pytest.raises(NotFound, match="did you mean tiny"):
        await stores.models.read("tinny")
    with pytest.raises(NotFound, match="corral models list"):
        await stores.models.delete("zzzzzz", "ann")


async def test_every_change_moves_both_versions_and_saving_the_same_moves_none(stores: Stores) -> None:
    seen = [(await stores.models.read_version(), await routes_version(stores))]
    for text in (TINY, TINY.replace("tiny.gguf", "other.gguf")):
        await stores.models.save(text, "ann")
        await stores.models.save(text, "bob")
        seen.append((await stores.models.read_version(), await routes_version(stores)))
    await stores.models.delete("tiny", "ann")
    seen.append((await stores.models.read_version(), await routes_version(stores)))
    assert seen == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [event.action for event in await stores.events.read_latest(limit=9)] == [
        "model.deleted",
        "model.changed",
        "model.added",
    ]


async def test_two_models_cannot_download_different_files_under_one_name(stores: Stores) -> None:
    text = "name: %s\nbackend: b\ndownload_files: [{filename: model.gguf, uri: 'https://%s/model.gguf'}]\n"
    await stores.models.save(text % ("one", "host-a"), "ann")
    with pytest.raises(Conflict, match=r"https://host-a/model\.gguf is stored under that name, also by the model"):
        await stores.models.save(text % ("two", "host-b"), "ann")
    await stores.models.save(text % ("two", "host-a"), "ann")
    with pytest.raises(Conflict, match="another filename"):
        await stores.models.save(text % ("two", "host-b"), "ann")
    await stores.models.delete("one", "ann")
    await stores.models.save(text % ("two", "host-b"), "ann")


async def test_another_comment_is_kept_and_is_no_new_revision(stores: Stores) -> None:
    first = await stores.models.save(TINY, "ann")
    second = await stores.models.save(TINY.replace("mine", "ours"), "bob")
    assert (second.revision, second.text, second.changed_by) == (first.revision, TINY.replace("mine", "ours"), "bob")
    assert await routes_version(stores) == 1


async def test_an_edit_of_what_changed_meanwhile_is_refused(stores: Stores) -> None:
    first = await stores.models.save(TINY, "ann")
    await stores.models.save(TINY + "threads: 2\n", "bob", expected=first.revision)
    with pytest.raises(Conflict, match="changed in the meantime, by bob"):
        await stores.models.save(TINY + "threads: 3\n", "ann", expected=first.revision)
    with pytest.raises(Conflict, match="changed in the meantime"):
        await stores.models.delete("tiny", "ann", expected=first.revision)
    await stores.models.delete("tiny", "bob")
    with pytest.raises(Conflict, match="deleted in the meantime"):
        await stores.models.save(TINY, "ann", expected=first.revision)
    await stores.models.save(TINY, "ann")
    with pytest.raises(Conflict, match="already"):
        await stores.models.save(TINY + "threads: 1\n", "ann", new=True)


async def test_of_many_editors_of_one_revision_one_wins(stores: Stores, rig: Rig) -> None:
    first = await stores.models.save(TINY, "ann")
    others = [Stores(await rig.open()) for _ in range(4)]

    async def edit(number: int) -> bool:
        try:
            await others[number].models.save(f"{TINY}threads: {number + 1}\n", f"e{number}", expected=first.revision)
        except Conflict:
            return False
        return True

    assert sum(await asyncio.gather(*(edit(number) for number in range(4)))) == 1
    assert await stores.models.read_version() == 2


async def test_the_history_has_every_text_newest_first_and_an_end(stores: Stores, rig: Rig) -> None:
    for number in range(MAX_REVISIONS + 5):
        await stores.models.save(f"{TINY}threads: {number}\n", "ann")
        if number == 0:
            await rig.advance(1)
    kept = await stores.models.read_revisions("tiny")
    assert len(kept) == MAX_REVISIONS
    assert kept[0].text == f"{TINY}threads: {MAX_REVISIONS + 4}\n"
    await stores.models.delete("tiny", "bob")
    newest = (await stores.models.read_revisions("tiny"))[0]
    assert (newest.revision, newest.text, newest.actor) == (deleted_revision("tiny"), "", "bob")


async def test_a_deleted_model_is_gone_and_can_come_back(stores: Stores) -> None:
    first = await stores.models.save(TINY, "ann")
    assert await stores.models.delete("tiny", "ann") == first
    assert await stores.models.read_all() == []
    again = await stores.models.save(TINY, "bob", new=True)
    assert again.revision == first.revision


async def test_an_alias_leads_to_its_model_and_no_name_means_two(stores: Stores) -> None:
    await stores.models.save(TINY + "aliases: [gpt-4]\n", "ann")
    assert (await stores.models.read("gpt-4")).name == "tiny"
    for text in ("name: gpt-4\nbackend: x\n", "name: b\naliases: [tiny]\n", "name: b\naliases: [gpt-4]\n"):
        with pytest.raises(Conflict, match="is taken"):
            await stores.models.save(text, "ann")


async def test_a_redirect_is_an_alias_of_its_target_and_has_no_replicas_of_its_own(stores: Stores) -> None:
    with pytest.raises(InvalidInput, match="no such model"):
        await stores.models.save("name: gpt-4\nalias: tiny\n", "ann")
    first = await stores.models.save(TINY, "ann")
    await stores.models.save("name: other\nbackend: x\n", "ann")
    await stores.models.save("name: gpt-4\nalias: tiny\n", "ann")
    tiny = await stores.models.read("tiny")
    assert (tiny.aliases, tiny.revision) == (("gpt-4",), first.revision)
    assert [model.name for model in await stores.database.read(read_served_models)] == ["other", "tiny"]
    with pytest.raises(InvalidInput, match="itself an alias"):
        await stores.models.save("name: gpt-5\nalias: gpt-4\n", "ann")
    with pytest.raises(InvalidInput, match="cannot be an alias"):
        await stores.models.save("name: tiny\nalias: other\n", "ann")
    with pytest.raises(Conflict, match="gpt-4 is an alias of"):
        await stores.models.delete("tiny", "ann")
    await stores.models.save("name: gpt-4\nalias: other\n", "ann")
    assert [(model.name, model.aliases) for model in await stores.models.read_all()] == [
        ("gpt-4", ()),
        ("other", ("gpt-4",)),
        ("tiny", ()),
    ]
    await stores.models.delete("gpt-4", "ann")
    assert (await stores.models.read("other")).aliases == ()


async def test_a_disabled_model_is_kept_and_not_served(stores: Stores) -> None:
    await stores.models.save(TINY + "disabled: true\n", "ann")
    assert await stores.database.read(read_served_models) == []
    assert (await stores.models.read("tiny")).served is False


@pytest.mark.parametrize("text", ["", "{", "name: [", "- a\n", "name: a\nname: b\n", "a: &x [*x]\n", "x" * (2 << 20)])
async def test_what_is_no_configuration_is_refused_and_nothing_is_written(stores: Stores, text: str) -> None:
    with pytest.raises(InvalidInput):
        await stores.models.save(text, "ann")
    assert await stores.models.read_version() == 0
