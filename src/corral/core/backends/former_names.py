"""Names that backends had in earlier versions of LocalAI. Model configurations still use them, and LocalAI still
accepts them."""

FORMER_NAMES = {
    "embedded-store": "local-store",
    "go-llama": "llama-cpp",
    "huggingface-embeddings": "transformers",
    "langchain-huggingface": "huggingface",
    "llama": "llama-cpp",
    "mamba": "transformers",
    "sentencetransformers": "transformers",
    "stablediffusion": "stablediffusion-ggml",
    "transformers-musicgen": "transformers",
}


def current_name(name: str) -> str:
    """The present name of a backend, with its gallery if it is written `gallery@name`."""
    gallery, at, plain = name.rpartition("@")
    return f"{gallery}{at}{FORMER_NAMES.get(plain.lower(), plain)}"
