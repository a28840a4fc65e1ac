"""Who may do what on the bus, tried out on a real server: the whole table, and nothing beyond it (S-34 to S-38)."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import nats as nats_py
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from corral.bus.client import Bus, BusMessage, Credentials
from corral.bus.credentials import frontend_permissions, node_permissions
from corral.bus.subjects import frontend_inbox, node_inbox, node_reply_space, node_subject, sanitise_token
from corral.core.errors import TimedOut
from corral.core.nodes.node import NodeId
from corral.worker.commands import reply_guard
from harness.nats import Nats

Connect = Callable[..., Awaitable[Bus]]

A = NodeId("0c6a2b1e-5a1f-4b0e-9d0b-2f6f1b7d9a11")
B = NodeId("7d0f9a1c-0b6e-4f6a-8a43-64a8c7f6a2d0")

# What each role may do, written out by hand: `p` publish, `s` subscribe. Everything else must be refused.
#   subject                                          node A  frontend
MATRIX: list[tuple[str, str, str]] = [
    (f"nodes.{A}.backend.install",                    "ps",   "ps"),
    (f"nodes.{A}.backend.install.op-1.progress",      "ps",   "ps"),
    (f"nodes.{A}.models.running",                     "ps",   "ps"),
    (f"nodes.{A}.files.ensure",                       "ps",   "ps"),
    (f"nodes.{A}.stop",                               "ps",   "ps"),
    (f"nodes.{A}.>",                                  "s",    "s"),
    (f"nodes.{A}",                                    "",     "ps"),
    (f"nodes.{A}x.stop",                              "",     "ps"),
    (f"nodes.{B}.backend.install",                    "",     "ps"),
    (f"nodes.{B}.backend.install.op-1.progress",      "",     "ps"),
    (f"nodes.{B}.stop",                               "",     "ps"),
    (f"nodes.{B}.>",                                  "",     "s"),
    ("nodes.*.stop",                                  "",     "s"),
    ("nodes.>",                                       "",     "s"),
    (f"_INBOX.node.{A}.1",                            "ps",   "ps"),
    (f"_INBOX.node.{A}.>",                            "s",    "s"),
    (f"_INBOX.node.{B}.1",                            "",     "ps"),
    (f"_INBOX.node.{B}.>",                            "",     "s"),
    ("_INBOX.node.*.1",                               "",     "s"),
    (f"_INBOX.fe.{A}.frontend-1.1",                   "p",    "ps"),
    (f"_INBOX.fe.{A}.>",                              "",     "s"),
    (f"_INBOX.fe.{B}.frontend-1.1",                   "",     "ps"),
    ("_INBOX.fe.self.frontend-1.1",                   "",     "ps"),
    ("_INBOX.fe.*.frontend-1.>",                      "",     "s"),
    ("_INBOX.abc.1",                                  "",     "ps"),
    ("_INBOX.>",                                      "",     "s"),
    ("corral.nodes.changed",                          "",     "ps"),
    ("gallery.op-1.progress",                         "",     "ps"),
    ("gallery.op-1.cancel",                           "",     "ps"),
    ("gallery.opcache.start",                         "",     "ps"),
    ("staging.model.progress",                        "",     "ps"),
    ("cache.invalidate.models",                       "",     "ps"),
    ("state.finetune-jobs.delta",                     "",     "ps"),
    ("prefixcache.observe",                           "",     "ps"),
    ("jobs.new",                                      "",     ""),
    ("anything",                                      "",     ""),
    (">",                                             "",     ""),
    ("*.>",                                           "",     ""),
    ("$SYS.REQ.SERVER.PING",                          "",     ""),
    ("$SYS.REQ.CLAIMS.UPDATE",                        "",     ""),
    ("$SYS.>",                                        "",     ""),
    ("$JS.API.INFO",                                  "",     ""),
]  # fmt: skip


@asynccontextmanager
async def plain_client(nats: Nats, credentials: Credentials) -> AsyncIterator[tuple[Client, list[str]]]:
    """nats-py itself, and what the server complained about: independent of our own client."""
    complaints: list[str] = []

    async def on_error(error: Exception) -> None:
        complaints.append(str(error))

    client = await nats_py.connect(
        nats.url,
        user_jwt_cb=lambda: bytearray(credentials.jwt.encode()),
        signature_cb=lambda nonce: base64.b64encode(credentials.key.sign(nonce.encode())),
        error_cb=on_error,
        allow_reconnect=False,
    )
    try:
        yield client, complaints
    finally:
        await client.close()


async def settle(client: Client) -> None:
    await client.flush()  # nats-py lets a ping overtake what was sent before it
    await client.flush()


async def may(client: Client, complaints: list[str], subject: str) -> str:
    """Which of `ps` the server lets this client do on `subject`."""
    allowed = ""
    if not any(wildcard in subject for wildcard in "*>"):
        complaints.clear()
        await client.publish(subject, b"")
        await settle(client)
        allowed += "" if complaints else "p"
    complaints.clear()
    subscription = await client.subscribe(subject)
    await settle(client)
    allowed += "" if complaints else "s"
    await subscription.unsubscribe()
    return allowed


@pytest.mark.parametrize("role", ["node", "frontend"])
async def test_each_role_may_do_exactly_what_the_table_says(nats: Nats, role: str) -> None:
    permissions = node_permissions(A) if role == "node" else frontend_permissions()
    expected = {subject: node if role == "node" else frontend for subject, node, frontend in MATRIX}
    found = {}
    async with plain_client(nats, nats.credentials(permissions)) as (client, complaints):
        for subject in expected:
            found[subject] = await may(client, complaints, subject)
    assert found == expected


async def test_a_node_that_listens_to_all_it_may_hears_only_what_is_its_own(nats: Nats) -> None:
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    async with AsyncExitStack() as opened:
        node, _ = await opened.enter_async_context(plain_client(nats, nats.credentials(node_permissions(A))))
        everyone, complaints = await opened.enter_async_context(
            plain_client(nats, nats.credentials(frontend_permissions()))
        )
        for subject in node_permissions(A).subscribe:
            await node.subscribe(subject, cb=hear)
        await settle(node)
        sent = [subject for subject, _, frontend in MATRIX if "p" in frontend]
        for subject in sent:
            await everyone.publish(subject, b"")
        await settle(everyone)
        await settle(node)
        assert complaints == []
    own = (f"nodes.{A}.", f"_INBOX.node.{A}.")
    assert sorted(heard) == sorted(subject for subject in sent if subject.startswith(own))
    assert heard


async def test_replies_to_one_frontend_are_not_heard_by_a_node_that_guesses_the_address(
    connect: Connect, nats: Nats
) -> None:
    """A node may publish into the reply space of requests to itself, never into that of another node (S-38)."""
    frontend = await connect(
        "frontend",
        frontend_permissions(),
        inbox="_INBOX.fe.*.one",
        inbox_for=lambda subject: frontend_inbox("one", subject),
    )
    async with plain_client(nats, nats.credentials(node_permissions(B))) as (forger, complaints):
        node = await connect("node", node_permissions(A), inbox=node_inbox(A))
        asked, release = asyncio.Event(), asyncio.Event()

        async def slow(_message: BusMessage) -> bytes:
            asked.set()
            await release.wait()
            return b"the truth"

        await node.serve(node_subject(A, "models.running"), slow, concurrency=1)
        asking = asyncio.ensure_future(frontend.request(node_subject(A, "models.running"), b"", within_s=10))
        await asked.wait()
        for number in range(1, 20):
            await forger.publish(f"_INBOX.fe.{A}.one.{number}", b"a lie")
        await settle(forger)
        assert len(complaints) == 19
        release.set()
        assert await asking == b"the truth"


async def test_a_reply_address_in_another_nodes_space_is_not_used(connect: Connect) -> None:
    node = await connect("node", node_permissions(A), inbox=node_inbox(A))

    async def running(_message: BusMessage) -> bytes:
        return b'{"models":[]}'

    guard = reply_guard(A, frontend_is_localai=False)
    await node.serve(node_subject(A, "models.running"), running, concurrency=1, may_reply=guard)
    frontend = await connect("frontend", frontend_permissions(), inbox=f"_INBOX.fe.{A}.one")
    assert await frontend.request(node_subject(A, "models.running"), b"{}", within_s=20) == b'{"models":[]}'
    astray = await connect("astray", frontend_permissions(), inbox=f"_INBOX.fe.{B}.one")
    with pytest.raises(TimedOut):
        await astray.request(node_subject(A, "models.running"), b"{}", within_s=0.3)


@pytest.mark.parametrize(
    ("reply", "corral", "localai"),
    [
        pytest.param(f"_INBOX.fe.{A}.one.1", True, True, id="a-frontends-question-to-this-node"),
        pytest.param(f"_INBOX.node.{A}.1", True, True, id="its-own-inbox"),
        pytest.param(f"_INBOX.fe.{B}.one.1", False, True, id="a-question-to-another-node"),
        pytest.param(f"_INBOX.node.{B}.1", False, True, id="another-nodes-inbox"),
        pytest.param(f"_INBOX.fe.{A}x.one.1", False, True, id="an-id-that-only-begins-alike"),
        pytest.param("_INBOX.abc.1", False, True, id="an-inbox-of-localai"),
        pytest.param(f"nodes.{B}.stop", False, False, id="a-command-to-another-node"),
        pytest.param("$SYS.REQ.SERVER.PING", False, False, id="the-servers-own"),
    ],
)
def test_reply_guard(reply: str, corral: bool, localai: bool) -> None:
    assert reply_guard(A, frontend_is_localai=False)(reply) is corral
    assert reply_guard(A, frontend_is_localai=True)(reply) is localai


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("qwen3-4b", "qwen3-4b"),
        ("a.b", "a-b"),
        ("*", "-"),
        (">", "-"),
        ("a b\tc\nd", "a-b-c-d"),
        ("..>*", "----"),
        ("Llama/3:8B@Q4", "Llama/3:8B@Q4"),
        ("naïve-☃", "naïve-☃"),
        ("", ""),
    ],
)
def test_each_reserved_character_becomes_a_dash_and_nothing_else_changes(text: str, expected: str) -> None:
    assert sanitise_token(text) == expected


@pytest.mark.parametrize("hostile", ["*", ">", "a.b", f"{B}.>", "x >"])
def test_an_id_with_wildcards_would_widen_nothing(hostile: str) -> None:
    """Ids are made by us; should one ever come from outside, it still names one token (S-37)."""
    tokens = len(f"nodes.{A}.>".split("."))
    allowed = node_permissions(NodeId(hostile))
    for subject in (*allowed.publish, *allowed.subscribe):
        *fixed, last = subject.split(".")
        assert last == ">"
        assert not set("*> \t\n") & set("".join(fixed))
    assert len(node_subject(hostile, ">").split(".")) == tokens
    assert len(node_reply_space(hostile).split(".")) == 4
    assert len(node_inbox(hostile).split(".")) == 3
