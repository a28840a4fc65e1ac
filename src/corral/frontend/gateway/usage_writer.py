"""Counts requests and tokens by API key, model and node."""

from corral.frontend.gateway.batch_writer import BatchWriter
from corral.store.serving.usage import UsageKey, Used


class UsageCounter(BatchWriter[UsageKey, Used]):
    subject = "usage"

    def count(
        self, *, key_id: str | None, model: str, node_id: str, requests: int = 1, tokens_in: int, tokens_out: int
    ) -> None:
        """Adds answered requests."""
        self._add(UsageKey(key_id or "", model, node_id), Used(requests, tokens_in, tokens_out))
