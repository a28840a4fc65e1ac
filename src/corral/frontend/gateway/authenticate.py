"""Authenticates a client whose key is not in memory."""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from corral.frontend.auth.rules import CLIENT_HEADER, NAMING
from corral.frontend.gateway.credentials import authorization_of
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.keys import ClientKey, KeyLookup
from corral.frontend.http.proxies import TrustedProxies

FORWARDING = (b"x-forwarded-for", b"forwarded")


async def authenticate(
    keys: KeyLookup, headers: Mapping[bytes, bytes], method: bytes, proxies: TrustedProxies, peer: str
) -> ClientKey:
    """`peer`: the address that opened the connection."""
    forwarded = {name.decode(): headers[name].decode("latin-1") for name in FORWARDING if name in headers}
    address = proxies.client_of(peer, forwarded)
    authorization = authorization_of(headers)
    credentials = {"authorization": authorization.decode("latin-1")}
    for name in (CLIENT_HEADER, *NAMING):
        if name.encode() in headers:
            credentials[name] = headers[name.encode()].decode("latin-1")
    cookies = _read_cookies(headers.get(b"cookie", b""))
    key = await keys.authenticate(credentials, cookies, method.decode("latin-1"), address)
    if key is not None:
        return key
    if authorization:
        raise ErrorResponse(401, "this API key is unknown or was revoked", code="invalid_api_key")
    raise ErrorResponse(401, "an API key is required: send `Authorization: Bearer <key>`", code="invalid_api_key")


def _read_cookies(header: bytes) -> dict[str, str]:
    if not header:
        return {}
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header.decode("latin-1")).items()}
    except CookieError:
        return {}
