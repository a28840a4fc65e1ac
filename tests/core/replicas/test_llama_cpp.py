"""How llama.cpp is started: from the machine, the weights and the reserved memory."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.replicas.llama_cpp import (
    BUFFERS_MOST_BYTES,
    ENGINE_CONTEXT,
    EngineMachine,
    LlamaCppPlan,
    WeightFacts,
    plan_llama_cpp,
)
from corral.core.replicas.placement import estimate_bytes

GIB = 1 << 30
KIB = 1 << 10
CPU = EngineMachine(cores=8)
GPU = EngineMachine(cores=8, has_gpu=True)
LARGE = WeightFacts(size_bytes=int(4.9 * GIB), layers=32, trained_context=131_072, cache_bytes_per_token=128 * KIB)
SMALL = WeightFacts(size_bytes=100 << 20, layers=30, trained_context=2048, cache_bytes_per_token=45 * KIB // 2)


@pytest.mark.parametrize(
    ("machine", "weights", "memory", "asked", "expected"),
    [
        pytest.param(
            GPU, LARGE, 10 * GIB, {}, LlamaCppPlan(slots=9, context=4096, threads=8, gpu_layers=33),
            id="slots-share-the-memory-beside-the-weights",
        ),
        pytest.param(
            GPU, LARGE, 24 * GIB, {}, LlamaCppPlan(slots=32, context=4608, threads=8, gpu_layers=33),
            id="with-much-memory-the-context-grows",
        ),
        pytest.param(
            GPU, LARGE, 24 * GIB, {"context": 32_768}, LlamaCppPlan(slots=4, context=32_768, threads=8, gpu_layers=33),
            id="a-configured-context-decides-the-slots",
        ),
        pytest.param(
            GPU, LARGE, 24 * GIB, {"slots": 2}, LlamaCppPlan(slots=2, context=76_288, threads=8, gpu_layers=33),
            id="configured-slots-decide-the-context",
        ),
        pytest.param(
            GPU, LARGE, 24 * GIB, {"slots": 6, "context": 1000},
            LlamaCppPlan(slots=6, context=1000, threads=8, gpu_layers=33),
            id="what-is-configured-is-kept",
        ),
        pytest.param(
            GPU, LARGE, 3 * GIB, {}, LlamaCppPlan(slots=1, context=6400, threads=8, gpu_layers=16),
            id="layers-that-do-not-fit-stay-on-the-processor",
        ),
        pytest.param(
            CPU, SMALL, 400 << 20, {}, LlamaCppPlan(slots=2, context=2048, threads=8, prompt_cache_mib=76),
            id="a-slot-never-has-more-context-than-the-model-knows",
        ),
        pytest.param(
            CPU, SMALL, estimate_bytes(SMALL.size_bytes) + 2 * GIB, {"context": 2048},
            LlamaCppPlan(slots=16, context=2048, threads=8, prompt_cache_mib=1470),
            id="with-a-configured-context-memory-to-spare-gives-more-slots",
        ),
        pytest.param(
            CPU, SMALL, estimate_bytes(SMALL.size_bytes), {"context": 4096},
            LlamaCppPlan(slots=1, context=4096, threads=8, prompt_cache_mib=52),
            id="prompts-get-what-a-large-context-leaves",
        ),
        pytest.param(
            CPU, LARGE, None, {}, LlamaCppPlan(slots=1, context=4864, threads=8, prompt_cache_mib=222),
            id="without-a-reservation-the-estimate-counts",
        ),
        pytest.param(
            EngineMachine(), None, None, {}, LlamaCppPlan(slots=4, context=4096), id="unknown-weights-get-the-defaults"
        ),
        pytest.param(
            GPU, LARGE, 10 * GIB, {"context": ENGINE_CONTEXT},
            LlamaCppPlan(slots=1, context=131_072, threads=8, gpu_layers=33),
            id="the-whole-context-of-the-model-takes-what-it-takes",
        ),
        pytest.param(
            EngineMachine(), None, None, {"embeddings": True}, LlamaCppPlan(slots=4, context=4096, batch=8192),
            id="an-input-of-an-embedding-fits-into-one-batch",
        ),
    ],
)  # fmt: skip
def test_plan_llama_cpp(
    machine: EngineMachine,
    weights: WeightFacts | None,
    memory: int | None,
    asked: dict[str, Any],
    expected: LlamaCppPlan,
) -> None:
    assert plan_llama_cpp(machine, weights, memory_bytes=memory, **asked) == expected


@given(
    size=st.integers(min_value=1 << 20, max_value=400 * GIB),
    per_token=st.integers(min_value=1 * KIB, max_value=2048 * KIB),
    trained=st.integers(min_value=512, max_value=1 << 20),
    spare=st.integers(min_value=0, max_value=64 * GIB),
    has_gpu=st.booleans(),
)
def test_a_fitted_engine_stays_within_the_reservation(
    size: int, per_token: int, trained: int, spare: int, has_gpu: bool
) -> None:
    """Except where not even one slot fits: the model would be useless with less."""
    weights = WeightFacts(size_bytes=size, layers=32, trained_context=trained, cache_bytes_per_token=per_token)
    reserved = estimate_bytes(size) + spare
    plan = plan_llama_cpp(EngineMachine(cores=4, has_gpu=has_gpu), weights, memory_bytes=reserved)
    assert plan.context is not None
    assert plan.slots >= 1
    assert plan.context <= trained
    used = size + plan.slots * plan.context * per_token + ((plan.prompt_cache_mib or 0) << 20)
    assert used <= reserved or (plan.slots == 1 and plan.context <= 4096)
    assert reserved - used <= BUFFERS_MOST_BYTES + spare + estimate_bytes(size) - size  # nothing is invented


def test_options_have_the_names_of_the_configuration() -> None:
    plan = LlamaCppPlan(slots=4, context=4096, threads=2, batch=8192)
    assert plan.options == {"threads": "2", "batch": "8192", "physical_batch": "8192"}
