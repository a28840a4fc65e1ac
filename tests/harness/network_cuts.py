"""A line that breaks again and again: every connection is cut after so many bytes from the client."""

import contextlib
import os
import socket
import threading

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
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=self._up, args=(client, upstream), daemon=True).start()
                threading.Thread(target=self._down, args=(upstream, client), daemon=True).start()

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
            for end in (client, upstream):  # closing alone would leave it open while another thread reads from it
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        except OSError:
            return
        finally:
            os.close(out)
            os.close(into)

    def _down(self, upstream: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := upstream.recv(PIECE_BYTES):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
