"""Which protocol a request is in: decided by its path, and by its headers where two protocols share a path."""

from collections.abc import Mapping

from corral.frontend.gateway.client_protocol import ClientProtocol
from corral.frontend.gateway.model_list import MODELS
from corral.frontend.gateway.openai import OPENAI, PREFIX
from corral.frontend.gateway.protocols.anthropic import ANTHROPIC, MESSAGES, VERSION_HEADER
from corral.frontend.gateway.protocols.ollama import CLIENT_PATH_MAX_BYTES, CLIENT_PATHS, OLLAMA

METHOD_MAX_BYTES = 8
_API = b"/api/"


def protocol_of(path: bytes, headers: Mapping[bytes, bytes]) -> ClientProtocol:
    """`headers`: by name in lower case."""
    if path.startswith(MESSAGES):
        return ANTHROPIC
    if path.startswith(MODELS) and VERSION_HEADER in headers:
        return ANTHROPIC
    return OLLAMA if path.startswith(_API) else OPENAI


def is_for_gateway(data: bytes) -> bool | None:
    """Whether a request that begins with `data` is the gateway's. None: `data` is too short to tell.

    All paths below `/v1/` are, and Ollama's below `/api/`. The others there are the admin API's."""
    space = data.find(b" ", 0, METHOD_MAX_BYTES + 1)
    if space < 0:
        return None if len(data) <= METHOD_MAX_BYTES else False
    start = data[space + 1 : space + 2 + CLIENT_PATH_MAX_BYTES]
    if start.startswith(PREFIX):
        return True
    if not start.startswith(_API):
        return None if PREFIX.startswith(start) or _API.startswith(start) else False
    path = start.partition(b" ")[0].partition(b"?")[0]
    if len(path) < len(start):
        return path in CLIENT_PATHS
    return None if any(known.startswith(path) for known in CLIENT_PATHS) else False
