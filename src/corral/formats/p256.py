"""Checks ECDSA signatures on the curve P-256 (FIPS 186-5, SEC 1). It only checks: every value is public, so timing
reveals nothing and the textbook formulas are sufficient."""

import hashlib
from typing import NamedTuple

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_A = _P - 3
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class Point(NamedTuple):
    x: int
    y: int


_BASE = Point(
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)


def read_point(raw: bytes) -> Point:
    """An uncompressed public key. Raises ValueError for anything that is not a point of the curve."""
    if len(raw) != 65 or raw[0] != 4:
        raise ValueError("not an uncompressed point")
    point = Point(int.from_bytes(raw[1:33], "big"), int.from_bytes(raw[33:], "big"))
    if point.x >= _P or point.y >= _P or (point.y**2 - point.x**3 - _A * point.x - _B) % _P:
        raise ValueError("not a point of the curve P-256")
    return point


def read_signature(der: bytes) -> tuple[int, int]:
    """The two numbers of a signature in DER. Raises ValueError for any other encoding."""
    if len(der) < 2 or der[0] != 0x30 or der[1] != len(der) - 2 or der[1] > 127:
        raise ValueError("not a DER sequence")
    first, rest = _read_integer(der[2:])
    second, rest = _read_integer(rest)
    if rest:
        raise ValueError("bytes after the signature")
    return first, second


def _read_integer(der: bytes) -> tuple[int, bytes]:
    if len(der) < 3 or der[0] != 0x02 or not 1 <= der[1] <= 33 or len(der) < 2 + der[1]:
        raise ValueError("not a DER integer")
    raw, rest = der[2 : 2 + der[1]], der[2 + der[1] :]
    if raw[0] & 0x80 or (len(raw) > 1 and raw[0] == 0 and not raw[1] & 0x80):
        raise ValueError("not a positive integer in its shortest form")
    return int.from_bytes(raw, "big"), rest


def is_signed_by(key: Point, message: bytes, signature: tuple[int, int]) -> bool:
    """Whether the holder of `key` signed the SHA-256 of `message`."""
    r, s = signature
    if not (0 < r < _ORDER and 0 < s < _ORDER):
        return False
    hashed = int.from_bytes(hashlib.sha256(message).digest(), "big")
    inverse = pow(s, -1, _ORDER)
    found = _add(_times(hashed * inverse % _ORDER, _BASE), _times(r * inverse % _ORDER, key))
    return found is not None and found.x % _ORDER == r


def _add(one: Point | None, other: Point | None) -> Point | None:
    """None is the point at infinity."""
    if one is None or other is None:
        return one or other
    if one.x == other.x:
        if (one.y + other.y) % _P == 0:
            return None
        slope = (3 * one.x**2 + _A) * pow(2 * one.y, -1, _P) % _P
    else:
        slope = (other.y - one.y) * pow(other.x - one.x, -1, _P) % _P
    x = (slope**2 - one.x - other.x) % _P
    return Point(x, (slope * (one.x - x) - one.y) % _P)


def _times(factor: int, point: Point) -> Point | None:
    total: Point | None = None
    power: Point | None = point
    while factor:
        if factor & 1:
            total = _add(total, power)
        power = _add(power, power)
        factor >>= 1
    return total
