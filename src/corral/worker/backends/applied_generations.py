"""What the worker must not forget over a restart: how new the last order for each backend was, and which concrete
backend a gallery's family name stands for on this machine."""

import asyncio
from pathlib import Path

import msgspec

from corral.core.errors import Conflict, Unavailable
from corral.system import Disk


class OutdatedCommand(Conflict):
    code = "outdated_command"

    def __init__(self, backend: str, *, generation: int, accepted: int) -> None:
        super().__init__(
            f"an order of generation {generation} for {backend} came after one of generation {accepted};"
            " it is outdated and was not carried out"
        )


class _Entry(msgspec.Struct, omit_defaults=True):
    accepted: int | None = None
    applied: int | None = None
    concrete: str = ""


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
                f"{path} cannot be read ({error}). Deleting it is safe, unless outdated orders are still under way."
            ) from error

    async def accept(self, backend: str, generation: int | None) -> None:
        """On disk before it is acted upon, so that a worker killed in between refuses the older order as well."""
        if generation is None:
            return
        entry = self._entry(backend)
        if entry.accepted is not None and generation < entry.accepted:
            raise OutdatedCommand(backend, generation=generation, accepted=entry.accepted)
        entry.accepted = generation
        await self._write()

    async def note_applied(self, backend: str, generation: int | None) -> bool:
        """Whether that is news."""
        if generation is None:
            return False
        is_news = self._entry(backend).applied != generation
        self._entry(backend).applied = generation
        await self._write()
        return is_news

    async def note_undone(self, backend: str, generation: int | None) -> None:
        """That order was taken back: nobody may read here that it was carried out."""
        if generation is not None and self._entry(backend).applied == generation:
            self._entry(backend).applied = None
            await self._write()

    async def note_concrete(self, family: str, concrete: str) -> None:
        if family != concrete:
            self._entry(family).concrete = concrete
            await self._write()

    async def forget_concrete(self, concrete: str) -> None:
        """Generations stay: an order older than the delete must still be refused."""
        families = [entry for entry in self._entries.values() if entry.concrete == concrete]
        for entry in families:
            entry.concrete = ""
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
        """Unless all of it is on disk already. What could not be written is tried again by the next who comes."""
        async with self._writing:
            content = msgspec.json.encode(self._entries)
            if content == self._on_disk:
                return
            try:
                await asyncio.to_thread(self._disk.write, self._path, content)
            except OSError as error:
                raise Unavailable(
                    f"cannot note an order in {self._path}: {error.strerror}. Check the disk, then ask again"
                ) from error
            self._on_disk = content
