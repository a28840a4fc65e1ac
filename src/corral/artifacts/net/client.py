"""The outbound HTTP client. Every location that a user, a gallery or a registry names is fetched with it."""

import http.client
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import (
    ArtifactError,
    BadReference,
    PolicyRefused,
    SourceRejected,
    SourceUnavailable,
)
from corral.artifacts.net.connection import BandwidthCap, CheckedConnection, Watch
from corral.artifacts.net.host_policy import check_url, origin_of
from corral.artifacts.settings import NetworkPolicy, TransferLimits
from corral.core.backoff import Backoff
from corral.system import Clock, Ids

Result = TypeVar("Result")

_REDIRECTS = {301, 302, 303, 307, 308}
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_PRIVATE_HEADERS = {"authorization", "cookie", "x-amz-security-token"}
_HINTS = {401: "It requires a login.", 403: "The login has no permission to read it.", 404: "It does not exist."}
_IDLE_CONNECTIONS = 4


@dataclass(slots=True)
class Response:
    """A response with complete headers. Its body is read within the `with` block that opened it."""

    status: int
    headers: Mapping[str, str]
    url: str
    length: int | None
    _body: http.client.HTTPResponse = field(repr=False)

    def read(self, count: int) -> bytes:
        """The bytes that have arrived, at most `count`; empty at the end. It does not wait for `count` bytes, so that
        they reach the disk before the connection breaks."""
        try:
            return self._body.read1(count)
        except http.client.HTTPException as error:
            host = urlsplit(self.url).hostname
            raise SourceUnavailable(f"{host} closed the connection during its response: {error!r}.") from error

    def read_all(self, limit: int) -> bytes:
        """The whole body. Rejected when longer than `limit`."""
        if self.length is not None and self.length > limit:
            raise BadReference(f"{self.url} returned {self.length} bytes; the limit is {limit}.")
        kept = bytearray()
        while piece := self.read(64 * 1024):
            kept += piece
            if len(kept) > limit:
                raise BadReference(f"{self.url} returned more than {limit} bytes, the limit.")
        if self.length is not None and len(kept) < self.length:
            raise SourceUnavailable(f"{urlsplit(self.url).hostname} ended after {len(kept)} of {self.length} bytes.")
        return bytes(kept)


class Outbound:
    def __init__(
        self,
        policy: NetworkPolicy,
        limits: TransferLimits,
        *,
        clock: Clock,
        ids: Ids,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._clock = clock
        self._ids = ids
        self._tls = tls
        self._cap = BandwidthCap(limits.bandwidth_bytes_per_s, clock)
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str, int], list[CheckedConnection]] = {}

    @property
    def policy(self) -> NetworkPolicy:
        return self._policy

    @property
    def limits(self) -> TransferLimits:
        return self._limits

    @contextmanager
    def open(
        self,
        url: str,
        *,
        cancel: CancelToken,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        accept_statuses: frozenset[int] = frozenset(),
    ) -> Iterator[Response]:
        """One request with its redirects, without retries. Statuses beyond 2xx raise unless accepted."""
        sent = dict(headers or {})
        origin = None
        for _ in range(self._limits.redirects + 1):
            parts = check_url(self._policy, url)
            if origin is not None and origin_of(parts) != origin:
                sent = {name: value for name, value in sent.items() if name.lower() not in _PRIVATE_HEADERS}
            origin = origin_of(parts)
            connection, response = self._exchange(method, url, sent, cancel)
            reusable = False
            try:
                if response.status in _REDIRECTS and response.status not in accept_statuses:
                    url = self._redirect_target(url, response)
                    continue
                self._refuse_bad_status(url, response, accept_statuses)
                yield _response(url, method, response)
                reusable = (response.isclosed() or response.length == 0) and not response.will_close
                return
            finally:
                self._give_back(origin, connection, response, reusable=reusable)
        raise PolicyRefused(f"{urlsplit(url).hostname} redirected more than {self._limits.redirects} times.")

    def fetch(
        self,
        url: str,
        *,
        cancel: CancelToken,
        limit: int,
        headers: Mapping[str, str] | None = None,
        accept_statuses: frozenset[int] = frozenset(),
        method: str = "GET",
    ) -> tuple[Response, bytes]:
        """A small document, with retries of transient faults."""

        def once() -> tuple[Response, bytes]:
            with self.open(
                url, cancel=cancel, headers=headers, accept_statuses=accept_statuses, method=method
            ) as response:
                return response, response.read_all(limit) if method != "HEAD" else b""

        return self.retried(once, cancel)

    def retried(self, once: Callable[[], Result], cancel: CancelToken) -> Result:
        for attempt in range(self._limits.attempts):
            try:
                return once()
            except SourceUnavailable as error:
                if attempt + 1 == self._limits.attempts:
                    raise
                self.pause(attempt, error, cancel)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def pause(self, attempt: int, error: SourceUnavailable, cancel: CancelToken) -> None:
        """Waits before the next attempt: as long as the server requests, else exponentially with full jitter."""
        if error.retry_after_s is not None:
            if error.retry_after_s > self._limits.retry_after_cap_s:
                raise error
            cancel.wait(error.retry_after_s)
            return
        retries = Backoff(base_s=self._limits.retry_base_s, cap_s=self._limits.retry_cap_s, jitter=1.0)
        cancel.wait(retries.delay_s(attempt + 1, self._ids.draw()))

    def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], cancel: CancelToken
    ) -> tuple[CheckedConnection, http.client.HTTPResponse]:
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        while True:
            connection = self._take(origin_of(parts), cancel)
            was_used = connection.used
            try:
                connection.used = True
                connection.request(
                    method, path, headers={"User-Agent": "corral", "Accept-Encoding": "identity", **headers}
                )
                response = connection.getresponse()
                connection.watch.headers_complete()
                return connection, response
            except (ArtifactError, OSError, http.client.HTTPException) as error:
                connection.close()
                if was_used and isinstance(error, (SourceUnavailable, http.client.RemoteDisconnected)):
                    continue  # a kept connection the server had closed meanwhile; fresh ones end this loop
                if isinstance(error, ArtifactError):
                    raise
                raise SourceUnavailable(f"{parts.hostname} sent an invalid response: {error!r}.") from error

    def _take(self, origin: tuple[str, str, int], cancel: CancelToken) -> CheckedConnection:
        scheme, host, port = origin
        watch = Watch(self._limits, self._clock, cancel, host, self._cap)
        with self._lock:
            kept = self._idle.get(origin)
            connection = kept.pop() if kept else None
        if connection is not None:
            connection.rearm(watch)
            return connection
        tls = None
        if scheme == "https":
            tls = self._tls = self._tls or ssl.create_default_context()
        return CheckedConnection(host, port, policy=self._policy, limits=self._limits, tls=tls, watch=watch)

    def _give_back(
        self,
        origin: tuple[str, str, int],
        connection: CheckedConnection,
        response: http.client.HTTPResponse,
        *,
        reusable: bool,
    ) -> None:
        response.close()  # http.client takes no new request before; and what will close is closed by this alone
        if reusable:
            with self._lock:
                kept = self._idle.setdefault(origin, [])
                if len(kept) < _IDLE_CONNECTIONS:
                    kept.append(connection)
                    return
        connection.close()

    def allowing(self, policy: NetworkPolicy, limits: TransferLimits | None = None) -> "Outbound":
        """Another client with another policy, the same bandwidth cap and, unless given, the same limits. The caller
        closes it."""
        other = Outbound(policy, limits or self._limits, clock=self._clock, ids=self._ids, tls=self._tls)
        other._cap = self._cap
        return other

    def close(self) -> None:
        with self._lock:
            connections = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def _redirect_target(self, url: str, response: http.client.HTTPResponse) -> str:
        location = response.getheader("Location")
        if not location:
            raise SourceUnavailable(f"{urlsplit(url).hostname} sent a redirect without an address.")
        target = urljoin(url, location)
        if urlsplit(url).scheme == "https" and urlsplit(target).scheme == "http":
            raise PolicyRefused(f"{urlsplit(url).hostname} redirected from https to http, which is not followed.")
        return target

    def _refuse_bad_status(self, url: str, response: http.client.HTTPResponse, accepted: frozenset[int]) -> None:
        status = response.status
        if 200 <= status < 300 or status in accepted:
            return
        host, path = urlsplit(url).hostname, urlsplit(url).path
        if status in _TRANSIENT:
            raise SourceUnavailable(
                f"{host} returned {status} for {path}.",
                retry_after_s=self._retry_after_s(response.getheader("Retry-After")),
            )
        hint = _HINTS.get(status, "")
        raise SourceRejected(f"{host} returned {status} for {path}. {hint}".rstrip(), status=status)

    def _retry_after_s(self, value: str | None) -> float | None:
        if value is None:
            return None
        try:
            return max(0.0, float(value))
        except ValueError:
            pass
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        return max(0.0, when.timestamp() - self._clock.now_ms() / 1000)


def _response(url: str, method: str, response: http.client.HTTPResponse) -> Response:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Response(
        status=response.status,
        headers=headers,
        url=url,
        length=response.length if method != "HEAD" else None,
        _body=response,
    )
