"""The node's identity in the data directory: its secret, its name and its frontend."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from corral.core.errors import InvalidSetting, Unavailable
from corral.system import Disk, Ids


@dataclass(frozen=True, slots=True)
class Identity:
    node_key: str = field(repr=False)
    join: str | None = None
    """The frontend of the last join, so that a restart needs no flags."""
    name: str | None = None
    token: str | None = field(default=None, repr=False)
    """The join token, with which a removed node can register again without manual steps on it."""


IDENTITY_FILE = "identity.json"
_decode = msgspec.json.Decoder(Identity).decode


def read_identity(data_dir: Path, *, ids: Ids, disk: Disk) -> Identity:
    path = data_dir / IDENTITY_FILE
    try:
        kept = disk.read(path)
        if kept is not None:
            return _decode(kept)
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror}. Check its permissions and the disk.") from error
    except msgspec.DecodeError as error:
        raise Unavailable(
            f"{path} is damaged ({error}). Delete it to join as a new node, which must be approved again."
        ) from None
    identity = Identity(ids.token())
    write_identity(data_dir, identity, disk)
    return identity


def write_identity(data_dir: Path, identity: Identity, disk: Disk) -> None:
    try:
        disk.write(data_dir / IDENTITY_FILE, msgspec.json.encode(identity))
    except OSError as error:
        raise Unavailable(
            f"cannot write to {data_dir}: {error.strerror}. Check its permissions and the disk."
        ) from error


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
    """Merges the settings with those of the last start, which they override, and saves the result."""
    settled = replace(
        identity,
        join=join or identity.join,
        name=name or identity.name or host_name,
        token=token or identity.token,
    )
    if settled.join is None:
        raise InvalidSetting(
            "--join: set the frontend to join, for example --join http://10.0.0.2:8080;"
            " `corral join-command` on the frontend's machine prints the complete command"
        )
    if settled != identity:
        write_identity(data_dir, settled, disk)
    return settled
