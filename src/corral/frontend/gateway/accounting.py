"""Requests that a replica answered, whole or in part, noted as they end and counted in batches.

A batch is small: what it holds is still in the processor's caches when it is counted, and counting never takes long."""

from itertools import groupby
from operator import itemgetter

from corral.frontend.gateway.ports import UsageSink
from corral.frontend.gateway.targets import Endpoint
from corral.frontend.gateway.token_usage import Said, read_usages
from corral.frontend.gateway.trace import Note, TraceBuffer

BATCH = 64
_TARGET_STATUS_KEY = itemgetter(2, 5, 6)


class RequestAccounting:
    def __init__(self, notes: TraceBuffer, usage: UsageSink | None) -> None:
        self._notes = notes
        self._usage = usage
        self._new: list[Note] = []
        self._said: list[Said] = []

    def add(self, note: Note, said: Said) -> None:
        """An answer that came whole."""
        self._said.append(said)
        self._new.append(note)
        if len(self._new) >= BATCH:
            self.fold()

    def fold(self) -> None:
        """Before anyone looks at the meters, and twice a second."""
        new, said = self._new, self._said
        self._notes.entries.extend(new)
        counted = 0
        for (target, status, key_id), group in groupby(new, _TARGET_STATUS_KEY):
            notes = list(group)
            self._count(target, status, key_id, notes, said[counted : counted + len(notes)])
            counted += len(notes)
        new.clear()
        said.clear()

    def count_part(self, note: Note, said: Said) -> None:
        """An answer that began and will not end was worked for all the same: it counts with what came of it."""
        target, status, key_id = _TARGET_STATUS_KEY(note)
        self._count(target, status, key_id, [note], [said])

    def _count(self, target: Endpoint, status: int, key_id: str | None, notes: list[Note], said: list[Said]) -> None:
        meters = target.meters
        meters.count_status(status, len(notes))
        if status < 400:  # how fast a request was refused says nothing about the model
            # One that broke off after its head never began.
            meters.first_byte.observe_all([note[9] - note[8] for note in notes if note[9]])
        meters.latency.observe_all([note[10] - note[8] for note in notes])
        tokens_in, tokens_out = read_usages([each for each in said if isinstance(each, bytes)])
        for each in said:
            if isinstance(each, tuple):
                tokens_in += each[0]
                tokens_out += each[1]
        meters.tokens_in.value += tokens_in
        meters.tokens_out.value += tokens_out
        if self._usage is not None:
            self._usage.count(
                key_id=key_id,
                model=target.served.name,
                node_id=target.replica.node_id,
                requests=len(notes),
                tokens_in=tokens_in,
                tokens_out=tokens_out,
            )
