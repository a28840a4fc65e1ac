"""One file as the body of one PUT. Blocking; the address goes out exactly as it is given."""

import http.client
import os
from collections.abc import Mapping
from io import FileIO
from urllib.parse import urlsplit

from corral.core.errors import Unavailable


def put_file(url: str, file: FileIO, headers: Mapping[str, str], *, stall_s: float) -> None:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=stall_s, blocksize=1 << 20)
    try:
        size = str(os.fstat(file.fileno()).st_size)
        connection.request("PUT", parts.path, body=file, headers={**headers, "Content-Length": size})
        response = connection.getresponse()
        said = response.read(2000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        raise Unavailable(f"cannot write to {parts.scheme}://{parts.netloc}: {why}") from error
    finally:
        connection.close()
    if not 200 <= response.status < 300:
        raise Unavailable(f"{parts.netloc} answered {response.status}: {said[:300]}")
