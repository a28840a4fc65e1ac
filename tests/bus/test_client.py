"""What the bus client promises, on a real nats-server."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from nats.aio.client import Client

from corral.bus.client import Bus, BusDenied, BusMessage, connect_bus
from corral.bus.credentials import Permissions
from corral.core.errors import (
    CorralError,
    InvalidInput,
    InvalidSetting,
    NoResponders,
    OutcomeUnknown,
    TimedOut,
    TooLarge,
    Unavailable,
)
from harness.machine_speed import promised
from harness.nats import Nats
from harness.waiting import wait_until_async

Connect = Callable[..., Awaitable[Bus]]

AT_ONCE_S = 1.0
EIGHT_MB = 8 << 20


async def echo(message: BusMessage) -> bytes:
    return b"echo " + message.data


def tell(error: CorralError) -> bytes:
    return f"{error.code}: {error}".encode()


async def is_back(bus: Bus) -> bool:
    return bus.connected


async def is_away(bus: Bus) -> bool:
    return not bus.connected


# Requests


async def test_a_request_gets_the_answer_of_who_serves_it(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")
    await server.serve("things.get", echo, concurrency=1)
    assert await client.request("things.get", b"a", within_s=20) == b"echo a"


async def test_many_requests_at_once_each_get_their_own_answer(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")
    await server.serve("things.get", echo, concurrency=8)
    asked = [str(number).encode() for number in range(200)]
    answers = await asyncio.gather(*(client.request("things.get", one, within_s=10) for one in asked))
    assert answers == [b"echo " + one for one in asked]


async def test_no_responder_is_reported_at_once_and_as_definitely_not_done(connect: Connect) -> None:
    client = await connect()
    with promised("the refusal", within_s=AT_ONCE_S), pytest.raises(NoResponders) as caught:
        await client.request("things.get", b"", within_s=30)
    assert isinstance(caught.value, Unavailable)


async def test_no_answer_in_time_leaves_the_outcome_unknown(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")
    gone = asyncio.Event()

    async def never(_message: BusMessage) -> bytes:
        await gone.wait()
        return b""

    await server.serve("things.get", never, concurrency=1)
    with promised("the answer", within_s=2), pytest.raises(TimedOut) as caught:
        await client.request("things.get", b"", within_s=0.1)
    assert isinstance(caught.value, OutcomeUnknown)
    gone.set()


async def test_an_answer_that_comes_too_late_reaches_no_other_request(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")
    release = asyncio.Event()

    async def slow_first(message: BusMessage) -> bytes:
        if message.data == b"first":
            await release.wait()
        return message.data

    await server.serve("things.get", slow_first, concurrency=4)
    with pytest.raises(TimedOut):
        await client.request("things.get", b"first", within_s=0.05)
    second = asyncio.ensure_future(client.request("things.get", b"second", within_s=20))
    release.set()
    assert await second == b"second"


async def test_an_empty_answer_is_an_answer(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")

    async def empty(_message: BusMessage) -> bytes:
        return b""

    await server.serve("things.get", empty, concurrency=1)
    assert await client.request("things.get", b"", within_s=20) == b""


@pytest.mark.parametrize("subject", ["secret.things", "Secret.Things", "$SYS.REQ.SERVER.PING"])
async def test_a_denied_request_fails_at_once(connect: Connect, subject: str) -> None:
    client = await connect("me", Permissions(publish=("open.>",), subscribe=("_INBOX.me.>",)))
    with promised("the refusal", within_s=AT_ONCE_S), pytest.raises(BusDenied, match="publish"):
        await client.request(subject, b"", within_s=30)


async def test_a_denied_publish_fails_at_once_if_it_is_confirmed(connect: Connect) -> None:
    client = await connect("me", Permissions(publish=("open.>",), subscribe=("_INBOX.me.>",)))
    await client.publish("open.things", b"", confirmed=True)
    with promised("the refusal", within_s=AT_ONCE_S), pytest.raises(BusDenied, match=r"Secret\.things"):
        await client.publish("Secret.things", b"", confirmed=True)
    await client.publish("open.things", b"", confirmed=True)


@pytest.mark.parametrize("subject", ["secret.things", "Secret.Things", "open.*.>", ">"])
async def test_a_denied_subscription_fails_at_once(connect: Connect, subject: str) -> None:
    client = await connect("me", Permissions(publish=("open.>",), subscribe=("open.mine.>", "_INBOX.me.>")))
    with promised("the refusal", within_s=AT_ONCE_S), pytest.raises(BusDenied, match="subscribe"):
        await client.serve(subject, echo, concurrency=1)


async def test_a_denied_subscription_spoils_no_other(connect: Connect) -> None:
    client = await connect("me", Permissions(publish=(">",), subscribe=("open.>", "_INBOX.me.>")))
    with pytest.raises(BusDenied):
        await client.serve("secret.things", echo, concurrency=1)
    await client.serve("open.things", echo, concurrency=1)
    assert await client.request("open.things", b"a", within_s=20) == b"echo a"


async def test_a_client_that_may_not_hear_its_own_replies_does_not_start(nats: Nats) -> None:
    credentials = nats.credentials(Permissions(publish=(">",), subscribe=("open.>",)))
    with promised("the refusal", within_s=AT_ONCE_S), pytest.raises(BusDenied, match="_INBOX"):
        async with connect_bus(nats.options(credentials, inbox="_INBOX.me")):
            pass


# Too large


async def test_a_message_larger_than_the_bus_takes_is_refused_before_it_is_sent(connect: Connect) -> None:
    client = await connect()
    with pytest.raises(TooLarge):
        await client.request("things.get", bytes(EIGHT_MB + 1), within_s=20)
    with pytest.raises(TooLarge):
        await client.publish("things.get", bytes(EIGHT_MB + 1))
    with pytest.raises(NoResponders):  # the connection has survived
        await client.request("things.get", b"", within_s=20)


async def test_an_answer_larger_than_the_bus_takes_reaches_the_caller_as_an_error(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")

    async def huge(_message: BusMessage) -> bytes:
        return bytes(EIGHT_MB + 1)

    await server.serve("things.get", huge, concurrency=1, answers=tell)
    assert (await client.request("things.get", b"", within_s=10)).startswith(b"too_large")


# Handlers


async def test_one_stuck_handler_delays_no_other(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")
    release, stuck = asyncio.Event(), asyncio.Event()

    async def handle(message: BusMessage) -> bytes:
        if message.data == b"stick":
            stuck.set()
            await release.wait()
        return message.data

    await server.serve("things.get", handle, concurrency=2)
    sticking = asyncio.ensure_future(client.request("things.get", b"stick", within_s=30))
    await stuck.wait()
    with promised("the answer", within_s=5):
        for number in range(20):
            assert await client.request("things.get", str(number).encode(), within_s=20) == str(number).encode()
    assert not sticking.done()
    release.set()
    assert await sticking == b"stick"


async def test_no_more_handlers_run_at_once_than_allowed_and_none_is_forgotten(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")
    running, most = 0, 0
    all_taken, release = asyncio.Event(), asyncio.Event()

    async def handle(message: BusMessage) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            all_taken.set()
        await release.wait()
        running -= 1
        return message.data

    await server.serve("things.get", handle, concurrency=3)
    asked = [str(number).encode() for number in range(12)]
    asking = [asyncio.ensure_future(client.request("things.get", one, within_s=20)) for one in asked]
    await all_taken.wait()
    await client.confirm()  # all twelve have been sent, and none more is being handled
    assert running == 3
    release.set()
    assert await asyncio.gather(*asking) == asked
    assert most == 3


async def test_a_stuck_subject_delays_no_other_subject(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")
    release = asyncio.Event()

    async def stick(_message: BusMessage) -> bytes:
        await release.wait()
        return b""

    await server.serve("things.stick", stick, concurrency=1)
    await server.serve("things.get", echo, concurrency=1)
    sticking = [asyncio.ensure_future(client.request("things.stick", b"", within_s=20)) for _ in range(5)]
    assert await client.request("things.get", b"a", within_s=20) == b"echo a"
    release.set()
    await asyncio.gather(*sticking)


async def test_a_failing_handler_still_replies_with_the_reason(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")

    async def fail(message: BusMessage) -> bytes:
        if message.data == b"known":
            raise InvalidInput("the name is empty")
        raise ZeroDivisionError("the secret is 42")

    await server.serve("things.get", fail, concurrency=1, answers=tell)
    assert await client.request("things.get", b"known", within_s=20) == b"invalid_input: the name is empty"
    unexpected = await client.request("things.get", b"", within_s=20)
    assert unexpected.startswith(b"internal: unexpected ZeroDivisionError")
    assert b"secret" not in unexpected


async def test_a_failing_handler_fails_no_later_message(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")

    async def fail_on_empty(message: BusMessage) -> bytes:
        return message.data[:1] if message.data else b"%d" % (1 // 0)

    await server.serve("things.get", fail_on_empty, concurrency=1)
    for _ in range(5):
        await client.publish("things.get", b"")
    assert await client.request("things.get", b"ok", within_s=20) == b"o"


async def test_an_answer_is_not_sent_where_the_guard_forbids(connect: Connect) -> None:
    server, client = await connect("server"), await connect("client")
    overheard: list[bytes] = []

    async def listen(message: BusMessage) -> None:
        overheard.append(message.data)

    await client.serve("victim.>", listen, concurrency=1)
    await server.serve("things.get", echo, concurrency=1, may_reply=lambda reply: reply.startswith("_INBOX.client."))
    other = await connect("other", inbox="victim")
    with pytest.raises(TimedOut):
        await other.request("things.get", b"for the victim", within_s=0.3)
    assert await client.request("things.get", b"a", within_s=20) == b"echo a"
    assert overheard == []


async def test_handlers_end_when_the_bus_is_closed(nats: Nats) -> None:
    ended = asyncio.Event()
    started = asyncio.Event()

    async def stick(_message: BusMessage) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    before = asyncio.all_tasks()
    async with connect_bus(nats.options(nats.credentials(None), inbox="_INBOX.me")) as bus:
        await bus.serve("things.get", stick, concurrency=4)
        for _ in range(10):
            await bus.publish("things.get", b"")
        await started.wait()
    assert ended.is_set()
    assert {task.get_name() for task in asyncio.all_tasks() - before if task.get_name().startswith("bus:")} == set()


# The connection goes and comes


async def test_a_cancel_in_the_moment_of_the_answer_is_not_lost(connect: Connect) -> None:
    """A worker told to stop while it starts must not run on."""
    bus = await connect()
    confirming = asyncio.ensure_future(bus.confirm())
    client = bus._client
    assert client is not None
    pings: list[asyncio.Future[bool]] = client._pongs
    await asyncio.sleep(0)
    assert pings, "it runs until it waits for the answer"
    pings[-1].add_done_callback(lambda _: confirming.cancel())
    with pytest.raises(asyncio.CancelledError):
        await confirming


class HardOfHearing:
    """Looks for a server, and misses the first times that it is told to end."""

    def __init__(self) -> None:
        self.missed = 0
        self.looking = asyncio.Event()

    async def look(self) -> None:
        self.looking.set()
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.missed += 1
                if self.missed > 3:
                    raise


async def test_a_closed_bus_looks_for_no_server_any_more(nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose bus died before it must end all the same."""
    hearing = HardOfHearing()
    async with connect_bus(nats.options(nats.credentials(None), inbox="_INBOX.me")) as bus:
        client = bus._client
        assert client is not None
        monkeypatch.setattr(client, "_select_next_server", hearing.look)
        nats.stop()
        await asyncio.wait_for(hearing.looking.wait(), 60)
    assert hearing.missed > 3
    assert client._reconnection_task is not None
    assert client._reconnection_task.done()


async def test_a_start_without_a_server_ends_in_time_all_the_same(nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    hearing = HardOfHearing()
    monkeypatch.setattr(Client, "_select_next_server", lambda _client: hearing.look())
    with pytest.raises(Unavailable, match="cannot connect to the message bus"):
        async with connect_bus(replace(nats.options(nats.credentials(None), inbox="_INBOX.me"), connect_within_s=0.2)):
            pass
    assert hearing.missed > 3


@pytest.mark.parametrize("content", [None, b"no certificate"])
async def test_a_certificate_authority_that_cannot_be_used_is_named(
    nats: Nats, tmp_path: Path, content: bytes | None
) -> None:
    ca_file = tmp_path / "ca.pem"
    if content is not None:
        ca_file.write_bytes(content)
    with pytest.raises(InvalidSetting, match=f"^bus_ca_file: cannot use {ca_file}: "):
        async with connect_bus(replace(nats.options(nats.credentials(None), inbox="_INBOX.me"), ca_file=ca_file)):
            pass


async def test_without_a_server_the_start_fails_with_a_reason(nats: Nats) -> None:
    nats.stop()
    with (
        promised("the answer", within_s=10),
        pytest.raises(Unavailable, match=r"cannot connect to the message bus nats://127"),
    ):
        async with connect_bus(replace(nats.options(nats.credentials(None), inbox="_INBOX.me"), connect_within_s=0.3)):
            pass


async def test_while_disconnected_sending_is_definitely_not_done(connect: Connect, nats: Nats) -> None:
    client = await connect()
    nats.stop()
    await wait_until_async(lambda: is_away(client), what="the loss is noticed")
    with promised("the refusal", within_s=AT_ONCE_S), pytest.raises(Unavailable, match="not connected"):
        await client.request("things.get", b"", within_s=30)
    with pytest.raises(Unavailable, match="not connected"):
        await client.publish("things.get", b"")


async def test_a_connection_lost_while_waiting_leaves_the_outcome_unknown_at_once(connect: Connect, nats: Nats) -> None:
    server, client = await connect("server"), await connect("client")
    arrived = asyncio.Event()

    async def stick(_message: BusMessage) -> bytes:
        arrived.set()
        await asyncio.Event().wait()
        return b""

    await server.serve("things.get", stick, concurrency=1)
    waiting = asyncio.ensure_future(client.request("things.get", b"", within_s=60))
    await arrived.wait()
    with promised("the answer", within_s=3):
        nats.stop()
        with pytest.raises(OutcomeUnknown) as caught:
            await waiting
    assert not isinstance(caught.value, TimedOut)


async def test_after_a_restart_of_the_server_all_subscriptions_work_again_and_listeners_are_called(
    connect: Connect, nats: Nats
) -> None:
    server, client = await connect("server"), await connect("client")
    handled = 0

    async def count(message: BusMessage) -> bytes:
        nonlocal handled
        handled += 1
        return message.data

    await server.serve("things.get", count, concurrency=4)
    await server.serve("things.put", echo, concurrency=4)
    told = asyncio.Event()

    async def listener() -> None:
        told.set()

    async def broken_listener() -> None:
        raise ZeroDivisionError

    server.on_reconnect(broken_listener)
    server.on_reconnect(listener)
    for _ in range(2):
        told.clear()
        nats.stop()
        await wait_until_async(lambda: is_away(server), what="the loss is noticed")
        nats.start()
        await asyncio.wait_for(told.wait(), 20)
        assert server.connected
        await wait_until_async(lambda: is_back(client), what="the client is back")
        handled = 0
        assert await client.request("things.get", b"a", within_s=20) == b"a"
        assert await client.request("things.put", b"a", within_s=20) == b"echo a"
        assert handled == 1


async def test_a_frozen_server_is_noticed_by_its_unanswered_pings(connect: Connect, nats: Nats) -> None:
    client = await connect(ping_every_s=0.2)
    nats.pause()
    try:
        waiting = asyncio.ensure_future(client.request("things.get", b"", within_s=60))
        with promised("to notice it", within_s=10), pytest.raises(OutcomeUnknown) as caught:
            await waiting
        assert not isinstance(caught.value, TimedOut)
        assert not client.connected
    finally:
        nats.resume()
    await wait_until_async(lambda: is_back(client), what="the client is back")


def test_with_the_settings_in_use_a_frozen_server_is_noticed_within_thirty_seconds() -> None:
    from corral.bus.client import PING_EVERY_S, PINGS_OUTSTANDING

    assert PING_EVERY_S * (PINGS_OUTSTANDING + 1) < 30


async def test_renewing_moves_to_the_credential_of_now_and_keeps_serving(connect: Connect, nats: Nats) -> None:
    used = [nats.credentials(None)]
    server = await connect("server", credentials=lambda: used[-1])
    client = await connect("client")
    await server.serve("things.get", echo, concurrency=1)
    used.append(nats.credentials(Permissions(publish=("_INBOX.client.>",), subscribe=("things.>", "_INBOX.server.>"))))
    told = asyncio.Event()

    async def listener() -> None:
        told.set()

    server.on_reconnect(listener)
    await server.renew()
    await asyncio.wait_for(told.wait(), 10)
    assert await client.request("things.get", b"a", within_s=20) == b"echo a"
    with pytest.raises(BusDenied):  # the new credential allows less
        await server.publish("things.put", b"", confirmed=True)


async def test_a_reconnect_that_loses_a_subscription_is_not_called_connected(connect: Connect, nats: Nats) -> None:
    narrow = Permissions(publish=(">",), subscribe=("_INBOX.server.>",))
    used = [nats.credentials(None)]
    server = await connect("server", credentials=lambda: used[-1])
    await server.serve("things.get", echo, concurrency=1)
    used.append(nats.credentials(narrow))
    await server.renew()

    async def told_why() -> bool:
        return not server.connected and "things.get" in server.last_problem

    await wait_until_async(told_why, what="the denial is seen")
    used.append(nats.credentials(None))
    await server.renew()
    await wait_until_async(lambda: is_back(server), what="connected with the wider credential")
    assert await (await connect("client")).request("things.get", b"a", within_s=20) == b"echo a"
