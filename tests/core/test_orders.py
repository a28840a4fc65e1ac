"""Who is asked to do what."""

from dataclasses import replace

import pytest

from core.test_drift import BUILD, DELETED, DONE, HAS_NEW, HAS_OLD, NEW, OLD, machine, policy, state
from corral.core.errors import InvalidInput, NotFound
from corral.core.intents import IntentState, Verb, Wish
from corral.core.nodes import Node, NodeId, NodeType
from corral.core.observed import ObservedBackend
from corral.core.operations import Order
from corral.core.orders import NodeState, pick_upgrades, plan_deletes, plan_rollbacks, spare_frozen, spare_rolled_back
from corral.core.policies import OnDrift, policy_for
from corral.core.rollout import plan_upgrade
from corral.core.targets import Target, pick_nodes
from corral.core.upgrades import Offered, find_upgrades, installed_names
from corral.core.variants import Unfit


def named(name: str, **fields: object) -> Node:
    return machine(id=NodeId(f"id-{name}"), name=name, **fields)


FAST = named("fast", worker_labels={"tier": "fast"})
SLOW = named("slow", worker_labels={"tier": "slow"})
PENDING = named("pending", approved=False)
AGENT = named("agent", node_type=NodeType.AGENT)
ALL = [FAST, SLOW, PENDING, AGENT]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(Target(), ["fast", "slow"], id="every-approved-machine-that-runs-backends"),
        pytest.param(Target(selector={"tier": "fast"}), ["fast"], id="those-a-selector-fits"),
        pytest.param(Target(selector={"tier": "none"}), [], id="a-selector-that-fits-none-is-no-error"),
        pytest.param(Target(nodes=("id-slow", "fast", "fast")), ["slow", "fast"], id="named-by-id-or-name-once-each"),
    ],
)
def test_pick_nodes(target: Target, expected: list[str]) -> None:
    assert [node.name for node in pick_nodes(ALL, target)] == expected


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("nobody", NotFound, "there is no node"),
        ("agent", InvalidInput, "runs no backends"),
        ("pending", InvalidInput, "waits for approval"),
    ],
)
def test_a_named_node_that_cannot_be_asked_is_an_error(name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        pick_nodes(ALL, Target(nodes=(name,)))


FAMILY = ObservedBackend(name="echo", is_meta=True, concrete="cpu-echo")


def test_an_upgrade_is_for_nodes_that_have_it_under_any_of_its_names() -> None:
    has, has_not = state(HAS_OLD, FAMILY, wish=DONE), state()
    for name in ("echo", "cpu-echo"):
        assert pick_upgrades([has, has_not], name) == [has]
        assert has.key_of(name) == "echo", "one backend has one row of orders"


@pytest.mark.parametrize(
    ("node", "only_if_wanted"),
    [
        pytest.param(state(HAS_NEW, FAMILY, wish=DONE), False, id="it-has-it"),
        pytest.param(state(wish=DONE), False, id="it-was-told-to-have-it"),
        pytest.param(NodeState(node=machine(), backends=None, newest={}), False, id="nobody-knows"),
        pytest.param(state(wish=DELETED), True, id="deleted-before"),
        pytest.param(state(), True, id="never-had-it"),
        pytest.param(
            NodeState(node=machine(), backends=[], newest={"cpu-echo": BUILD}), False, id="told-to-have-a-build-of-it"
        ),
    ],
)
def test_plan_deletes(node: NodeState, only_if_wanted: bool) -> None:
    (order,) = plan_deletes([node], "echo")
    assert order.only_if_wanted == only_if_wanted


BROKEN = "sha256:broken"


@pytest.mark.parametrize(
    ("versions", "current", "to", "expected"),
    [
        pytest.param((NEW, OLD), NEW, None, OLD, id="the-one-before"),
        pytest.param((NEW, BROKEN, OLD), NEW, None, OLD, id="one-that-never-worked-is-passed-over"),
        pytest.param((NEW, BROKEN), NEW, None, BROKEN, id="unless-there-is-no-other"),
        pytest.param((NEW, OLD), OLD, None, None, id="nothing-is-earlier-than-the-first"),
        pytest.param((NEW, BROKEN, OLD), OLD, NEW, NEW, id="one-asked-for-by-digest"),
        pytest.param((NEW,), NEW, OLD, None, id="one-that-is-not-there"),
    ],
)
def test_plan_rollbacks(versions: tuple[str, ...], current: str, to: str | None, expected: str | None) -> None:
    found = ObservedBackend(name="cpu-echo", digest=current, versions=versions)
    good = {OLD: Wish(element="echo", uris=("oci://r/e@old",)), NEW: Wish(element="echo")}
    orders, skipped = plan_rollbacks([state(found, FAMILY, wish=DONE)], "echo", to=to, wishes=good)
    assert [order.wish.digest for order in orders] == ([expected] if expected else [])
    assert len(skipped) == (0 if expected else 1)
    if expected == OLD:
        assert orders[0].wish.uris == ("oci://r/e@old",), "so that it can be installed again"


def test_who_goes_back_twice_has_left_two_versions() -> None:
    found = ObservedBackend(name="cpu-echo", digest=BROKEN, versions=(NEW, BROKEN, OLD))
    before = replace(DONE, wish=replace(DONE.wish, left=(NEW, OLD)))
    ((order,), _) = plan_rollbacks([state(found, FAMILY, wish=before)], "echo", to=None, wishes={OLD: DONE.wish})
    assert (order.wish.digest, set(order.wish.left)) == (OLD, {NEW, BROKEN})


def test_who_goes_back_while_an_upgrade_is_tried_stays_where_he_is() -> None:
    found = ObservedBackend(name="cpu-echo", digest=OLD, versions=(NEW, OLD, BROKEN))
    tried = replace(DONE, verb=Verb.UPGRADE, state=IntentState.PENDING)
    ((order,), _) = plan_rollbacks([state(found, FAMILY, wish=tried)], "echo", to=None, wishes={})
    assert (order.wish.digest, order.wish.left) == (OLD, (NEW,))


def upgrade_of(node: Node) -> Order:
    return Order(node_id=node.id, node_name=node.name, backend="echo", wish=DONE.wish)


@pytest.mark.parametrize(
    ("wish", "spared"),
    [
        pytest.param(replace(DONE.wish, left=(NEW,)), True, id="from-this-version"),
        pytest.param(replace(DONE.wish, left=(BROKEN,)), False, id="from-another"),
        pytest.param(DONE.wish, False, id="never"),
    ],
)
def test_what_was_rolled_back_is_spared(wish: Wish, spared: bool) -> None:
    held = NodeState(node=FAST, backends=[HAS_OLD], newest={"echo": replace(DONE, wish=wish)})
    other = NodeState(node=SLOW, backends=[HAS_OLD], newest={"echo": DONE})
    orders, skipped = spare_rolled_back([upgrade_of(FAST), upgrade_of(SLOW)], [held, other])
    assert [order.node_name for order in orders] == (["slow"] if spared else ["fast", "slow"])
    reason = "it was rolled back from this version; `corral backends upgrade echo --node fast` upgrades it all the same"
    assert [skip.reason for skip in skipped] == ([reason] if spared else [])
    offers = {("echo", held.node.id): Offered(variant="cpu-echo", digest=NEW, version="")}
    (lagging,) = find_upgrades([held], offers)["echo"].nodes
    assert lagging.rolled_back is spared


def test_what_a_policy_freezes_is_spared_where_it_does() -> None:
    states = [NodeState(node=node, backends=[HAS_OLD], newest={"echo": DONE}) for node in (FAST, SLOW)]
    frozen_there = policy(on_drift=OnDrift.FREEZE, selector={"tier": "fast"}, generation=10)
    free, (frozen,) = spare_frozen(states, "echo", [policy(), frozen_there])
    assert [state.node.name for state in free] == ["slow"]
    assert (frozen.node_name, "--drift p heal" in frozen.reason) == ("fast", True)


def test_a_localai_worker_has_nothing_to_go_back_to() -> None:
    found = ObservedBackend(name="cpu-echo", digest=NEW, versions=(NEW, OLD))
    node = state(found, FAMILY, wish=DONE, key_hash=None)
    orders, (skip,) = plan_rollbacks([node], "echo", to=None, wishes={})
    assert not orders
    assert "LocalAI" in skip.reason


@pytest.mark.parametrize(
    ("found", "offered", "cause"),
    [
        pytest.param(HAS_NEW, Offered(variant="cpu-echo", digest=NEW, version=""), None, id="up-to-date"),
        pytest.param(HAS_OLD, Offered(variant="cpu-echo", digest=NEW, version=""), "wrong_version", id="behind"),
        pytest.param(HAS_OLD, Offered(variant="cuda-echo", digest=NEW, version=""), "wrong_variant", id="other-build"),
        pytest.param(
            replace(HAS_OLD, version="1"), Offered(variant="cpu-echo", digest="", version="2"), "wrong_version",
            id="by-version-where-there-is-no-digest",
        ),
        pytest.param(HAS_OLD, Offered(variant="cpu-echo", digest="", version=""), None, id="unknown-is-not-behind"),
        pytest.param(HAS_OLD, Unfit("nothing fits"), None, id="not-offered-any-more"),
    ],
)  # fmt: skip
def test_find_upgrades(found: ObservedBackend, offered: Offered | Unfit, cause: str | None) -> None:
    node = state(found, FAMILY, wish=DONE)
    upgrades = find_upgrades([node], {("echo", node.node.id): offered})
    assert [one.cause for upgrade in upgrades.values() for one in upgrade.nodes] == ([cause] if cause else [])
    assert list(installed_names([node])) == ["echo"], "under the name it was installed by"


def test_every_node_is_in_the_one_wave_there_is() -> None:
    plan = plan_upgrade([NodeId("a"), NodeId("b")])
    assert (plan.waves, plan.wave_of(NodeId("b"))) == (((NodeId("a"), NodeId("b")),), 0)


def test_no_policy_is_for_a_machine_that_may_not_work() -> None:
    assert policy_for(PENDING, "echo", []) is None
