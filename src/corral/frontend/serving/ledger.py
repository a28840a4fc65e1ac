"""Requests answered, whole or in part, noted as they end and counted in batches: a note costs one append."""

from corral.frontend.serving.ports import UsageSink
from corral.frontend.serving.targets import Target
from corral.frontend.serving.usage import read_usage

Entry = tuple[Target, str | None, int, float, float, float, bytes, tuple[int, int] | None]
"""Target, key, status; when it began, got its first byte, ended; the part of the answer that tells tokens, unread; or
the tokens themselves."""


class Ledger:
    def __init__(self, usage: UsageSink | None) -> None:
        self.entries: list[Entry] = []
        self._usage = usage

    def fold(self) -> None:
        """Before anyone looks at the meters, and twice a second."""
        entries, self.entries = self.entries, []
        for target, key_id, status, began_s, first_s, ended_s, usage, tokens in entries:
            meters = target.meters
            meters.count_status(status)
            meters.first_byte.observe(first_s - began_s)
            meters.latency.observe(ended_s - began_s)
            tokens_in, tokens_out = tokens or read_usage(usage)
            meters.tokens_in.value += tokens_in
            meters.tokens_out.value += tokens_out
            if self._usage is not None:
                self._usage.count(
                    key_id=key_id,
                    model=target.served.name,
                    node_id=target.replica.node_id,
                    tokens_in=tokens_in,
                    tokens_out=tokens_out,
                )
