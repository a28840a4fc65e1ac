"""Durable state of commands: the generation of the last command for each backend, and the concrete backend that a
gallery's family name resolved to on this machine."""

import asyncio
from pathlib import Path

import msgspec

from corral.core.errors import Conflict, Unavailable
from corral.system import Disk


class OutdatedCommand(Conflict):
    code = "outdated_command"

    def __init__(self, backend: str, *, generation: int, accepted: int) -> None:
        super().__init__(
            f"the command of generation {generation} for {backend} was rejected: a newer one of generation {accepted}"
            " has been accepted"
        )


class _Entry(msgspec.Struct, omit_defaults=True):
    accepted: int | None = None
    applied: int | None = None
    concrete: str = ""
    former: str = ""
    """The build that the family had before the command of generation `moved_by` gave it another one."""
    moved_by: int | None = None
    before: str = ""
    """The digest of the version that was current before the command of generation `changed_by`."""
    changed_by: int | None = None


_decode = msgspec.json.Decoder(dict[str, _Entry]).decode


class AppliedGenerations:
    def __init__(self, path: Path, disk: Disk) -> None:
        self._path, self._disk = path, disk
        self._writing = asyncio.Lock()
        try:
            self._on_disk = disk.read(path)
            self._entries = _decode(self._on_disk) if self._on_disk is not None else {}
        except (OSError, msgspec.DecodeError) as error:
            raise Unavailable(
                f"cannot read {path} ({error}). Delete it and restart the worker, once no operation is in progress."
            ) from error

    async def accept(self, backend: str, generation: int | None) -> None:
        """Written to disk before the command runs, so that a restarted worker also rejects older commands."""
        if generation is None:
            return
        entry = self._entry(backend)
        if entry.accepted is not None and generation < entry.accepted:
            raise OutdatedCommand(backend, generation=generation, accepted=entry.accepted)
        entry.accepted = generation
        await self._write()

    async def record_applied(self, backend: str, generation: int | None) -> bool:
        """Whether the generation has changed."""
        if generation is None:
            return False
        changed = self._entry(backend).applied != generation
        self._entry(backend).applied = generation
        await self._write()
        return changed

    async def record_before(self, backend: str, generation: int | None, digest: str) -> None:
        """Before a command changes the version. A repeated command changes nothing: its first attempt may have left the
        new version."""
        entry = self._entry(backend)
        if generation is None or entry.changed_by == generation:
            return
        entry.before, entry.changed_by = digest, generation
        await self._write()

    def version_before(self, backend: str, generation: int | None) -> str | None:
        """The digest of the version that was current before the command of this generation."""
        entry = self._entries.get(backend)
        if entry is None or generation is None or entry.changed_by != generation:
            return None
        return entry.before or None

    async def record_undone(self, backend: str, generation: int | None) -> None:
        """The command was undone: it no longer counts as applied."""
        if generation is not None and self._entry(backend).applied == generation:
            self._entry(backend).applied = None
            await self._write()

    async def record_concrete(
        self, family: str, concrete: str, *, former: str = "", generation: int | None = None
    ) -> None:
        """`former`: the build that the family had until this command."""
        if family == concrete:
            return
        entry = self._entry(family)
        if former not in ("", concrete):
            entry.former, entry.moved_by = former, generation
        entry.concrete = concrete
        await self._write()

    def moved_from(self, family: str, generation: int | None) -> str | None:
        """The build that the family had before the command of this generation."""
        entry = self._entries.get(family)
        moved = entry is not None and generation is not None and entry.moved_by == generation
        return entry.former or None if entry is not None and moved else None

    async def forget_concrete(self, concrete: str) -> None:
        """Keeps generations: a command older than the delete must still be rejected."""
        families = [entry for entry in self._entries.values() if concrete in (entry.concrete, entry.former)]
        for entry in families:
            entry.concrete = "" if entry.concrete == concrete else entry.concrete
            entry.former = "" if entry.former == concrete else entry.former
        if families:
            await self._write()

    def applied(self, *names: str) -> int | None:
        known = [entry.applied for name in names if (entry := self._entries.get(name)) and entry.applied is not None]
        return max(known, default=None)

    def all_applied(self) -> dict[str, int]:
        return {name: entry.applied for name, entry in self._entries.items() if entry.applied is not None}

    def concrete(self, name: str) -> str | None:
        entry = self._entries.get(name)
        return entry.concrete or None if entry is not None else None

    def families(self, concrete: str) -> list[str]:
        return sorted(name for name, entry in self._entries.items() if entry.concrete == concrete)

    def _entry(self, name: str) -> _Entry:
        return self._entries.setdefault(name, _Entry())

    async def _write(self) -> None:
        """Does nothing if the state is on disk already. The next call retries a failed write."""
        async with self._writing:
            content = msgspec.json.encode(self._entries)
            if content == self._on_disk:
                return
            try:
                await asyncio.to_thread(self._disk.write, self._path, content)
            except OSError as error:
                raise Unavailable(
                    f"cannot write {self._path}: {error.strerror}. Check the disk, then try again"
                ) from error
            self._on_disk = content
