"""Registration: which node a worker is, decided before anything is written."""

from dataclasses import replace
from typing import Any

import pytest

from core.replicas.test_availability import node
from corral.core.nodes.node import NameClaim, NodeClaim, NodeType
from corral.core.nodes.presence import Presence, PresenceEvent
from corral.core.nodes.registration import (
    CLAIM_KEPT_MS,
    CLAIMS_MOST,
    SEEN_EVERY_MS,
    NameTaken,
    Refuse,
    RegisterAgain,
    RegisterNew,
    RegistrationDecision,
    Replace,
    add_claim,
    decide_registration,
    find_claim,
    is_bound_to,
)

NOW = 10**12
WORKER = NodeClaim(
    name="n",
    node_type=NodeType.BACKEND,
    address="",
    http_address="h",
    key_hash="k",
    instance="i",
    registered_from="10.0.0.5",
)
LOCALAI = replace(WORKER, key_hash=None, instance=None)
KNOWN = node("n", key_hash="k", instance="i")
OTHER_KEY = node("n", key_hash="other")
KEYLESS = node("n", key_hash=None, instance=None, registered_from="10.0.0.5")
GONE, LEFT = Presence.GONE, Presence.LEFT


def decide(claim: NodeClaim, **known: Any) -> RegistrationDecision:
    defaults: dict[str, Any] = {"same_key": None, "same_name": None, "may_join": True, "auto_approve": False}
    return decide_registration(claim, **(defaults | known))


@pytest.mark.parametrize(
    ("claim", "known", "expected"),
    [
        pytest.param(WORKER, {}, RegisterNew(approved=False), id="a-new-name-waits-for-approval"),
        pytest.param(WORKER, {"auto_approve": True}, RegisterNew(approved=True), id="unless-approval-is-automatic"),
        pytest.param(
            WORKER, {"same_key": KNOWN}, RegisterAgain(KNOWN, PresenceEvent.REGISTERED, approved=True), id="a-renewal"
        ),
        pytest.param(
            replace(WORKER, instance="new"),
            {"same_key": KNOWN},
            RegisterAgain(KNOWN, PresenceEvent.RESTARTED, approved=True),
            id="a-new-process-of-a-known-worker",
        ),
        pytest.param(
            WORKER,
            {"same_key": KNOWN, "may_join": False},
            RegisterAgain(KNOWN, PresenceEvent.REGISTERED, approved=True),
            id="a-known-worker-needs-no-token",
        ),
        pytest.param(
            WORKER,
            {"same_key": node("n", approved=False, key_hash="k", instance="i"), "auto_approve": True},
            RegisterAgain(
                node("n", approved=False, key_hash="k", instance="i"), PresenceEvent.REGISTERED, approved=True
            ),
            id="automatic-approval-also-approves-one-that-waits",
        ),
        pytest.param(
            WORKER,
            {"same_key": node("n", approved=False, key_hash="k"), "auto_approve": True, "may_join": False},
            RegisterAgain(node("n", approved=False, key_hash="k"), PresenceEvent.REGISTERED, approved=False),
            id="but-not-without-a-token",
        ),
        pytest.param(
            replace(WORKER, name="new"),
            {"same_key": KNOWN},
            RegisterAgain(KNOWN, PresenceEvent.REGISTERED, approved=True),
            id="a-known-worker-may-change-its-name",
        ),
        pytest.param(
            WORKER,
            {"same_name": node("n", key_hash="other", presence=GONE)},
            NameTaken(node("n", key_hash="other", presence=GONE)),
            id="the-name-of-an-approved-node-is-only-claimed",
        ),
        pytest.param(
            WORKER,
            {"same_name": node("n", key_hash="other", approved=False, presence=GONE)},
            Replace(node("n", key_hash="other", approved=False, presence=GONE)),
            id="the-name-of-one-that-was-never-approved-and-is-offline-is-free",
        ),
        pytest.param(
            LOCALAI,
            {"same_name": KEYLESS},
            RegisterAgain(KEYLESS, PresenceEvent.REGISTERED, approved=True),
            id="a-localai-worker-is-known-by-name-and-address",
        ),
        pytest.param(
            LOCALAI,
            {"same_name": replace(KEYLESS, presence=LEFT)},
            RegisterAgain(replace(KEYLESS, presence=LEFT), PresenceEvent.RESTARTED, approved=True),
            id="one-that-left-has-restarted",
        ),
        pytest.param(
            replace(LOCALAI, registered_from="10.0.0.6"),
            {"same_name": KEYLESS},
            NameTaken(KEYLESS),
            id="from-another-address-it-only-claims-the-name",
        ),
        pytest.param(
            LOCALAI,
            {"same_name": replace(OTHER_KEY, presence=GONE)},
            NameTaken(replace(OTHER_KEY, presence=GONE)),
            id="a-worker-without-a-secret-cannot-take-over-one-with-a-secret",
        ),
    ],
)
def test_who_registers(claim: NodeClaim, known: dict[str, Any], expected: RegistrationDecision) -> None:
    assert decide(claim, **known) == expected


@pytest.mark.parametrize(
    ("claim", "known", "reason", "message"),
    [
        pytest.param(
            WORKER, {"may_join": False}, "not_recognised", "this node is unknown", id="no-token-and-no-known-key"
        ),
        pytest.param(WORKER, {"same_name": OTHER_KEY}, "name_taken", "not deregistered", id="the-name-of-a-live-node"),
        pytest.param(
            WORKER,
            {"same_name": replace(OTHER_KEY, presence=Presence.SUSPECT)},
            "name_taken",
            "Choose another name",
            id="the-name-of-a-suspect-node",
        ),
        pytest.param(
            WORKER,
            {"same_name": replace(OTHER_KEY, presence=Presence.JOINING, approved=False)},
            "name_taken",
            "remove the other node first",
            id="the-name-of-a-joining-node",
        ),
        pytest.param(
            WORKER, {"same_name": KEYLESS}, "name_taken", "has not deregistered", id="the-name-of-a-live-localai-worker"
        ),
        pytest.param(
            replace(WORKER, name="m"),
            {"same_key": KNOWN, "same_name": node("m")},
            "name_taken",
            "'m'",
            id="a-known-worker-that-wants-the-name-of-another",
        ),
        pytest.param(
            WORKER, {"look_alike": "N"}, "name_taken", "looks like 'N'", id="a-new-name-that-looks-like-another"
        ),
        pytest.param(
            replace(WORKER, name="new"),
            {"same_key": KNOWN, "look_alike": "NEW"},
            "name_taken",
            "looks like 'NEW'",
            id="also-for-a-known-worker-with-a-new-name",
        ),
    ],
)
def test_who_is_refused(claim: NodeClaim, known: dict[str, Any], reason: str, message: str) -> None:
    decision = decide(claim, **known)
    assert isinstance(decision, Refuse)
    assert decision.reason == reason
    assert message in decision.message


def test_a_known_worker_that_keeps_its_name_is_not_compared_with_others() -> None:
    assert isinstance(decide(WORKER, same_key=KNOWN, look_alike="N"), RegisterAgain)


@pytest.mark.parametrize(
    ("bound_to", "source_address", "expected"),
    [
        pytest.param("10.0.0.5", "10.0.0.5", True, id="the-same-address"),
        pytest.param("10.0.0.5", "10.0.0.6", False, id="another-address"),
        pytest.param("2001:db8::1", "2001:db8::2", True, id="another-address-of-its-ipv6-network"),
        pytest.param(None, "10.0.0.6", True, id="a-node-that-is-not-bound-yet"),
        pytest.param("10.0.0.5", None, True, id="an-address-that-is-not-known"),
    ],
)
def test_the_address_of_a_localai_worker(bound_to: str | None, source_address: str | None, expected: bool) -> None:
    assert is_bound_to(replace(KEYLESS, registered_from=bound_to), source_address) is expected


def claimed(identity: str, **fields: Any) -> NameClaim:
    plain = NameClaim(
        id=identity, key_hash=identity, source_address="10.0.0.9", http_address="h", made_at=NOW, seen_at=NOW
    )
    return replace(plain, **fields)


MINE = claimed("1", key_hash="k")


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param((), ["new"], id="a-first-claim-is-added"),
        pytest.param((claimed("1"),), ["1", "new"], id="beside-that-of-another-machine"),
        pytest.param((MINE,), ["1"], id="a-repeated-claim-is-the-same-one"),
        pytest.param((claimed("old", seen_at=NOW - CLAIM_KEPT_MS),), ["new"], id="a-claim-is-dropped-after-a-day"),
        pytest.param(
            (claimed("old", seen_at=NOW - CLAIM_KEPT_MS, rejected_at=NOW - 1),),
            ["old", "new"],
            id="a-rejection-is-kept-for-a-day",
        ),
        pytest.param(
            tuple(claimed(str(at)) for at in range(CLAIMS_MOST)),
            [str(at) for at in range(CLAIMS_MOST)],
            id="a-claim-beyond-the-limit-is-not-added",
        ),
    ],
)
def test_claims_on_a_name(claims: tuple[NameClaim, ...], expected: list[str]) -> None:
    assert [one.id for one in add_claim(claims, WORKER, new_id="new", now_ms=NOW)] == expected


@pytest.mark.parametrize(
    ("since_ms", "seen_at"),
    [
        pytest.param(SEEN_EVERY_MS - 1, NOW - SEEN_EVERY_MS + 1, id="a-repeated-claim-is-not-stored-each-time"),
        pytest.param(SEEN_EVERY_MS, NOW, id="but-every-thirty-seconds"),
    ],
)
def test_when_a_repeated_claim_is_stored(since_ms: int, seen_at: int) -> None:
    [after] = add_claim((replace(MINE, seen_at=NOW - since_ms),), WORKER, new_id="new", now_ms=NOW)
    assert after.seen_at == seen_at


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        pytest.param(WORKER, True, id="by-its-secret"),
        pytest.param(replace(WORKER, key_hash="z"), False, id="not-with-another-secret"),
        pytest.param(replace(LOCALAI, registered_from="10.0.0.9"), False, id="nor-without-one-from-the-same-address"),
    ],
)
def test_find_claim(claim: NodeClaim, found: bool) -> None:
    assert (find_claim((MINE,), claim) is not None) is found


def test_the_claim_of_a_localai_worker_is_found_by_its_address() -> None:
    keyless = claimed("1", key_hash=None)
    assert find_claim((keyless,), replace(LOCALAI, registered_from="10.0.0.9")) == keyless
    assert find_claim((keyless,), LOCALAI) is None
