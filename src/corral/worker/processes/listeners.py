"""Finds out which process listens on a port."""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from corral.worker.processes.machine_port import Listener

_LISTEN = "0A"


def find_listener(port: int, members: Callable[[], Iterable[int]], *, main_pid: int) -> Listener:
    """`members` is called only if a process listens. Reads the socket tables of `main_pid`, which may have its own
    network namespace."""
    tables = [Path(f"/proc/{main_pid}/net/{name}") for name in ("tcp", "tcp6")]
    inodes: set[str] = set()
    readable = False
    for table in tables:
        with contextlib.suppress(OSError):
            inodes |= _listening_inodes(table.read_text(), port)
            readable = True
    if not readable:
        return _find_without_proc(port, members())
    if not inodes:
        return Listener.NOBODY
    hidden = False
    for pid in members():
        try:
            if inodes & _socket_inodes(pid):
                return Listener.OURS
        except PermissionError:
            hidden = True
        except OSError:
            continue  # ended meanwhile
    return Listener.UNKNOWN if hidden else Listener.FOREIGN


def _find_without_proc(port: int, pids: Iterable[int]) -> Listener:
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return Listener.OURS
    return Listener.NOBODY


def _listening_inodes(table: str, port: int) -> set[str]:
    suffix = f":{port:04X}"
    inodes = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN and fields[1].endswith(suffix):
            inodes.add(fields[9])
    return inodes


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    directory = f"/proc/{pid}/fd"
    for name in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"{directory}/{name}")
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    return inodes
