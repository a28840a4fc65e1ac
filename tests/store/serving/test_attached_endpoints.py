"""Attached endpoints, on both databases."""

from dataclasses import replace
from typing import Any

import pytest

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.replicas.attached import (
    ENDPOINTS_MAX,
    SETTINGS,
    AttachedEndpoint,
    EndpointHealth,
    EndpointState,
    ServerTrust,
    UpstreamProtocol,
)
from corral.core.replicas.availability import Availability
from corral.core.replicas.routing import ReplicaId, RouteReplica
from corral.store.stores import Stores
from harness.databases import Rig

LOCAL = "name: local\nbackend: llama-cpp\nparameters: {model: tiny.gguf}\naliases: [other]\n"


def endpoint(number: int = 1, **changes: Any) -> AttachedEndpoint:
    return AttachedEndpoint(
        **{
            "id": f"e{number}",
            "model": "hosted",
            "url": f"http://10.0.0.{number}:8000/v1",
            "api_key": "sk-secret",
            "health": EndpointHealth.HEALTHY,
            **changes,
        }
    )


async def routed(stores: Stores, model: str = "hosted") -> tuple[RouteReplica, ...]:
    return next(route.replicas for route in (await stores.replicas.read_routes()).routes if route.model == model)


async def test_an_attached_endpoint_is_routed_to_by_every_frontend_with_all_that_it_needs(
    stores: Stores, rig: Rig
) -> None:
    trust = ServerTrust(ca_pem="pem", pin="ab" * 32)
    given = endpoint(
        upstream_model="big", capacity=7, weight=3, trust=trust, url="https://10.0.0.1:8000/v1",
        endpoints=("/v1/messages", "/v1/responses"), continuation="assistant-prefill",
    )  # fmt: skip
    stored, is_new = await stores.attached_endpoints.attach(given, actor="ann")
    assert is_new
    other = Stores(await rig.open())
    assert await other.attached_endpoints.read_all() == [stored]
    (found,) = await routed(other)
    assert (found.id, found.address, found.capacity, found.weight) == ("e1", "10.0.0.1:8000", 7, 3)
    assert (found.endpoints, found.continuation) == (frozenset(given.endpoints), "assistant-prefill")
    assert found.token == "sk-secret"
    assert found.attached is not None
    assert (found.attached.model, found.attached.trust) == ("big", trust)
    assert "sk-secret" not in repr(found)
    model = await other.models.read("hosted")
    assert (model.config.is_attached, model.changed_by) == (True, "ann")


async def test_the_audit_log_tells_what_was_attached_without_the_key(stores: Stores) -> None:
    await stores.attached_endpoints.attach(endpoint(), actor="ann")
    await stores.attached_endpoints.attach(endpoint(weight=2), actor="bob")
    await stores.attached_endpoints.detach("hosted", "e1", actor="cy")
    events = await stores.events.read_latest(limit=9)
    assert [(event.action, event.actor) for event in events] == [
        ("endpoint.detached", "cy"),
        ("endpoint.changed", "bob"),
        ("endpoint.attached", "ann"),
        ("model.added", "ann"),
    ]
    assert "sk-secret" not in str(events)


async def test_the_same_url_again_changes_the_settings_and_may_keep_the_key(stores: Stores) -> None:
    first, _ = await stores.attached_endpoints.attach(endpoint(), actor="ann")
    second, is_new = await stores.attached_endpoints.attach(
        endpoint(2, url=first.url, api_key="", weight=5), actor="ann", absent=["api_key"]
    )
    assert (second.id, second.weight, second.api_key, is_new) == ("e1", 5, "sk-secret", False)
    assert second.generation == first.generation  # the same connections go on
    third, _ = await stores.attached_endpoints.attach(endpoint(3, url=first.url, api_key="sk-new"), actor="ann")
    assert (third.id, third.api_key) == ("e1", "sk-new")
    assert third.generation > first.generation
    await stores.attached_endpoints.attach(endpoint(4, url=first.url, upstream_model="another"), actor="ann")
    assert len(await stores.attached_endpoints.read_all()) == 2


async def test_attaching_again_keeps_every_setting_that_is_not_given(stores: Stores) -> None:
    url, trust = "https://10.0.0.1:8000/v1", ServerTrust(ca_pem="pem", pin="ab" * 32)
    first, _ = await stores.attached_endpoints.attach(
        endpoint(
            url=url,
            upstream_model="big",
            capacity=7,
            weight=3,
            trust=trust,
            protocol=UpstreamProtocol.OLLAMA,
            endpoints=("/v1/responses",),
            continuation="continue-final-message",
        ),
        actor="ann",
    )
    bare = endpoint(2, url=url, api_key="", capacity=64)
    others = [name for name in SETTINGS if name != "capacity"]
    second, is_new = await stores.attached_endpoints.attach(bare, actor="ann", absent=others)
    assert not is_new
    assert replace(second, changed_at=0) == replace(first, capacity=64, changed_at=0)
    assert second.generation == first.generation
    cleared, _ = await stores.attached_endpoints.attach(
        bare, actor="ann", absent=[name for name in others if name not in ("api_key", "pin", "endpoints")]
    )
    assert (cleared.id, cleared.api_key, cleared.trust) == (first.id, "", ServerTrust(ca_pem="pem"))
    assert (cleared.endpoints, cleared.continuation) == ((), "continue-final-message")
    await stores.attached_endpoints.attach(replace(bare, upstream_model="small"), actor="ann")
    assert len(await stores.attached_endpoints.read_all()) == 2
    with pytest.raises(InvalidInput, match="'big', 'small'"):
        await stores.attached_endpoints.attach(bare, actor="ann", absent=others)


async def test_endpoints_are_attached_beside_replicas_of_a_model_by_name_or_alias_but_not_to_a_redirect(
    stores: Stores,
) -> None:
    await stores.models.save(LOCAL, "ann")
    await stores.models.save("name: redirect\nalias: local\n", "ann")
    stored, _ = await stores.attached_endpoints.attach(endpoint(model="other"), actor="ann")
    assert stored.model == "local"
    assert [one.id for one in await routed(stores, "local")] == ["e1"]
    with pytest.raises(Conflict, match="attach the endpoint to that model"):
        await stores.attached_endpoints.attach(endpoint(model="redirect"), actor="ann")


async def test_an_unhealthy_endpoint_is_listed_among_the_replicas_and_gets_no_requests(stores: Stores) -> None:
    stored, _ = await stores.attached_endpoints.attach(endpoint(), actor="ann")
    await stores.attached_endpoints.note_health(stored, EndpointHealth.UNHEALTHY, "no answer")
    assert await routed(stores) == ()
    (status,) = await stores.replicas.read_statuses()
    assert status.verdict is not None
    assert (status.verdict.availability, status.verdict.why) == (Availability.OFFLINE, "no answer")
    assert status.row.token == ""
    # A probe of an earlier connection says nothing about the present one.
    changed, _ = await stores.attached_endpoints.attach(endpoint(api_key="sk-new"), actor="ann")
    await stores.attached_endpoints.note_health(stored, EndpointHealth.UNHEALTHY, "wrong key")
    assert await stores.attached_endpoints.read_all() == [changed]


async def test_a_detached_endpoint_is_draining_until_it_is_forgotten(stores: Stores) -> None:
    await stores.attached_endpoints.attach(endpoint(), actor="ann")
    await stores.attached_endpoints.forget(["e1"])
    assert len(await routed(stores)) == 1
    before = await stores.replicas.read_version()
    await stores.attached_endpoints.detach("hosted", "http://10.0.0.1:8000/v1", actor="ann")
    assert await stores.replicas.read_version() > before
    assert await routed(stores) == ()
    (draining,) = await stores.attached_endpoints.read_all()
    assert draining.state is EndpointState.DRAINING
    with pytest.raises(NotFound, match="has no attached endpoint"):
        await stores.attached_endpoints.detach("hosted", "e1", actor="ann")
    # It may be attached again meanwhile.
    again, is_new = await stores.attached_endpoints.attach(endpoint(2, url=draining.url), actor="ann")
    assert is_new
    await stores.attached_endpoints.forget(["e1", "e2"])
    assert await stores.attached_endpoints.read_all() == [again]


async def test_use_is_remembered_and_a_deleted_model_leaves_no_endpoint(stores: Stores) -> None:
    stored, _ = await stores.attached_endpoints.attach(endpoint(), actor="ann")
    await stores.replicas.touch({ReplicaId("e1"): -5_000})
    (used,) = await stores.attached_endpoints.read_all()
    assert used.last_used > stored.last_used
    await stores.models.delete("hosted", "ann")
    assert await stores.attached_endpoints.read_all() == []


async def test_the_number_of_endpoints_of_a_model_is_limited(stores: Stores) -> None:
    for number in range(ENDPOINTS_MAX):
        await stores.attached_endpoints.attach(endpoint(number), actor="ann")
    with pytest.raises(Conflict, match=str(ENDPOINTS_MAX)):
        await stores.attached_endpoints.attach(endpoint(ENDPOINTS_MAX), actor="ann")
    await stores.attached_endpoints.attach(replace(endpoint(1), weight=9), actor="ann")


async def test_a_server_of_anthropics_api_speaks_messages_itself(stores: Stores) -> None:
    await stores.attached_endpoints.attach(endpoint(protocol=UpstreamProtocol.ANTHROPIC), actor="ann")
    (found,) = await routed(stores)
    assert "/v1/messages" in found.endpoints
