"""Who this machine is: a secret of its own, kept in the data directory, and where it belongs."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from corral.core.errors import InvalidSetting, Unavailable
from corral.system import Disk, Ids


@dataclass(frozen=True, slots=True)
class Identity:
    node_key: str = field(repr=False)
    join: str | None = None
    """The frontend joined last, so that a restart needs no flags."""
    name: str | None = None
    token: str | None = field(default=None, repr=False)
    """Kept so that a machine that was removed can ask to come back without a person at its keyboard."""


IDENTITY_FILE = "identity.json"
_decode = msgspec.json.Decoder(Identity).decode


def read_identity(data_dir: Path, *, ids: Ids, disk: Disk) -> Identity:
    path = data_dir / IDENTITY_FILE
    try:
        kept = disk.read(path)
        if kept is not None:
            return _decode(kept)
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise Unavailable(
            f"{path} is damaged ({error}). Delete it to join as a new machine; it then has to be approved again."
        ) from None
    identity = Identity(ids.token())
    write_identity(data_dir, identity, disk)
    return identity


def write_identity(data_dir: Path, identity: Identity, disk: Disk) -> None:
    try:
        disk.write(data_dir / IDENTITY_FILE, msgspec.json.encode(identity))
    except OSError as error:
        raise Unavailable(f"cannot write to {data_dir}: {error.strerror}") from error


def settle_identity(
    data_dir: Path,
    identity: Identity,
    *,
    join: str | None,
    name: str | None,
    token: str | None,
    host_name: str,
    disk: Disk,
) -> Identity:
    """What is given now goes before what was given last time; the outcome is what next time starts from."""
    settled = replace(
        identity,
        join=join or identity.join,
        name=name or identity.name or host_name,
        token=token or identity.token,
    )
    if settled.join is None:
        raise InvalidSetting(
            "--join: tell which frontend to join, for example --join http://10.0.0.2:8080;"
            " `corral join-command` on that machine prints the whole command"
        )
    if settled != identity:
        write_identity(data_dir, settled, disk)
    return settled
