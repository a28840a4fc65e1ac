"""`corral frontend`: opens the store and the bus, and runs the API, the UI and the controllers."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import click
import structlog

from corral.artifacts import Artifacts, ArtifactSettings
from corral.artifacts.host_settings import settings_from_environment, with_sources
from corral.bus.client import connect_bus
from corral.cli.client.settings_flags import read_settings, settings_options
from corral.cli.program_name import program_name
from corral.frontend.api.status.routes import FrontendInfo
from corral.frontend.auth.bus_credentials import BusAuthority, read_bus_keys
from corral.roles.frontend.exposure import check_exposure, public_url
from corral.roles.frontend.first_access import prepare_access
from corral.roles.frontend.multi_process import ProcessSlot, read_place, run_processes
from corral.roles.frontend.wiring import FrontendRole
from corral.settings.roles import FrontendSettings
from corral.settings.values import split_host_port
from corral.store.open import open_database
from corral.store.stores import Stores
from corral.system import Clock, Disk, Ids, SystemClock, SystemDisk, SystemIds
from corral.system.listen import bind_socket
from corral.system.run import run_until_signal
from corral.system.secret_files import ensure_secret, keep_data_to_owner
from corral.telemetry.logs import configure_logs

log = structlog.get_logger()


@click.command("frontend")
@settings_options(FrontendSettings)
def frontend_command(**flags: Any) -> None:
    """Run only a frontend, with your own store and message bus."""
    settings = read_settings(FrontendSettings, flags)
    configure_logs(level=settings.log_level, format=settings.log_format, role="frontend")
    clock, ids, disk = SystemClock(), SystemIds(), SystemDisk()
    place = read_place(settings)
    if place is None:
        run_until_signal(lambda: run_processes(settings, clock=clock, ids=ids, disk=disk))
    else:
        run_until_signal(lambda: run_frontend(settings, place, clock=clock, ids=ids, disk=disk))


@asynccontextmanager
async def _open_stores(settings: FrontendSettings, clock: Clock, ids: Ids) -> AsyncIterator[Stores]:
    url = settings.store or f"sqlite://{(settings.data_dir / 'corral.db').absolute()}"
    database = await open_database(url, connections=settings.store_connections, clock=clock, ids=ids)
    try:
        yield Stores(database)
    finally:
        await database.close()


def _artifact_settings(settings: FrontendSettings) -> ArtifactSettings:
    return with_sources(settings_from_environment(settings.data_dir / "artifacts", os.environ), settings)


async def run_frontend(settings: FrontendSettings, place: ProcessSlot, *, clock: Clock, ids: Ids, disk: Disk) -> None:
    check_exposure(settings.listen, auth=settings.auth)
    bus_keys = read_bus_keys(settings)
    if bus_keys is None:
        log.warning(
            "bus.anonymous",
            warning="THE MESSAGE BUS HAS NO CREDENTIALS: everyone who can reach it can control every node",
        )
    host, port = split_host_port(settings.listen)
    async with AsyncExitStack() as opened:
        opened.enter_context(disk.hold(settings.data_dir, place.name("frontend")))
        shared = place.count > 1
        if not shared:
            listener = bind_socket(host, port, setting="--listen")
            opened.callback(listener.close)
        stores = await opened.enter_async_context(_open_stores(settings, clock, ids))
        token = await prepare_access(settings, stores, ids=ids, disk=disk)
        frontend_id = ensure_secret(disk, settings.data_dir / f"{place.name('frontend')}.id", ids.uuid)
        authority = BusAuthority(settings, bus_keys, clock=clock, ids=ids)
        bus = await opened.enter_async_context(connect_bus(authority.bus_options(frontend_id)))
        artifacts = await opened.enter_async_context(Artifacts(_artifact_settings(settings), clock=clock, ids=ids))
        keep_data_to_owner(settings.data_dir)
        url = public_url(settings.public_url, settings.listen)
        info = FrontendInfo(frontend_id, settings, bus, url, program=program_name())
        role = FrontendRole(
            info, place, stores, bus, authority, token, artifacts=artifacts, clock=clock, ids=ids, disk=disk
        )
        if shared:
            # Only now that everything is ready: the kernel would assign clients to us while a sibling is idle.
            listener = bind_socket(host, port, setting="--listen", shared=True)
            opened.callback(listener.close)
        await role.run(listener)
