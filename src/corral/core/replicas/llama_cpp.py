"""How llama.cpp is started on a machine: threads, slots, context, batch and GPU layers.

What the model's configuration sets is kept. The rest comes from the machine, from the head of the weights' file, and
from the memory that placement reserved: the engine must not use more, since other replicas have the rest.
"""

from dataclasses import dataclass

from corral.core.replicas.placement import estimate_bytes

MIB = 1 << 20
FALLBACK_SLOTS, FALLBACK_CONTEXT = 4, 4096
"""For weights about which nothing is known."""
SLOT_CONTEXT = 4096
"""A further slot is worth it while each has at least this much context, or all that the model was trained for."""
CONTEXT_STEP = 256
"""llama.cpp rounds a context up to a multiple of this."""
MOST_SLOTS_ON_CPU, MOST_SLOTS_ON_GPU = 16, 32
"""llama.cpp decodes slots together only if they are neighbours: while few of many are in use, each costs more. A
processor gains little from a batch of more."""
BUFFERS_BASE_BYTES, BUFFERS_SHARE, BUFFERS_MOST_BYTES = 128 * MIB, 0.06, 768 * MIB
"""What the engine needs beside weights and context."""
PROMPT_CACHE_PARTS = 4
"""At least one part of so many of the memory for context keeps prompts that have no slot."""
PROMPT_CACHE_MOST_BYTES = 8192 * MIB
"""llama.cpp's own default."""
ENGINE_CONTEXT = -1
"""`context_size: -1`: all that the model was trained for, whatever memory that takes."""
EMBEDDING_BATCH = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMachine:
    cores: int | None = None
    """Physical cores that the worker may use."""
    has_gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFacts:
    size_bytes: int
    layers: int | None = None
    trained_context: int | None = None
    cache_bytes_per_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppPlan:
    """None leaves the decision to the engine."""

    slots: int
    context: int | None
    """Tokens of one conversation; None for all that the model was trained for."""
    threads: int | None = None
    gpu_layers: int | None = None
    batch: int | None = None
    prompt_cache_mib: int | None = None

    @property
    def options(self) -> dict[str, str]:
        """By the names that a model's configuration uses. An input of an embedding must fit into one physical batch."""
        given = {name: value for name, value in self.values.items() if name not in ("slots", "context")}
        if self.batch is not None:
            given["physical_batch"] = self.batch
        return {name: str(value) for name, value in given.items()}

    @property
    def values(self) -> dict[str, int]:
        """What was decided, by name."""
        given = {
            "slots": self.slots,
            "context": self.context,
            "threads": self.threads,
            "gpu_layers": self.gpu_layers,
            "batch": self.batch,
            "prompt_cache_mib": self.prompt_cache_mib,
        }
        return {name: value for name, value in given.items() if value is not None}


def plan_llama_cpp(
    machine: EngineMachine,
    weights: WeightFacts | None,
    *,
    memory_bytes: int | None,
    context: int | None = None,
    slots: int | None = None,
    embeddings: bool = False,
) -> LlamaCppPlan:
    """`memory_bytes`: reserved by placement; None if it is unknown. `context`, `slots`: from the configuration."""
    room = _room_bytes(weights, memory_bytes) if weights is not None else None
    # Host memory keeps prompts; on a machine with a GPU, that is not the memory that was reserved.
    for_prompts = room // PROMPT_CACHE_PARTS if room is not None and not machine.has_gpu else None
    tokens = _tokens(weights, (room or 0) - (for_prompts or 0))
    most = MOST_SLOTS_ON_GPU if machine.has_gpu else MOST_SLOTS_ON_CPU
    taken, size = _share_tokens(tokens, weights, context=context, slots=slots, most=most)
    if for_prompts is not None and room is not None and tokens is not None and size is not None:
        for_prompts = _left_for_prompts(weights, room, taken * size)
    return LlamaCppPlan(
        slots=taken,
        context=size,
        threads=machine.cores,
        gpu_layers=_gpu_layers(weights, memory_bytes) if machine.has_gpu and weights is not None else None,
        batch=max(size or 0, EMBEDDING_BATCH) if embeddings else None,
        prompt_cache_mib=for_prompts // MIB if for_prompts is not None else None,
    )


def _room_bytes(weights: WeightFacts, memory_bytes: int | None) -> int:
    """Memory for context. A footprint that was measured before all weights were read is too small; the estimate is
    what placement reserves at least."""
    reserved = max(memory_bytes or 0, estimate_bytes(weights.size_bytes))
    return max(0, reserved - weights.size_bytes - _buffers_bytes(weights))


def _buffers_bytes(weights: WeightFacts) -> int:
    return min(BUFFERS_MOST_BYTES, BUFFERS_BASE_BYTES + int(weights.size_bytes * BUFFERS_SHARE))


def _tokens(weights: WeightFacts | None, room_bytes: int) -> int | None:
    """All tokens that fit; None if it is unknown how much memory one needs."""
    if weights is None or not weights.cache_bytes_per_token:
        return None
    return room_bytes // weights.cache_bytes_per_token


def _left_for_prompts(weights: WeightFacts | None, room_bytes: int, tokens: int) -> int:
    """Memory that the slots leave: at least the part that was kept back, unless one slot needs it."""
    used = tokens * ((weights.cache_bytes_per_token or 0) if weights is not None else 0)
    return min(max(0, room_bytes - used), PROMPT_CACHE_MOST_BYTES)


def _share_tokens(
    tokens: int | None, weights: WeightFacts | None, *, context: int | None, slots: int | None, most: int
) -> tuple[int, int | None]:
    """Slots, and the context of each."""
    trained = weights.trained_context if weights is not None else None
    if context == ENGINE_CONTEXT:
        count = tokens // trained if tokens is not None and trained else FALLBACK_SLOTS
        return slots or max(1, min(count, most)), trained
    if context is not None:
        count = tokens // context if tokens is not None else FALLBACK_SLOTS
        return slots or max(1, min(count, most)), context
    least = min(trained or SLOT_CONTEXT, SLOT_CONTEXT)
    if tokens is None:
        return slots or FALLBACK_SLOTS, least
    count = slots or max(1, min(tokens // least, most))
    return count, min(trained or tokens, max(least, tokens // count // CONTEXT_STEP * CONTEXT_STEP))


def _gpu_layers(weights: WeightFacts, memory_bytes: int | None) -> int | None:
    """All layers, and the output layer, where the reserved memory holds the weights; else those that it holds."""
    if weights.layers is None or memory_bytes is None:
        return None
    held = memory_bytes - _buffers_bytes(weights)
    if held >= weights.size_bytes:
        return weights.layers + 1
    return max(0, weights.layers * held // max(1, weights.size_bytes))
