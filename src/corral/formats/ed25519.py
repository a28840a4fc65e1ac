"""Checking Ed25519 signatures (RFC 8032). Only checking, as in `p256`: every value here is public."""

import hashlib
from typing import NamedTuple

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)
_KEY_BYTES = 32


class _Point(NamedTuple):
    """Extended coordinates: x = X/Z, y = Y/Z, and T = XY/Z saves a multiplication."""

    x: int
    y: int
    z: int
    t: int


_NEUTRAL = _Point(0, 1, 1, 0)


class Key(NamedTuple):
    raw: bytes
    point: _Point


def read_key(raw: bytes) -> Key:
    """A public key. Raises ValueError for anything that is not a point of the curve."""
    return Key(raw, _read_point(raw))


def is_signed_by(key: Key, message: bytes, signature: bytes) -> bool:
    if len(signature) != 2 * _KEY_BYTES:
        return False
    commitment, scalar = signature[:_KEY_BYTES], int.from_bytes(signature[_KEY_BYTES:], "little")
    if scalar >= _ORDER:
        return False  # the same signature could otherwise be written in several ways
    try:
        point = _read_point(commitment)
    except ValueError:
        return False
    challenge = int.from_bytes(hashlib.sha512(commitment + key.raw + message).digest(), "little") % _ORDER
    return _are_equal(_multiply(_BASE, scalar), _add(point, _multiply(key.point, challenge)))


def _read_point(raw: bytes) -> _Point:
    if len(raw) != _KEY_BYTES:
        raise ValueError("not 32 bytes")
    number = int.from_bytes(raw, "little")
    y, is_odd = number & (2**255 - 1), number >> 255
    if y >= _P:
        raise ValueError("not a point of the curve Ed25519")
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - square) % _P or (x == 0 and is_odd):
        raise ValueError("not a point of the curve Ed25519")
    if x & 1 != is_odd:
        x = _P - x
    return _Point(x, y, 1, x * y % _P)


def _add(one: _Point, other: _Point) -> _Point:
    a = (one.y - one.x) * (other.y - other.x) % _P
    b = (one.y + one.x) * (other.y + other.x) % _P
    c = 2 * one.t * other.t * _D % _P
    d = 2 * one.z * other.z % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return _Point(e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _multiply(point: _Point, count: int) -> _Point:
    total = _NEUTRAL
    while count:
        if count & 1:
            total = _add(total, point)
        point = _add(point, point)
        count >>= 1
    return total


def _are_equal(one: _Point, other: _Point) -> bool:
    return not ((one.x * other.z - other.x * one.z) % _P or (one.y * other.z - other.y * one.z) % _P)


_BASE = _read_point((4 * pow(5, -1, _P) % _P).to_bytes(_KEY_BYTES, "little"))
