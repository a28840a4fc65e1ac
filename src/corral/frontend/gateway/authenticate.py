"""Who asks, where memory does not know: the store does, or nobody."""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from corral.frontend.auth.rules import CLIENT_HEADER, NAMING
from corral.frontend.gateway.answers import Refusal
from corral.frontend.gateway.keys import KeyRing, LaneKey
from corral.frontend.http.proxies import TrustedProxies

FORWARDING = (b"x-forwarded-for", b"forwarded")


async def ask_who(
    keys: KeyRing, headers: Mapping[bytes, bytes], method: bytes, proxies: TrustedProxies, peer: str
) -> LaneKey:
    """`peer` is who opened the connection."""
    told = {name.decode(): headers[name].decode("latin-1") for name in FORWARDING if name in headers}
    address = proxies.client_of(peer, told)
    authorization = headers.get(b"authorization", b"")
    shown = {"authorization": authorization.decode("latin-1")}
    for name in (CLIENT_HEADER, *NAMING):
        if name.encode() in headers:
            shown[name] = headers[name.encode()].decode("latin-1")
    cookies = _read_cookies(headers.get(b"cookie", b""))
    key = await keys.ask(shown, cookies, method.decode("latin-1"), address)
    if key is not None:
        return key
    if authorization:
        raise Refusal(401, "this API key is not known here, or was revoked", code="invalid_api_key")
    raise Refusal(401, "an API key is needed: send `Authorization: Bearer <key>`", code="invalid_api_key")


def _read_cookies(header: bytes) -> dict[str, str]:
    if not header:
        return {}
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header.decode("latin-1")).items()}
    except CookieError:
        return {}
