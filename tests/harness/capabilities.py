"""The capabilities that tests resolve builds for: those that LocalAI's galleries have builds for, and the processor."""

CAPABILITIES = (
    "default",
    "nvidia",
    "nvidia-cuda-12",
    "nvidia-cuda-13",
    "nvidia-l4t",
    "nvidia-l4t-cuda-12",
    "nvidia-l4t-cuda-13",
    "amd",
    "intel",
    "vulkan",
    "metal",
    "darwin-x86",
)
