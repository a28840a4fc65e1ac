"""Paths of the client APIs, to name the right one to a client that uses a wrong one."""

from corral.core.suggestions import near_names

PROXIED = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/moderations",
    "/v1/score",
    "/v1/responses",
)
"""The paths of OpenAI's API that a replica answers."""
OLLAMA_ADMIN = ("/api/pull", "/api/delete")
"""The paths of Ollama's API that change the cluster. They are for admin keys."""
OLLAMA_CLIENT = (
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/api/tags",
    "/api/ps",
    "/api/show",
    "/api/version",
)
"""The paths of Ollama's API that the gateway answers."""
OLLAMA_ABSENT = {
    "/api/copy": "give the model an alias in its configuration",
    "/api/create": "add a model with its configuration; see the admin API at /docs",
    "/api/push": "models come from galleries, and are not published",
    "/api/blobs": "a model's files come from the addresses in its configuration",
}
"""The paths of Ollama's API that Corral does not have, and what to do instead."""
_OPENAI_AND_ANTHROPIC = (*PROXIED, "/v1/models", "/v1/messages", "/v1/messages/count_tokens")
CLIENT_PATHS = (*_OPENAI_AND_ANTHROPIC, *OLLAMA_CLIENT)
_V1 = "/v1/"
_BEGUN_CHARS = 3
_NEAR = 0.85
"""The admin API is below `/api/` too: only what is much like a client path is meant to be one. Short names are like too
many others."""
_MISTYPED = tuple(path for path in OLLAMA_CLIENT if path != "/api/ps")


def near_client_path(path: str) -> str:
    """The path that was probably meant; empty if none is near."""
    whole = path.rstrip("/")
    if whole in CLIENT_PATHS and whole == path:
        return ""
    meant = (whole, f"/v1{whole}", f"/api{whole}", whole.removeprefix("/v1"), whole.removeprefix("/api"))
    found = next((known for known in CLIENT_PATHS if known in meant), "")
    if found:
        return found
    if path.startswith(_V1):
        return _near_below_v1(whole.removeprefix(_V1))
    if path.startswith("/api/"):
        return next(iter(near_names(path, _MISTYPED, cutoff=_NEAR)), "")
    return ""


def _near_below_v1(rest: str) -> str:
    """Without the beginning that all of them have, which would make any two alike."""
    known = [path.removeprefix(_V1) for path in _OPENAI_AND_ANTHROPIC]
    begun = [name for name in known if len(rest) >= _BEGUN_CHARS and name.startswith(rest)]
    found = begun or near_names(rest, known)
    return f"{_V1}{found[0]}" if found else ""


def absent_path(path: str) -> str:
    """Why Ollama's path is missing; empty for all others."""
    found = next((known for known in OLLAMA_ABSENT if path == known or path.startswith(f"{known}/")), "")
    return f"Corral has no {found}: {OLLAMA_ABSENT[found]}" if found else ""


def is_ollamas(path: str) -> bool:
    """Whether the clients of Ollama call this path of the app, and read its errors."""
    return path in OLLAMA_ADMIN or bool(absent_path(path)) or near_client_path(path) in OLLAMA_CLIENT
