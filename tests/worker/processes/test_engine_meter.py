"""What a worker learns from the engines it runs. The answers are those of the real engines."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from corral.core.nodes.engine_capacity import EngineCapacity
from corral.core.processes.process import ProcessKey, ProcessReadiness, ProcessSpec, ProcessView, Ready
from corral.system.http_call import HttpAnswer, NoAnswer
from corral.worker.processes.engine_meter import EngineMeter, read_facts
from corral.worker.processes.fitted import label_fitted
from corral.worker.processes.supervisor import RunningProcess

LLAMA_CPP = {
    "/metrics": b"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n"
    b"llamacpp:requests_deferred 0\n",
    "/props": b'{"default_generation_settings": {"params": {}, "n_ctx": 4096}, "total_slots": 8, "model_path": "x"}',
}
VLLM = {
    "/metrics": b'vllm:num_requests_running{engine="0"} 0.0\nvllm:num_requests_waiting{engine="0"} 0.0\n',
    "/v1/models": b'{"object": "list", "data": [{"id": "m", "max_model_len": 40960}]}',
}
SGLANG = {
    "/metrics": b'sglang:num_running_reqs{tp_rank="0"} 0.0\nsglang:num_queue_reqs{tp_rank="0"} 0.0\n',
    "/get_server_info": b'{"dp_size": 2, "internal_states": [{"effective_max_running_requests_per_dp": 52},'
    b' {"effective_max_running_requests_per_dp": 52}]}',
    "/v1/models": b'{"object": "list", "data": [{"id": "m", "max_model_len": 32768}]}',
}


@dataclass
class Engines:
    """The one running process, and its HTTP server."""

    answers: Mapping[str, bytes]
    asked: list[str] = field(default_factory=list)
    changes: int = 0
    protocol: str = "openai"
    pid: int = 7
    labels: Mapping[str, str] = field(default_factory=dict)
    status: int = 404
    """Of an answer to a path that it does not have."""

    @property
    def process(self) -> RunningProcess:
        spec = ProcessSpec(
            key=ProcessKey("m#0"),
            backend="engine",
            version_digest="d",
            command=("engine",),
            readiness=ProcessReadiness(kind="http"),
            labels={"protocol": self.protocol, **self.labels},
        )
        return RunningProcess(spec=spec, pid=self.pid, port=1234, token="secret")

    def list(self) -> tuple[ProcessView, ...]:
        return (ProcessView(spec=self.process.spec, state=Ready(port=1234, token="secret"), pid=self.pid),)

    def running(self, _key: ProcessKey) -> RunningProcess | None:
        return self.process

    async def __call__(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str], within_s: float
    ) -> HttpAnswer:
        assert (method, body) == ("GET", b"")
        assert within_s > 0
        assert headers == {"Authorization": "Bearer secret"}
        path = url.removeprefix("http://127.0.0.1:1234")
        self.asked.append(path)
        if not self.answers and self.status == 404:
            raise NoAnswer("no complete response within 2 s")
        return HttpAnswer(200, self.answers[path]) if path in self.answers else HttpAnswer(self.status)

    def count_change(self) -> None:
        self.changes += 1

    def meter(self) -> EngineMeter:
        return EngineMeter(self, self, changed=self.count_change)

    def capacity(self, meter: EngineMeter) -> EngineCapacity | None:
        return meter.capacity(ProcessKey("m#0"), self.pid)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param(LLAMA_CPP, EngineCapacity(slots=8, context=4096, limit=9), id="llama.cpp"),
        pytest.param(VLLM, EngineCapacity(context=40960), id="vllm-does-not-tell-how-many-it-takes"),
        pytest.param(SGLANG, EngineCapacity(slots=104, context=32768, limit=117), id="sglang-on-two-ranks"),
        pytest.param({"/metrics": b"tgi_queue_size 0\n"}, None, id="an-unknown-engine"),
        pytest.param(
            {"/metrics": LLAMA_CPP["/metrics"], "/slots": b'[{"id": 0, "n_ctx": 512}, {"id": 1, "n_ctx": 512}]'},
            EngineCapacity(slots=2, context=512, limit=3),
            id="llama.cpp-that-tells-only-its-slots",
        ),
        pytest.param(
            {"/props": LLAMA_CPP["/props"]}, EngineCapacity(slots=8, context=4096, limit=9), id="llama.cpp-no-metrics"
        ),
        pytest.param({"/health": b""}, None, id="an-engine-without-metrics"),
    ],
)
async def test_engines_tell_what_they_take(answers: Mapping[str, bytes], expected: EngineCapacity | None) -> None:
    engines = Engines(answers)
    meter = engines.meter()
    await meter.look()
    assert engines.capacity(meter) == expected
    assert engines.changes == (expected is not None)


async def test_an_engine_without_known_metrics_is_asked_once() -> None:
    engines = Engines({})
    engines.answers = {"/health": b""}
    meter = engines.meter()
    for _ in range(3):
        await meter.look()
    assert engines.asked == ["/metrics", "/props", "/slots"]


async def test_an_engine_that_does_not_answer_is_asked_again() -> None:
    engines = Engines({})
    meter = engines.meter()
    await meter.look()
    assert engines.capacity(meter) is None
    engines.answers = LLAMA_CPP
    await meter_after(meter, engines)
    assert engines.capacity(meter) == EngineCapacity(slots=8, context=4096, limit=9)


async def meter_after(meter: EngineMeter, engines: Engines) -> None:
    """Looks until the engine's turn has come."""
    before = len(engines.asked)
    async with asyncio.timeout(10):
        while len(engines.asked) == before:
            await meter.look()
            await asyncio.sleep(0.05)


async def test_a_full_engine_of_unknown_size_gets_a_limit_and_a_report() -> None:
    engines = Engines({**VLLM, "/metrics": _vllm(running=64, waiting=64, began=0)})
    meter = engines.meter()
    await meter.look()
    engines.answers = {**VLLM, "/metrics": _vllm(running=64, waiting=64, began=32)}
    await meter_after(meter, engines)
    assert engines.capacity(meter) == EngineCapacity(context=40960, limit=72)
    assert engines.changes >= 1


def _vllm(*, running: int, waiting: int, began: int) -> bytes:
    return (
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
        f"vllm:request_queue_time_seconds_sum {began * 4.0}\nvllm:request_queue_time_seconds_count {began}\n"
        f"vllm:time_to_first_token_seconds_sum {began * 5.0}\nvllm:time_to_first_token_seconds_count {began}\n"
    ).encode()


async def test_a_restarted_process_is_another_engine() -> None:
    engines = Engines(LLAMA_CPP)
    meter = engines.meter()
    await meter.look()
    engines.pid = 8
    assert engines.capacity(meter) is None
    await meter.look()
    assert engines.capacity(meter) == EngineCapacity(slots=8, context=4096, limit=9)


@pytest.mark.parametrize(
    ("fitted", "expected"),
    [
        ({"slots": 8, "context": 4096, "threads": 2}, EngineCapacity(slots=8, context=4096, limit=9)),
        ({"threads": 2}, None),
    ],
)
async def test_grpc_backends_take_what_they_were_told(fitted: dict[str, int], expected: EngineCapacity | None) -> None:
    engines = Engines(LLAMA_CPP, protocol="localai-grpc", labels=label_fitted(fitted))
    meter = engines.meter()
    await meter.look()
    assert engines.asked == []
    assert engines.capacity(meter) == expected


async def test_an_engine_whose_metrics_fail_is_asked_again() -> None:
    engines = Engines({}, status=503)
    meter = engines.meter()
    await meter.look()
    assert engines.capacity(meter) is None
    engines.answers, engines.status = LLAMA_CPP, 404
    await meter_after(meter, engines)
    assert engines.capacity(meter) == EngineCapacity(slots=8, context=4096, limit=9)


@pytest.mark.parametrize(
    "body",
    [
        b'{"total_slots": 0}',
        b'{"total_slots": 1000000000000}',
        b'{"data": [{"max_model_len": -5}]}',
        b"[]",
        b'[{"n_ctx": -1}]',
        b"[" * 5000,
        b"<html>",
        b"\xff",
    ],
)
def test_figures_out_of_range_tell_nothing(body: bytes) -> None:
    assert read_facts(body) == EngineCapacity()


def test_many_ranks_together_stay_in_range() -> None:
    state = b'{"effective_max_running_requests_per_dp": 90000}'
    assert read_facts(b'{"internal_states": [%b, %b]}' % (state, state)) == EngineCapacity(slots=100_000)
