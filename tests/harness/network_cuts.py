"""A line that breaks again and again: every connection is cut after so many bytes from the client."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable

PIECE_BYTES = 1 << 20


class CuttingProxy:
    """Forwards to `port`. In threads and through a pipe of the kernel, so that it costs next to nothing beside what is
    measured."""

    def __init__(self, port: int, cut_after: int) -> None:
        self._port, self._cut_after = port, cut_after
        self.cuts = 0
        self.bytes_up = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, run: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def close(self) -> None:
        self._cut(self._listener)  # closing alone would not wake who accepts
        self._threads[0].join(60)
        self._listener.close()
        self._cut(*self._sockets.copy())
        for thread in self._threads:
            thread.join(60)

    def _cut(self, *ends: socket.socket) -> None:
        """Not closed yet: another thread may be reading from them."""
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.add(client)
                self._start(self._carry, client)

    def _carry(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as upstream:
            self._sockets.add(upstream)
            down = self._start(self._down, upstream, client)
            self._up(client, upstream)
            down.join()
            self._sockets.discard(upstream)
        self._sockets.discard(client)

    def _up(self, client: socket.socket, upstream: socket.socket) -> None:
        left = self._cut_after
        out, into = os.pipe()
        try:
            while left:
                count = os.splice(client.fileno(), into, min(PIECE_BYTES, left))
                if not count:
                    upstream.shutdown(socket.SHUT_WR)
                    return
                left -= count
                self.bytes_up += count
                while count:
                    count -= os.splice(out, upstream.fileno(), count)
            self.cuts += 1
            self._cut(client, upstream)
        except OSError:
            self._cut(client, upstream)
        finally:
            os.close(out)
            os.close(into)

    def _down(self, upstream: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := upstream.recv(PIECE_BYTES):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
