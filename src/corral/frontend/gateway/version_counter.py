"""Counts how each version serves each model on each node: what rollouts compare."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter

from corral.core.backends.serving_figures import BUCKETS, FIRST_TOKEN_BOUNDS_S, ServingFigures, VersionKey
from corral.frontend.gateway.batch_writer import BatchStore, BatchWriter
from corral.frontend.gateway.request_trace import BEGAN_S, ENDED_S, FIRST_BYTE_S, TRACE, RecordFields
from corral.frontend.gateway.token_usage import ReportedUsage

NOT_IMPLEMENTED = 501
_TRACE = itemgetter(TRACE)


class _Sums:
    """Figures of one key since the last write. They are changed in place, which costs least."""

    __slots__ = ("answers_s", "errors", "first_token", "requests", "tokens_out")

    def __init__(self) -> None:
        self.requests = self.errors = self.tokens_out = 0
        self.answers_s = 0.0
        self.first_token = [0] * BUCKETS

    def figures(self) -> ServingFigures:
        return ServingFigures(
            requests=self.requests,
            errors=self.errors,
            first_token=tuple(self.first_token),
            tokens_out=self.tokens_out,
            answer_ms=round(self.answers_s * 1000),
        )


class VersionCounter(BatchWriter[VersionKey, ServingFigures]):
    subject = "version_figures"

    def __init__(self, store: BatchStore[VersionKey, ServingFigures], *, writer: str) -> None:
        super().__init__(store, writer=writer)
        self._counting: dict[VersionKey, _Sums] = {}

    def _of(self, key: VersionKey) -> _Sums:
        sums = self._counting.get(key)
        if sums is None:
            sums = self._counting[key] = _Sums()
        return sums

    def count(
        self,
        key: VersionKey,
        status: int,
        records: Sequence[RecordFields],
        reported: Sequence[ReportedUsage],
        tokens_out: int,
        seconds: float,
    ) -> None:
        """Adds answers with one status. Times count from the moment at which the request was sent to the replica: the
        queue and the load before are no matter of the version. A stream is an answer that came in parts and whose
        tokens were counted; another answer's first token is not seen.

        `seconds`: from the beginning of the requests to the end of their answers, all together."""
        sums = self._of(key)
        sums.requests += len(records)
        if status >= 400:
            if status >= 500 and status != NOT_IMPLEMENTED:
                sums.errors += len(records)
            return
        first_token = sums.first_token
        # Most answers are neither streams nor have a trace. This runs for all of them.
        if any(map(_TRACE, records)) or tuple in set(map(type, reported)):
            for record, usage in zip(records, reported, strict=True):
                trace = record[TRACE]
                sent_s = record[BEGAN_S] if trace is None else trace.sent_s or record[BEGAN_S]
                seconds -= sent_s - record[BEGAN_S]
                if usage.__class__ is tuple and 0.0 < record[FIRST_BYTE_S] < record[ENDED_S]:
                    first_token[bisect_left(FIRST_TOKEN_BOUNDS_S, record[FIRST_BYTE_S] - sent_s)] += 1
        if tokens_out:
            sums.tokens_out += tokens_out
            sums.answers_s += seconds

    def count_error(self, key: VersionKey, *, requests: int = 1) -> None:
        """Adds an attempt that failed. `requests`: 0 where the answer has been counted, because it began."""
        sums = self._of(key)
        sums.requests += requests
        sums.errors += 1

    def _collect(self) -> None:
        counting, self._counting = self._counting, {}
        for key, sums in counting.items():
            self._add(key, sums.figures())
