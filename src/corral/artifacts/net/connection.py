"""One connection. It checks the address it connects to, can be cancelled at any time, and detects a silent or very slow
server. `http.client` speaks HTTP over it."""

import http.client
import io
import queue
import socket
import ssl
import threading
from typing import Any

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import PolicyRefused, SourceUnavailable, Stalled
from corral.artifacts.net.host_policy import check_address
from corral.artifacts.settings import NetworkPolicy, TransferLimits
from corral.system import Clock

SLICE_S = 0.25  # the longest a blocked call goes without looking at its cancel token
READ_BUFFER_BYTES = 128 * 1024


class BandwidthCap:
    """A token bucket over all connections of one client."""

    def __init__(self, bytes_per_s: int | None, clock: Clock) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at_s = clock.monotonic_s()

    def spend(self, count: int, cancel: CancelToken) -> None:
        if self._bytes_per_s is None:
            return
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._free_at_s = max(now_s, self._free_at_s) + count / self._bytes_per_s
            wait_s = self._free_at_s - now_s
        if wait_s > 0.01:
            cancel.wait(wait_s)


class Watch:
    """Detects silence: by a deadline until the headers are complete, then by a stall window."""

    def __init__(self, limits: TransferLimits, clock: Clock, cancel: CancelToken, host: str, cap: BandwidthCap) -> None:
        self._limits = limits
        self._clock = clock
        self._cap = cap
        self.cancel = cancel
        self.host = host
        self._headers_by_s: float | None = clock.monotonic_s() + limits.headers_s
        self._window_from_s = 0.0
        self._window_bytes = 0

    def headers_complete(self) -> None:
        self._headers_by_s = None
        self._window_from_s = self._clock.monotonic_s()
        self._window_bytes = 0

    def saw(self, count: int) -> None:
        if self._headers_by_s is None:
            self._window_bytes += count
            self._cap.spend(count, self.cancel)

    def check(self) -> None:
        self.cancel.check()
        now_s = self._clock.monotonic_s()
        if self._headers_by_s is not None:
            if now_s > self._headers_by_s:
                raise Stalled(f"{self.host} sent no complete response headers within {self._limits.headers_s:g} s.")
        elif now_s - self._window_from_s > self._limits.stall_window_s:
            if self._window_bytes < self._limits.stall_bytes:
                raise Stalled(
                    f"{self.host} sent {self._window_bytes} bytes in {self._limits.stall_window_s:g} s; the download"
                    " counts as stalled."
                )
            self._window_from_s, self._window_bytes = now_s, 0


class _Reader(io.RawIOBase):
    def __init__(self, wire: "Wire") -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._wire.receive_into(buffer)

    def close(self) -> None:
        if not self.closed:
            self._wire.reader_closed()
        super().close()


class Wire:
    """The part of a socket that `http.client` uses."""

    def __init__(self, sock: socket.socket, watch: Watch) -> None:
        self._sock = sock
        self._readers = 0
        self._closed = False
        self.watch = watch
        self._sock.settimeout(SLICE_S)

    def makefile(self, mode: str = "rb") -> io.BufferedReader:
        self._readers += 1
        return io.BufferedReader(_Reader(self), READ_BUFFER_BYTES)

    def receive_into(self, buffer: memoryview) -> int:
        while True:
            self.watch.check()
            try:
                count = self._sock.recv_into(buffer)
            except TimeoutError:
                continue
            except OSError as error:
                raise SourceUnavailable(f"{self.watch.host} closed the connection: {_plain(error)}.") from error
            self.watch.saw(count)
            return count

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self.watch.check()
            try:
                view = view[self._sock.send(view) :]
            except TimeoutError:
                continue
            except OSError as error:
                raise SourceUnavailable(f"{self.watch.host} did not accept the request: {_plain(error)}.") from error

    def close(self) -> None:
        """Closes the socket when no reader is left: `http.client` closes a connection that will not be kept open while
        the response is still being read."""
        self._closed = True
        if not self._readers:
            self._sock.close()

    def reader_closed(self) -> None:
        self._readers -= 1
        if self._closed:
            self.close()


def _plain(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def look_up(host: str, port: int, cancel: CancelToken, within_s: float) -> list[Any]:
    """Looks up a name in a thread, because `getaddrinfo` cannot be interrupted. After the time limit the thread is
    abandoned."""
    answer: queue.Queue[list[Any] | OSError] = queue.Queue(1)

    def ask() -> None:
        try:
            answer.put(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except OSError as error:
            answer.put(error)

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    for _ in range(max(1, int(within_s / SLICE_S))):
        cancel.check()
        try:
            found = answer.get(timeout=SLICE_S)
        except queue.Empty:
            continue
        if isinstance(found, OSError):
            raise SourceUnavailable(f"The name {host} could not be resolved: {_plain(found)}.") from found
        return found
    raise SourceUnavailable(f"Resolving the name {host} took longer than {within_s:g} s.")


class CheckedConnection(http.client.HTTPConnection):
    """Looks the name up itself and connects to the address that it checked."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        policy: NetworkPolicy,
        limits: TransferLimits,
        tls: ssl.SSLContext | None,
        watch: Watch,
    ) -> None:
        super().__init__(host, port)
        self._policy = policy
        self._limits = limits
        self._tls = tls
        self.watch = watch
        self.used = False

    def rearm(self, watch: Watch) -> None:
        self.watch = watch
        if isinstance(self.sock, Wire):
            self.sock.watch = watch

    def connect(self) -> None:
        found = look_up(self.host, self.port, self.watch.cancel, self._limits.connect_s)
        refused: list[str] = []
        last: OSError | None = None
        for family, kind, protocol, _, address in found:
            why = check_address(self._policy, self.host, self.port, str(address[0]))
            if why is not None:
                refused.append(why)
                continue
            self.watch.cancel.check()
            try:
                self.sock = Wire(self._open(family, kind, protocol, address), self.watch)
                return
            except ssl.SSLCertVerificationError as error:
                raise PolicyRefused(
                    f"{self.host} has a certificate that is not trusted: {error.verify_message}."
                ) from error
            except OSError as error:
                last = error
        if last is None and refused:
            raise PolicyRefused(
                f"{refused[0]}. To allow it, add it to the setting trusted_hosts (--trusted-hosts of worker and"
                " frontend, CORRAL_TRUSTED_HOSTS for `corral up`; `corral artifacts` has --trust)."
            )
        why = "no address" if last is None else _plain(last)
        raise SourceUnavailable(f"{self.host}:{self.port} could not be reached: {why}.")

    def _open(self, family: int, kind: int, protocol: int, address: Any) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(min(self._limits.connect_s, 4.0))  # inside the 5 s a cancel may take
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname=self.host)
        except BaseException:  # an interrupt must not leave the socket open
            sock.close()
            raise
