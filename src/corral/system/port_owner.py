"""Finds the program that listens on a port."""

import psutil


def find_port_owner(port: int) -> str | None:
    """`name (process 123)`; None if it cannot be determined."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.AccessDenied, OSError):
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            try:
                name = psutil.Process(connection.pid).name() if connection.pid else None
            except psutil.Error:
                name = None
            return f"{name} (process {connection.pid})" if name else "a program of another user"
    return None
