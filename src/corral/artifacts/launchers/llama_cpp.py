"""Starts llama.cpp's own HTTP server, which the `xllamacpp` package contains as a library.

The token that clients must send comes from the environment, because every user of the machine can read an argument
list. It is removed from the environment before the engine starts.
"""

import argparse
import importlib
import json
import os
import signal
import sys
import threading
from typing import Any

TOKEN_VARIABLE = "CORRAL_PROCESS_TOKEN"


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="llama-cpp", allow_abbrev=False)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="", help="the name under which the model is served")
    parser.add_argument("--context", type=int, default=4096, help="tokens each slot can hold; -1 for the model's own")
    parser.add_argument("--slots", type=int, default=1, help="requests served at the same time")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--physical-batch", type=int, default=0, help="tokens that are computed at once")
    parser.add_argument("--flash-attention", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--prompt-cache-mib", type=int, default=None, help="memory for prompts that have no slot")
    parser.add_argument("--gpu-layers", type=int, default=None)
    parser.add_argument("--mmproj", default="")
    parser.add_argument("--draft-model", default="", help="a small model for speculative decoding")
    parser.add_argument("--lora-adapter", default="", help="one path; or several, with commas or as a JSON list")
    parser.add_argument("--lora-scale", type=float, default=1.0)
    parser.add_argument("--lora-scales", default="", help="one for each adapter, separated by commas")
    parser.add_argument("--chat-template", default="")
    parser.add_argument("--embeddings", action="store_true")
    parser.add_argument("--pooling", choices=("mean", "cls", "last", "rank"), default="mean")
    return parser.parse_args(arguments)


def build_parameters(xllamacpp: Any, options: argparse.Namespace, token: str) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    parameters.hostnames = [options.host]
    parameters.port = options.port
    parameters.n_parallel = max(1, options.slots)
    # llama.cpp divides its context among the slots; a person means the context of one conversation.
    parameters.n_ctx = 0 if options.context < 0 else options.context * parameters.n_parallel
    parameters.cors_origins = ""  # the default is `*`: any web page could talk to the engine
    parameters.ui = False
    parameters.endpoint_metrics = True
    if options.name:
        parameters.model_alias = {options.name}
    if token:
        parameters.api_keys = [token]
    if options.threads > 0:
        parameters.cpuparams.n_threads = options.threads
        parameters.cpuparams_batch.n_threads = options.threads
    if options.batch > 0:
        parameters.n_batch = options.batch
    if options.physical_batch > 0:
        parameters.n_ubatch = options.physical_batch
    if options.flash_attention != "auto":  # by default the engine checks what its device supports
        kinds = xllamacpp.llama_flash_attn_type
        is_on = options.flash_attention == "on"
        parameters.flash_attn_type = (
            kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED if is_on else kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
    if options.prompt_cache_mib is not None:
        parameters.cache_ram_mib = options.prompt_cache_mib
    if options.gpu_layers is not None:
        parameters.n_gpu_layers = options.gpu_layers
    if options.mmproj:
        parameters.mmproj.path = options.mmproj
    if options.draft_model:
        parameters.speculative.draft.mparams.path = options.draft_model
        kinds = xllamacpp.common_speculative_type
        parameters.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    if options.lora_adapter:
        parameters.lora_adapters = [_adapter(xllamacpp, path, scale) for path, scale in read_adapters(options)]
    if options.chat_template:
        parameters.chat_template = options.chat_template
    if options.embeddings:
        parameters.embedding = True
        parameters.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{options.pooling.upper()}")
    return parameters


def read_adapters(options: argparse.Namespace) -> list[tuple[str, float]]:
    """Paths and scales of the adapters. A path that contains a comma has to be in a JSON list."""
    given = options.lora_adapter
    paths = json.loads(given) if given.startswith("[") else given.split(",")
    scales = [float(scale) for scale in options.lora_scales.split(",")] if options.lora_scales else []
    return list(zip(paths, scales or [options.lora_scale] * len(paths), strict=True))


def _adapter(xllamacpp: Any, path: str, scale: float) -> Any:
    adapter = xllamacpp.CommonAdapterLoraInfo()
    adapter.path, adapter.scale = path, scale
    return adapter


def main(arguments: list[str]) -> None:
    options = parse_arguments(arguments)
    token = os.environ.pop(TOKEN_VARIABLE, "")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    xllamacpp = importlib.import_module("xllamacpp")
    server = xllamacpp.Server(build_parameters(xllamacpp, options, token))
    sys.stdout.write(f"llama-cpp listens on {server.listening_address}\n")
    sys.stdout.flush()
    stop.wait()
    # The library joins its threads only after open requests end; a stop is asked for when none is wanted any more.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
