"""TLS to servers whose certificate is checked by a CA of their own, or by its fingerprint."""

import asyncio
import hashlib
import ssl
from functools import lru_cache

from corral.core.errors import InvalidInput
from corral.core.replicas.attached import ServerTrust


class UntrustedServer(OSError):
    """The server's certificate is not the one that was pinned."""


@lru_cache(maxsize=256)
def tls_context(trust: ServerTrust) -> ssl.SSLContext:
    """Raises ssl.SSLError for a CA that cannot be read."""
    context = ssl.create_default_context(cadata=trust.ca_pem or None)
    if trust.pin and not trust.ca_pem:
        # The fingerprint says more than a name and an issuer do. It is checked before anything is sent.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def check_ca(ca_pem: str) -> None:
    """Raises InvalidInput."""
    if not ca_pem:
        return
    try:
        tls_context(ServerTrust(ca_pem=ca_pem))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput(f"the CA is not a certificate in PEM form: {error}") from None


def check_peer(transport: asyncio.BaseTransport, trust: ServerTrust) -> None:
    """Call it after the handshake, before anything is sent. Raises UntrustedServer."""
    if not trust.pin:
        return
    connection = transport.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True) if connection is not None else None
    if certificate is None or hashlib.sha256(certificate).hexdigest() != trust.pin:
        raise UntrustedServer("its certificate does not have the pinned fingerprint")
