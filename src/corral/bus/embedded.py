"""The embedded message bus: keys, generated once, and the configuration of a nats-server that trusts only them."""

from dataclasses import dataclass
from pathlib import Path

from corral.bus.credentials import KeyPair, account_jwt, make_key, operator_jwt, read_key
from corral.core.errors import Unavailable
from corral.system import Clock, Disk, Ids
from corral.system.secret_files import ensure_secret


@dataclass(frozen=True, slots=True)
class BusFiles:
    """Paths of the seeds and the configuration, for settings that name files."""

    operator_seed: Path
    account_seed: Path
    system_seed: Path
    config: Path


def prepare_bus(directory: Path, *, host: str, port: int, clock: Clock, ids: Ids, disk: Disk) -> BusFiles:
    """Generates missing keys, and writes the configuration for this address."""
    files = BusFiles(
        directory / "operator.seed",
        directory / "account.seed",
        directory / "system.seed",
        directory / "nats-server.conf",
    )
    operator = _ensure_key("operator", files.operator_seed, ids, disk)
    account = _ensure_key("account", files.account_seed, ids, disk)
    system = _ensure_key("account", files.system_seed, ids, disk)
    accounts = directory / "accounts"
    config = _config(operator, account, system, host=host, port=port, accounts=accounts, clock=clock)
    try:
        disk.make_directory(accounts)
        disk.write(files.config, config.encode())
    except OSError as error:
        raise Unavailable(f"cannot write the bus's configuration to {directory}: {error.strerror}") from error
    return files


def _ensure_key(kind: str, path: Path, ids: Ids, disk: Disk) -> KeyPair:
    return read_key(kind, ensure_secret(disk, path, lambda: make_key(kind, ids.seed()).seed), setting=str(path))


def _config(
    operator: KeyPair, account: KeyPair, system: KeyPair, *, host: str, port: int, accounts: Path, clock: Clock
) -> str:
    now_s = clock.now_ms() // 1000
    return f"""# Written by Corral, by `corral up` at every start and by `corral bus init`.
host: "{host}"
port: {port}
server_name: corral
max_payload: 8MB
max_pending: 64MB
write_deadline: "10s"
operator: {operator_jwt(operator, system_account=system.public, now_s=now_s)}
system_account: {system.public}
resolver: {{ type: full, dir: "{accounts}", allow_delete: false, interval: "2m" }}
resolver_preload: {{
  {account.public}: {account_jwt(operator, account.public, name="corral", now_s=now_s)}
  {system.public}: {account_jwt(operator, system.public, name="system", now_s=now_s)}
}}
"""
