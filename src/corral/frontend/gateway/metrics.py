"""The gateway's metrics."""

from corral.telemetry.metrics import Counter, Histogram, MetricRegistry


class EndpointMetrics:
    """The metrics of one model on one node, looked up once."""

    __slots__ = (
        "_metrics", "_statuses", "broken", "continued", "failures", "first_byte", "labels", "latency", "tokens_in",
        "tokens_out",
    )  # fmt: skip

    def __init__(self, metrics: "GatewayMetrics", model: str, node: str) -> None:
        self._metrics = metrics
        self.labels = (model, node)
        self._statuses: dict[int, Counter] = {}
        self.latency: Histogram = metrics.latency.child(model, node)
        self.first_byte: Histogram = metrics.first_byte.child(model, node)
        self.tokens_in: Counter = metrics.tokens.child(model, node, "in")
        self.tokens_out: Counter = metrics.tokens.child(model, node, "out")
        self.failures: Counter = metrics.failures.child(model, node)
        self.broken: Counter = metrics.broken.child(model, node)
        self.continued: Counter = metrics.continued.child(model, node)

    def count_status(self, status: int, requests: int) -> None:
        counter = self._statuses.get(status)
        if counter is None:
            counter = self._statuses[status] = self._metrics.requests.child(*self.labels, str(status))
        counter.value += requests


class GatewayMetrics:
    def __init__(self, registry: MetricRegistry) -> None:
        self.registry = registry
        place = ("model", "node")
        self.requests = registry.counter(
            "corral_requests_total", "Requests that a replica answered, by status.", *place, "status"
        )
        self.rejections = registry.counter(
            "corral_rejected_requests_total", "Requests that the gateway rejected itself.", "status", "reason"
        )
        self.limited = registry.counter(
            "corral_limited_requests_total", "Requests that did not fit a limit of their key, by limit.", "limit"
        )
        self.latency = registry.histogram(
            "corral_request_seconds", "Time from the complete request to the end of its answer.", *place
        )
        self.first_byte = registry.histogram(
            "corral_first_byte_seconds",
            "Time from the complete request to the first token of a stream, or to the end of another answer.",
            *place,
        )
        self.tokens = registry.counter(
            "corral_tokens_total",
            "Tokens, as reported by the backend; otherwise events of streams.",
            *place,
            "direction",
        )
        self.failures = registry.counter(
            "corral_upstream_failures_total", "Attempts that failed on a replica, before or during its answer.", *place
        )
        self.broken = registry.counter(
            "corral_broken_answers_total", "Answers that began and were not completed.", *place
        )
        self.continued = registry.counter(
            "corral_continued_answers_total",
            "Answers that a replica continued after another one had failed, by the node of the replica that continued.",
            *place,
        )
        self.disconnects = registry.counter(
            "corral_client_disconnects_total", "Requests whose client disconnected before the end.", "model"
        )
        self.routed = registry.counter(
            "corral_route_requests_total",
            "Answered requests for a route, by the model that got them. `fallback`: why the models that the route"
            " prefers did not (busy, away, failed); empty where one of them did.",
            "route",
            "model",
            "fallback",
        )
        self.queue_wait = registry.histogram(
            "corral_queue_wait_seconds", "Time that requests spent in the queue.", "model"
        )

    def of(self, model: str, node: str) -> EndpointMetrics:
        return EndpointMetrics(self, model, node)
