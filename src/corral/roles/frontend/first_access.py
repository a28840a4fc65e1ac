"""Creates the first admin key and the registration token: once, in the data directory; the store has their hashes."""

from pathlib import Path

import structlog

from corral.frontend.api.access.routes import new_api_key
from corral.settings.roles import FrontendSettings
from corral.store.access.api_keys import ApiKey, Scope
from corral.store.stores import Stores
from corral.system import Disk, Ids
from corral.system.secret_files import ensure_secret, read_secret, write_secret

log = structlog.get_logger()


async def prepare_access(settings: FrontendSettings, stores: Stores, *, ids: Ids, disk: Disk) -> str:
    """Returns the token with which nodes may join."""
    keys = settings.data_dir / "keys"
    belongs_to_up = settings.local_token is not None
    if settings.admin_key is not None:
        name = "settings" if belongs_to_up else "admin"
        await _add_admin(stores, settings.admin_key.get_secret_value(), ids, name=name)
    if settings.admin_key is None or belongs_to_up:
        await _ensure_local_admin(settings, stores, keys / "admin.key", ids=ids, disk=disk)
    if settings.local_token is not None:
        await stores.access.add_join_token(settings.local_token.get_secret_value(), approves=True)
    if settings.registration_token is not None:
        token = settings.registration_token.get_secret_value()
    else:
        token = ensure_secret(disk, keys / "join.token", ids.token)
    await stores.access.add_join_token(token)
    return token


async def _add_admin(stores: Stores, key: str, ids: Ids, *, name: str = "admin") -> ApiKey:
    return await stores.access.add_key(id=ids.uuid(), name=name, scope=Scope.ADMIN, key=key, actor="start")


async def _ensure_local_admin(settings: FrontendSettings, stores: Stores, path: Path, *, ids: Ids, disk: Disk) -> None:
    """Keep a valid admin key in the data directory: whoever can read that directory controls this cluster anyway.

    It is created at the first start, and again when it was lost or revoked. A frontend that joins others has none."""
    belongs_to_up = settings.local_token is not None
    kept = read_secret(disk, path)
    if kept is not None:
        if (await _add_admin(stores, kept, ids)).revoked_at is None:
            return
    elif not belongs_to_up and await _has_admin(stores):
        return
    made = new_api_key(ids)
    write_secret(disk, path, made)
    await _add_admin(stores, made, ids)
    log.info("access.admin_key_created", file=str(path))


async def _has_admin(stores: Stores) -> bool:
    return any(key.scope is Scope.ADMIN and key.revoked_at is None for key in await stores.access.read_keys())
