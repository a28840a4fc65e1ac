"""Requests that a replica answered, whole or in part, noted as they end and counted in batches.

A batch is small: what it holds is still in the processor's caches when it is counted, and counting never takes long."""

from itertools import groupby

from corral.frontend.serving.notes import Note, Notes
from corral.frontend.serving.ports import UsageSink
from corral.frontend.serving.targets import Target
from corral.frontend.serving.usage import Said, read_usage

BATCH = 64


class Ledger:
    def __init__(self, notes: Notes, usage: UsageSink | None) -> None:
        self._notes = notes
        self._usage = usage
        self._entries: list[tuple[Note, Said]] = []
        self._append = self._entries.append

    def add(self, note: Note, said: Said) -> None:
        """An answer that came whole."""
        self._append((note, said))
        if len(self._entries) >= BATCH:
            self.fold()

    def fold(self) -> None:
        """Before anyone looks at the meters, and twice a second."""
        entries = self._entries
        self._notes.entries.extend([note for note, _ in entries])
        for (target, key_id), group in groupby(entries, _whose):
            self._count(target, key_id, list(group))
        entries.clear()

    def count_part(self, note: Note, said: Said) -> None:
        """An answer that began and will not end was worked for all the same: it counts with what came of it."""
        self._count(*_whose((note, said)), [(note, said)])

    def _count(self, target: Target | None, key_id: str | None, entries: list[tuple[Note, Said]]) -> None:
        assert target is not None
        meters = target.meters
        all_in = all_out = 0
        for (_, _, _, _, _, status, _, _, began_s, first_s, ended_s, _), said in entries:
            meters.count_status(status)
            meters.first_byte.observe(first_s - began_s)
            meters.latency.observe(ended_s - began_s)
            tokens_in, tokens_out = read_usage(said) if said.__class__ is bytes else said
            all_in += tokens_in
            all_out += tokens_out
        meters.tokens_in.value += all_in
        meters.tokens_out.value += all_out
        if self._usage is not None:
            self._usage.count(
                key_id=key_id,
                model=target.served.name,
                node_id=target.replica.node_id,
                requests=len(entries),
                tokens_in=all_in,
                tokens_out=all_out,
            )


def _whose(entry: tuple[Note, Said]) -> tuple[Target | None, str | None]:
    note = entry[0]
    return note[2], note[6]
