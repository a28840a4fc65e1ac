"""Credentials end: by time, or because somebody ended them."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from pydantic import SecretStr

from corral.bus.client import Bus, BusMessage, BusOptions, Credentials, connect_bus
from corral.bus.credentials import make_key, node_permissions, read_expiry_s, user_jwt
from corral.bus.subjects import node_inbox, node_subject
from corral.core.errors import Unavailable
from corral.core.nodes.node import NodeId
from corral.frontend.auth.bus_credentials import BusAuthority, read_bus_keys
from corral.settings.roles import FrontendSettings
from corral.system import SystemClock, SystemIds
from harness.machine_speed import promised
from harness.nats import Nats
from harness.waiting import wait_until_async

Connect = Callable[..., Awaitable[Bus]]
NODE = NodeId("0c6a2b1e-5a1f-4b0e-9d0b-2f6f1b7d9a11")


async def count_calls(bus: Bus, subject: str) -> list[bytes]:
    calls: list[bytes] = []

    async def handle(message: BusMessage) -> bytes:
        calls.append(message.data)
        return message.data

    await bus.serve(subject, handle, concurrency=4)
    return calls


def authority(nats: Nats, directory: Path) -> BusAuthority:
    settings = FrontendSettings(
        data_dir=directory,
        bus=nats.url,
        bus_account_seed=SecretStr(nats.files.account_seed.read_text().strip()),
        bus_operator_seed=SecretStr(nats.files.operator_seed.read_text().strip()),
        bus_system_seed=SecretStr(nats.files.system_seed.read_text().strip()),
    )
    return BusAuthority(settings, read_bus_keys(settings), clock=SystemClock(), ids=SystemIds())


class Revoked:
    def __init__(self, **keys: int) -> None:
        self.keys = keys

    async def read_revoked(self) -> dict[str, int]:
        return self.keys


async def refused(options: BusOptions) -> str:
    """Why the server does not let this one in, asked once and directly."""
    credentials = options.credentials()
    told: list[Exception] = []

    async def on_error(error: Exception) -> None:
        told.append(error)

    keywords: dict[str, Any] = {}
    if credentials is not None:
        import base64

        keywords = {
            "user_jwt_cb": lambda: bytearray(credentials.jwt.encode()),
            "signature_cb": lambda nonce: base64.b64encode(credentials.key.sign(nonce.encode())),
        }
    client = Client()
    try:
        await client.connect(
            options.servers[0], allow_reconnect=False, max_reconnect_attempts=1, error_cb=on_error, **keywords
        )
    except (nats.errors.Error, OSError) as error:
        return str(error) or type(error).__name__
    finally:
        await client.close()
    return ""


async def test_an_expired_client_is_disconnected_and_reconnects_with_a_renewed_credential(
    connect: Connect, nats: Nats
) -> None:
    short, long = nats.credentials(None, expires_in_s=2), nats.credentials(None)
    in_force = [short]
    server = await connect("server", credentials=lambda: in_force[-1], connect_within_s=0.3)
    client = await connect("client")
    calls = await count_calls(server, "things.get")

    async def thrown_out() -> bool:
        return not server.connected

    await wait_until_async(thrown_out, what="the server ends the connection")
    # Several tries fail before there is a new credential; none of them may leave anything behind.
    await wait_until_async(
        lambda: _contains(server, "does not accept this process's credential"),
        what="it was tried with the old one",
        within_s=15,
    )
    in_force.append(long)

    async def back() -> bool:
        return server.connected

    await wait_until_async(back, what="back with the new credential", within_s=25)
    assert await client.request("things.get", b"once", within_s=20) == b"once"
    await client.confirm()
    assert calls == [b"once"]
    assert (await connections(nats, "test")) == 2


async def _contains(bus: Bus, text: str) -> bool:
    return text in bus.last_problem


async def connections(nats: Nats, name: str) -> int:
    """How many clients of that name the server sees."""
    system = nats.system_options()
    async with connect_bus(system) as bus:
        answer = await bus.request("$SYS.REQ.SERVER.PING.CONNZ", b"{}", within_s=20)
    import json

    return sum(one.get("name") == name for one in json.loads(answer)["data"]["connections"])


async def test_a_client_with_an_expired_credential_is_not_let_in(nats: Nats) -> None:
    expired = nats.credentials(None, expires_in_s=-5)
    assert await refused(nats.options(expired, inbox="_INBOX.me"))
    with pytest.raises(Unavailable, match="has expired"):
        async with connect_bus(replace(nats.options(expired, inbox="_INBOX.me"), connect_within_s=0.3)):
            pass


async def test_no_one_gets_in_without_a_credential(nats: Nats) -> None:
    assert "uthorization" in await refused(nats.options(None, inbox="_INBOX.me"))


async def test_no_one_gets_in_with_a_credential_of_another_account(nats: Nats) -> None:
    ids = SystemIds()
    stranger, user = make_key("account", ids.seed()), make_key("user", ids.seed())
    jwt = user_jwt(stranger, user.public, name="x", permissions=None, now_s=int(time.time()), expires_s=None)
    assert await refused(nats.options(Credentials(jwt, user), inbox="_INBOX.me"))


async def test_a_stolen_credential_is_worth_nothing_without_its_key(nats: Nats) -> None:
    theirs = nats.credentials(None)
    mine = make_key("user", SystemIds().seed())
    assert await refused(nats.options(Credentials(theirs.jwt, mine), inbox="_INBOX.me"))


async def test_a_revoked_credential_is_cut_off_within_a_second_and_stays_out(
    connect: Connect, nats: Nats, tmp_path: Path
) -> None:
    revoked = nats.credentials(node_permissions(NODE))
    victim = await connect("victim", credentials=lambda: revoked, inbox=node_inbox(NODE))
    frontend = await connect("frontend", inbox=f"_INBOX.fe.{NODE}.one")
    calls = await count_calls(victim, node_subject(NODE, "backend.install"))
    await frontend.request(node_subject(NODE, "backend.install"), b"before", within_s=20)
    bystander = await connect("bystander")
    enforcer = authority(nats, tmp_path)
    revocations = Revoked(**{revoked.key.public: int(time.time())})
    await enforcer.enforce(revocations)

    async def cut_off() -> bool:
        return not victim.connected

    with promised("to cut the victim off", within_s=1):
        await wait_until_async(cut_off, what="the victim is cut off")
    with pytest.raises(Unavailable):
        await frontend.request(node_subject(NODE, "backend.install"), b"after", within_s=0.5)
    assert calls == [b"before"]
    assert bystander.connected
    assert await refused(nats.options(revoked, inbox=node_inbox(NODE)))
    # The server forgets nothing that it is told again after a restart.
    nats.stop()
    nats.start()
    await enforcer.enforce(revocations, anew=True)
    assert await refused(nats.options(revoked, inbox=node_inbox(NODE)))
    assert not victim.connected


async def test_enforcing_the_same_list_again_asks_nothing_of_the_bus(nats: Nats, tmp_path: Path) -> None:
    enforcer = authority(nats, tmp_path)
    revocations = Revoked(**{make_key("user", SystemIds().seed()).public: 1})
    await enforcer.enforce(revocations)
    nats.stop()
    await enforcer.enforce(revocations)
    with pytest.raises(Unavailable):
        await enforcer.enforce(revocations, anew=True)


def test_the_end_of_a_credential_can_be_read_from_it(nats: Nats) -> None:
    assert read_expiry_s(nats.credentials(None).jwt) is None
    soon = read_expiry_s(nats.credentials(None, expires_in_s=60).jwt)
    assert soon is not None
    assert 0 < soon - time.time() <= 60
    assert read_expiry_s("not.a-jwt.") is None
