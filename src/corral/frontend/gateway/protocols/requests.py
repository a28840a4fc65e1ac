"""Reads requests of client protocols."""

from typing import TypeVar

import msgspec

from corral.core.errors import InvalidInput
from corral.system.json import decode_json

Request = TypeVar("Request", bound=msgspec.Struct)


def read_request(kind: type[Request], body: bytes) -> Request:
    try:
        return decode_json(body, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid request: {error}") from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the request body is not valid JSON: {error}") from None
