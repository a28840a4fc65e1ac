"""`corral frontend`: opens the store and the bus, and runs API, UI and controllers on them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import click
import structlog

from corral import __version__
from corral.bus.client import Bus, BusMessage, connect_bus
from corral.bus.messages import NodesChanged, encode
from corral.bus.subjects import NODES_CHANGED
from corral.cli.exposure import check_exposure, local_url, public_url
from corral.cli.options import read_settings, settings_options
from corral.controller.health import HealthController
from corral.core.errors import CorralError
from corral.core.presence import Limits
from corral.frontend.access import Gate
from corral.frontend.admin.access import new_api_key
from corral.frontend.admin.status import Self
from corral.frontend.app import Parts, build_app
from corral.frontend.beats import BeatBatcher
from corral.frontend.bus_authority import BusAuthority, enforce_quietly, read_bus_keys
from corral.frontend.feed import NodeFeed
from corral.frontend.join_tokens import JoinTokens
from corral.settings import FrontendSettings, redact_url, split_host_port
from corral.store.access import ApiKey, Scope
from corral.store.open import open_database
from corral.store.stores import Stores
from corral.system import Clock, Ids, SystemClock, SystemIds
from corral.system.http_server import serve_http
from corral.system.listen import bind_socket
from corral.system.lock import lock_directory
from corral.system.loops import keep_running
from corral.system.run import run_until_signal
from corral.system.secret_files import ensure_secret, read_secret, write_private
from corral.telemetry.logs import configure_logs

log = structlog.get_logger()

REPORT_EVERY_S = 5.0


@click.command("frontend")
@settings_options(FrontendSettings)
def frontend_command(**flags: Any) -> None:
    """Run a frontend alone, on a store and a message bus of your own."""
    settings = read_settings(FrontendSettings, flags)
    configure_logs(level=settings.log_level, format=settings.log_format, role="frontend")
    run_until_signal(lambda: run_frontend(settings, clock=SystemClock(), ids=SystemIds()))


async def _prepare_access(settings: FrontendSettings, stores: Stores, ids: Ids) -> str:
    """The first admin key and the registration token, made once; returns the token."""
    keys = settings.data_dir / "keys"
    if settings.admin_key is not None:
        await _add_admin(stores, settings.admin_key.get_secret_value(), ids)
    else:
        await _keep_local_admin(settings, stores, keys / "admin.key", ids)
    if settings.local_token is not None:
        await stores.access.add_join_token(settings.local_token.get_secret_value(), approves=True)
    if settings.registration_token is not None:
        token = settings.registration_token.get_secret_value()
    else:
        token = ensure_secret(keys / "join.token", ids.token)
    await stores.access.add_join_token(token)
    return token


async def _add_admin(stores: Stores, key: str, ids: Ids) -> ApiKey:
    return await stores.access.add_key(id=ids.uuid(), name="admin", scope=Scope.ADMIN, key=key, actor="start")


async def _keep_local_admin(settings: FrontendSettings, stores: Stores, path: Path, ids: Ids) -> None:
    """An admin key in the data directory that works: who may read that directory runs this fleet anyway.

    Made at the first start; made anew when it was lost or revoked. A frontend that joins others has none of its own."""
    belongs_to_up = settings.local_token is not None
    kept = read_secret(path)
    if kept is not None:
        if (await _add_admin(stores, kept, ids)).revoked_at is None:
            return
    elif not belongs_to_up and await _has_admin(stores):
        return
    made = new_api_key(ids)
    write_private(path, made + "\n")
    await _add_admin(stores, made, ids)
    log.info("access.admin_key_made", file=str(path))


async def _has_admin(stores: Stores) -> bool:
    return any(key.scope is Scope.ADMIN and key.revoked_at is None for key in await stores.access.read_keys())


@asynccontextmanager
async def _open_stores(settings: FrontendSettings, clock: Clock, ids: Ids) -> AsyncIterator[Stores]:
    url = settings.store or f"sqlite://{(settings.data_dir / 'corral.db').absolute()}"
    database = await open_database(url, connections=settings.store_connections, clock=clock, ids=ids)
    try:
        yield Stores(database)
    finally:
        await database.close()


async def run_frontend(settings: FrontendSettings, *, clock: Clock, ids: Ids) -> None:
    check_exposure(settings.listen, auth=settings.auth)
    bus_keys = read_bus_keys(settings)
    if bus_keys is None:
        log.warning(
            "bus.anonymous",
            warning="THE MESSAGE BUS HAS NO CREDENTIALS: everyone who reaches it can command every machine",
        )
    host, port = split_host_port(settings.listen)
    async with AsyncExitStack() as opened:
        opened.enter_context(lock_directory(settings.data_dir, "frontend"))
        listener = bind_socket(host, port, setting="--listen")
        opened.callback(listener.close)
        stores = await opened.enter_async_context(_open_stores(settings, clock, ids))
        token = await _prepare_access(settings, stores, ids)
        frontend_id = ensure_secret(Path(settings.data_dir) / "frontend.id", ids.uuid)
        authority = BusAuthority(settings, bus_keys, clock=clock, ids=ids)
        bus = await opened.enter_async_context(connect_bus(authority.bus_options(frontend_id)))
        me = Self(frontend_id, settings, bus)
        await _run_parts(me, stores, bus, authority, token, listener, clock=clock, ids=ids)


async def _run_parts(
    me: Self,
    stores: Stores,
    bus: Bus,
    authority: BusAuthority,
    token: str,
    listener: Any,
    *,
    clock: Clock,
    ids: Ids,
) -> None:
    settings = me.settings
    feed = NodeFeed(stores.nodes)
    beats = BeatBatcher(stores.registration)

    async def hint() -> None:
        """Only a hint: who misses it looks by itself a little later."""
        feed.poke()
        health.poke()
        try:
            await bus.publish(NODES_CHANGED, encode(NodesChanged(frontend=me.id)))
        except CorralError as error:
            log.debug("hint.not_sent", error=str(error))

    async def on_hint(_message: BusMessage) -> None:
        feed.poke()
        health.poke()

    health = HealthController(
        holder=me.id,
        verdicts=stores.health,
        leases=stores.leases,
        bus=bus,
        limits=Limits(suspect_after_s=settings.suspect_after_s, offline_after_s=settings.offline_after_s),
        every_s=settings.health_interval_s,
        clock=clock,
        on_change=hint,
        also=lambda: enforce_quietly(authority, stores.bus_credentials),
    )
    parts = Parts(
        me=me,
        stores=stores,
        authority=authority,
        gate=Gate(stores.access, clock=clock, auth=settings.auth),
        tokens=JoinTokens(stores.access, token, clock=clock),
        beats=beats,
        feed=feed,
        ids=ids,
        hint=hint,
    )
    bus.on_reconnect(lambda: enforce_quietly(authority, stores.bus_credentials, anew=True))
    await bus.serve(NODES_CHANGED, on_hint, concurrency=8)

    url = public_url(settings.public_url, settings.listen)

    async def report() -> None:
        try:
            await stores.frontends.report(id=me.id, url=url, version=__version__)
        except CorralError as error:
            me.store_problem = str(error)
            raise
        me.store_problem = ""
        await asyncio.sleep(REPORT_EVERY_S)

    running = settings.data_dir / "run.json"
    write_private(running, json.dumps({"url": local_url(settings.listen)}))
    log.info("frontend.started", listen=settings.listen, store=stores.database.location, bus=redact_url(settings.bus))
    try:
        async with asyncio.TaskGroup() as tasks:
            for name, work in (("beats", beats.run), ("feed", feed.run), ("health", health.run), ("report", report)):
                tasks.create_task(keep_running(name, work), name=name)
            # Not one of the tasks: a stop ends it first, while what open requests wait for still runs.
            await serve_http(build_app(parts), listener, on_stop=feed.close)
    finally:
        running.unlink(missing_ok=True)
        try:
            await health.release()
            await stores.frontends.leave(me.id)
        except CorralError as error:
            log.warning("frontend.left_untidily", error=str(error))
        log.info("frontend.stopped")
