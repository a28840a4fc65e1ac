"""Counts requests that a replica answered, completely or in part: recorded as they end, counted in batches.

A batch is small, so that its records are still in the CPU's caches when it is counted, and counting is never slow."""

from itertools import groupby
from operator import itemgetter

from corral.core.access.key_meter import MeteredRequest
from corral.frontend.gateway.endpoints import Endpoint
from corral.frontend.gateway.key_meters import KeyMeters
from corral.frontend.gateway.request_trace import (
    BEGAN_S,
    ENDED_S,
    ENDPOINT,
    FIRST_BYTE_S,
    KEY_ID,
    STATUS,
    RecordFields,
    TraceBuffer,
)
from corral.frontend.gateway.token_usage import ReportedUsage, read_usages
from corral.frontend.gateway.usage_writer import UsageCounter
from corral.frontend.gateway.version_counter import VersionCounter

BATCH = 64
_GROUP = itemgetter(ENDPOINT, STATUS, KEY_ID)


class RequestAccounting:
    def __init__(
        self,
        traces: TraceBuffer,
        meters: KeyMeters,
        usage: UsageCounter | None,
        versions: VersionCounter | None = None,
    ) -> None:
        self._traces = traces
        self._meters = meters
        meters.fold = self.fold
        self._usage = usage
        self._versions = versions
        self._records: list[RecordFields] = []
        self._reported: list[ReportedUsage] = []
        self._metered: list[MeteredRequest | None] = []

    def add(self, record: RecordFields, reported: ReportedUsage, metered: MeteredRequest | None) -> None:
        """Records a complete answer. `metered`: for a key with limits, which count what the answer reports in place of
        the estimate."""
        self._metered.append(metered)
        self._reported.append(reported)
        self._records.append(record)
        if len(self._records) >= BATCH:
            self.fold()

    def fold(self) -> None:
        """Counts what was recorded: before anyone reads the metrics, and twice a second."""
        records, reported, metered = self._records, self._reported, self._metered
        self._traces.entries.extend(records)
        counted = 0
        for (endpoint, status, key_id), group in groupby(records, _GROUP):
            batch = list(group)
            part = slice(counted, counted + len(batch))
            self._count(endpoint, status, key_id, batch, reported[part], metered[part])
            counted = part.stop
        records.clear()
        reported.clear()
        metered.clear()

    def count_part(
        self, record: RecordFields, reported: ReportedUsage, metered: MeteredRequest | None, *, is_error: bool
    ) -> None:
        """Counts an answer that began and will not be completed: the replica worked for it all the same. `is_error`:
        it broke off, rather than that its client left."""
        endpoint, status, key_id = _GROUP(record)
        self._count(endpoint, status, key_id, [record], [reported], [metered])
        if is_error and self._versions is not None:
            self._versions.count_error(endpoint.version_key, requests=0)

    def count_prompt(self, endpoint: Endpoint, key_id: str | None, tokens: int) -> None:
        """Counts the prompt of a request whose client left while a replica worked for it: nobody was answered."""
        endpoint.metrics.tokens_in.value += tokens
        if self._usage is not None:
            self._usage.count(
                key_id=key_id,
                model=endpoint.served.name,
                node_id=endpoint.replica.node_id,
                requests=0,
                tokens_in=tokens,
                tokens_out=0,
            )

    def count_failure(self, endpoint: Endpoint) -> None:
        """Counts an attempt that failed before the answer began."""
        if self._versions is not None:
            self._versions.count_error(endpoint.version_key)

    def _count(
        self,
        endpoint: Endpoint,
        status: int,
        key_id: str | None,
        records: list[RecordFields],
        reported: list[ReportedUsage],
        metered: list[MeteredRequest | None],
    ) -> None:
        metrics = endpoint.metrics
        metrics.count_status(status, len(records))
        if status < 400:  # the time to an error says nothing about the model
            # An answer that broke off after its head never began.
            metrics.first_byte.observe_all(
                [record[FIRST_BYTE_S] - record[BEGAN_S] for record in records if record[FIRST_BYTE_S]]
            )
        latencies = [record[ENDED_S] - record[BEGAN_S] for record in records]
        metrics.latency.observe_all(latencies)
        tokens_in, tokens_out = _sum_usages(reported)
        metrics.tokens_in.value += tokens_in
        metrics.tokens_out.value += tokens_out
        if self._versions is not None:
            self._versions.count(endpoint.version_key, status, records, reported, tokens_out, sum(latencies))
        if self._usage is not None:
            self._usage.count(
                key_id=key_id,
                model=endpoint.served.name,
                node_id=endpoint.replica.node_id,
                requests=len(records),
                tokens_in=tokens_in,
                tokens_out=tokens_out,
            )
        if any(metered):
            self._correct(metered, reported, (tokens_in, tokens_out))

    def _correct(
        self, metered: list[MeteredRequest | None], reported: list[ReportedUsage], tokens: tuple[int, int]
    ) -> None:
        """`tokens`: of all of them."""
        ended = list(filter(None, metered))
        if len(ended) < len(metered):  # the key got limits, or lost them
            tokens = _sum_usages([part for part, one in zip(reported, metered, strict=True) if one is not None])
        self._meters.correct(ended, *tokens)


def _sum_usages(reported: list[ReportedUsage]) -> tuple[int, int]:
    parts = [each for each in reported if isinstance(each, bytes)]
    tokens_in, tokens_out = read_usages(parts)
    if len(parts) < len(reported):
        for each in reported:
            if isinstance(each, tuple):
                tokens_in += each[0]
                tokens_out += each[1]
    return tokens_in, tokens_out
