"""Tokens that open one blob of one worker for a while. A frontend makes them for a node that may fetch that blob; only
the worker and the frontends know the secret."""

import hashlib
import hmac

VALID_S = 3600
"""The clocks of frontends and workers may differ. A download asks for a new token every few seconds."""
_PREFIX = "one"


def make_blob_token(secret: str, digest: str, *, now_s: float) -> str:
    expires_s = int(now_s) + VALID_S
    return f"{_PREFIX}.{expires_s}.{_sign(secret, digest, expires_s)}"


def opens_blob(secret: str, token: str, digest: str, *, now_s: float) -> bool:
    prefix, _, rest = token.partition(".")
    expires, _, signature = rest.partition(".")
    if prefix != _PREFIX or not expires.isascii() or not expires.isdigit() or len(expires) > 12:
        return False
    expected = _sign(secret, digest, int(expires))
    return hmac.compare_digest(expected.encode(), signature.encode()) and now_s < int(expires)


def _sign(secret: str, digest: str, expires_s: int) -> str:
    return hmac.new(secret.encode(), f"{digest}\n{expires_s}".encode(), hashlib.sha256).hexdigest()
