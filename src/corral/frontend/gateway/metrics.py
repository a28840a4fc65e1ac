"""What the lane counts and times."""

from corral.telemetry.metrics import Counter, Histogram, MetricRegistry


class TargetMeters:
    """The meters of one model on one node, looked up once."""

    __slots__ = (
        "_meters", "_statuses", "broken", "first_byte", "labels", "latency", "retries", "tokens_in", "tokens_out",
    )  # fmt: skip

    def __init__(self, meters: "Meters", model: str, node: str) -> None:
        self._meters = meters
        self.labels = (model, node)
        self._statuses: dict[int, Counter] = {}
        self.latency: Histogram = meters.latency.child(model, node)
        self.first_byte: Histogram = meters.first_byte.child(model, node)
        self.tokens_in: Counter = meters.tokens.child(model, node, "in")
        self.tokens_out: Counter = meters.tokens.child(model, node, "out")
        self.retries: Counter = meters.retries.child(model, node)
        self.broken: Counter = meters.broken.child(model, node)

    def count_status(self, status: int, requests: int) -> None:
        counter = self._statuses.get(status)
        if counter is None:
            counter = self._statuses[status] = self._meters.requests.child(*self.labels, str(status))
        counter.value += requests


class Meters:
    def __init__(self, registry: MetricRegistry) -> None:
        self.registry = registry
        place = ("model", "node")
        self.requests = registry.counter(
            "corral_requests_total", "Requests a replica answered, by the status sent.", *place, "status"
        )
        self.refusals = registry.counter(
            "corral_refused_requests_total", "Requests answered without a replica.", "status", "reason"
        )
        self.latency = registry.histogram(
            "corral_request_seconds", "From the whole request to the end of the answer.", *place
        )
        self.first_byte = registry.histogram(
            "corral_first_byte_seconds",
            "From the whole request to the first token of a streamed answer, or to the whole of another.",
            *place,
        )
        self.tokens = registry.counter(
            "corral_tokens_total", "Tokens as the backends count them, else events of streams.", *place, "direction"
        )
        self.retries = registry.counter(
            "corral_upstream_failures_total", "Requests a replica failed before or during its answer.", *place
        )
        self.broken = registry.counter(
            "corral_broken_answers_total", "Answers, streams most of them, that began and were broken off.", *place
        )
        self.gone = registry.counter("corral_client_disconnects_total", "Clients that left before the end.", "model")
        self.waited = registry.histogram("corral_queue_wait_seconds", "Time requests spent in line.", "model")

    def of(self, model: str, node: str) -> TargetMeters:
        return TargetMeters(self, model, node)
