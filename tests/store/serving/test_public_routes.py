"""Public routes, on both databases."""

import pytest

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.replicas.public_routes import PublicRoute, RouteTarget
from corral.store.stores import Stores
from harness.databases import Rig

MODEL = "name: %s\nbackend: llama-cpp\nparameters: {model: %s.gguf}\n"


def route(name: str, *tiers: list[str], sticky: bool = False) -> PublicRoute:
    return PublicRoute(name=name, tiers=tuple(tuple(map(RouteTarget, tier)) for tier in tiers), is_sticky=sticky)


@pytest.fixture
async def models(stores: Stores) -> Stores:
    for name in ("local", "other", "hosted"):
        await stores.models.save(MODEL % (name, name), "ann")
    return stores


async def test_a_route_is_read_by_every_frontend_with_the_other_routes(models: Stores, rig: Rig) -> None:
    before = await models.replicas.read_version()
    given = PublicRoute(
        name="chat", tiers=((RouteTarget("local", 3), RouteTarget("other")), (RouteTarget("hosted"),)), is_sticky=True
    )
    stored = await models.public_routes.save(given, actor="ann")
    assert (stored.route, stored.changed_by) == (given, "ann")
    other = Stores(await rig.open())
    snapshot = await other.replicas.read_routes()
    assert snapshot.public == (given,)
    assert snapshot.version > before
    changed = await other.public_routes.save(route("chat", ["hosted"]), actor="bob")
    assert changed.created_at == stored.created_at
    await models.public_routes.delete("chat", actor="cy")
    assert (await models.replicas.read_routes()).public == ()
    events = [(event.action, event.actor) for event in await models.events.read_latest(limit=3)]
    assert events == [("route.deleted", "cy"), ("route.changed", "bob"), ("route.added", "ann")]


async def test_a_route_leads_to_models_that_exist_by_their_own_names(models: Stores) -> None:
    await models.models.save("name: redirect\nalias: local\n", "ann")
    await models.models.save((MODEL % ("named", "named")) + "aliases: [nick]\n", "ann")
    stored = await models.public_routes.save(route("chat", ["redirect"], ["nick"]), actor="ann")
    assert stored.route.models == {"local", "named"}
    with pytest.raises(InvalidInput, match="more than once"):
        await models.public_routes.save(route("chat", ["redirect", "local"]), actor="ann")
    with pytest.raises(InvalidInput, match="did you mean hosted"):
        await models.public_routes.save(route("chat", ["hostd"]), actor="ann")
    with pytest.raises(NotFound, match="did you mean chat"):
        await models.public_routes.delete("chatt", actor="ann")


async def test_names_are_unique_except_that_a_route_may_stand_for_a_model_that_it_leads_to(models: Stores) -> None:
    await models.public_routes.save(route("local", ["local"], ["hosted"]), actor="ann")
    await models.models.save((MODEL % ("local", "local")) + "threads: 2\n", "ann")
    with pytest.raises(Conflict, match="taken by the model 'other'"):
        await models.public_routes.save(route("other", ["local"]), actor="ann")
    await models.public_routes.save(route("chat", ["hosted"]), actor="ann")
    with pytest.raises(Conflict, match="taken by a route"):
        await models.models.save(MODEL % ("chat", "chat"), "ann")
    with pytest.raises(Conflict, match="taken by a route"):
        await models.models.save((MODEL % ("other", "other")) + "aliases: [chat]\n", "ann")


async def test_a_model_that_a_route_leads_to_is_not_deleted(models: Stores) -> None:
    await models.public_routes.save(route("chat", ["local"], ["hosted"]), actor="ann")
    with pytest.raises(Conflict, match="the route chat leads to hosted"):
        await models.models.delete("hosted", "ann")
    await models.public_routes.save(route("chat", ["local"]), actor="ann")
    await models.models.delete("hosted", "ann")
