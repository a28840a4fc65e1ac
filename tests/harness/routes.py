"""The routes a frontend says it has."""

import json

from harness.programs import Admin


def admin_routes(admin: Admin) -> list[tuple[str, str]]:
    """(method, path) of every route in the published description."""
    described = json.loads(admin.call("GET", "/openapi.json").body)
    return [(method.upper(), path) for path, methods in described["paths"].items() for method in methods]


def fill(path: str) -> str:
    """Parameters filled with something that does not exist."""
    return "/".join("nope" if part.startswith("{") else part for part in path.split("/"))
