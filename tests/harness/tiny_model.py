"""A llama of half a megabyte with random weights: a real engine loads it in a moment. What it says means nothing."""

import hashlib
import http.server
import threading
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np


@cache
def tiny_weights(directory: Path) -> Path:
    return write_weights(directory / "tiny.gguf")


def write_weights(path: Path, *, size: int = 64, layers: int = 2, heads: int = 4, hidden: int = 128) -> Path:
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words = [*letters, *(chr(code) for code in range(0x61, 0x7B)), "\u2581"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(words) - len(letters))]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(size)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size // heads)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * len(words))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    random = np.random.default_rng(7)

    def add(name: str, *shape: int) -> None:
        scale = np.ones(shape) if len(shape) == 1 else random.normal(0, 0.05, shape)
        writer.add_tensor(name, scale.astype(np.float32))

    add("token_embd.weight", len(words), size)
    add("output_norm.weight", size)
    add("output.weight", len(words), size)
    for layer in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", size, size)
        add(f"blk.{layer}.ffn_gate.weight", hidden, size)
        add(f"blk.{layer}.ffn_up.weight", hidden, size)
        add(f"blk.{layer}.ffn_down.weight", size, hidden)
        add(f"blk.{layer}.attn_norm.weight", size)
        add(f"blk.{layer}.ffn_norm.weight", size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_adapter(path: Path) -> None:
    """A LoRA adapter for it."""
    size, rank = 64, 4
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    random = np.random.default_rng(9)
    writer.add_tensor("blk.0.attn_q.weight.lora_a", random.normal(0, 1, (rank, size)).astype(np.float32))
    writer.add_tensor("blk.0.attn_q.weight.lora_b", random.normal(0, 1, (size, rank)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Shelf:
    """A plain HTTP server with one file on it, which counts how often it was taken."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.gets = 0
        shelf = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _head(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()

            def do_HEAD(self) -> None:
                self._head()

            def do_GET(self) -> None:
                shelf.gets += 1
                self._head()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.sha256 = hashlib.sha256(content).hexdigest()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/weights.gguf"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def config(self, name: str, **more: Any) -> str:
        lines = [
            f"name: {name}",
            "backend: llama-cpp",
            "context_size: 256",
            "parameters: {model: tiny/weights.gguf}",
            f"download_files: [{{filename: tiny/weights.gguf, uri: '{self.url}', sha256: {self.sha256}}}]",
            *(f"{key}: {value}" for key, value in more.items()),
        ]
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
