"""One small GET for processes that do not need a whole HTTP client."""

import asyncio
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from corral.core.errors import Unavailable


async def get_json(url: str, *, bearer: str | None = None, within_s: float = 5.0) -> Any:
    return await asyncio.to_thread(_get_json, url, bearer, within_s)


def _get_json(url: str, bearer: str | None, within_s: float) -> Any:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=within_s)
    try:
        connection.request("GET", parts.path, headers={"Authorization": f"Bearer {bearer}"} if bearer else {})
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise Unavailable(f"{url} answered {response.status}")
        return json.loads(body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"cannot read {url}: {error}") from error
    finally:
        connection.close()
