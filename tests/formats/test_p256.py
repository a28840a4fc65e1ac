"""ECDSA on P-256: the published examples, what OpenSSL signs, and everything that must not pass."""

import shutil
import subprocess
from pathlib import Path

import pytest

from corral.formats.p256 import Point, is_signed_by, read_point, read_signature

# RFC 6979, A.2.5
KEY = Point(
    0x60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6,
    0x7903FE1008B8BC99A41AE9E95628BC64F2F1B20C2D7E9F5177A3C294D4462299,
)
SAMPLE = (
    0xEFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716,
    0xF7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8,
)
TEST = (
    0xF1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367,
    0x019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083,
)
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def raw(point: Point) -> bytes:
    return b"\x04" + point.x.to_bytes(32, "big") + point.y.to_bytes(32, "big")


def test_the_published_examples_hold() -> None:
    assert read_point(raw(KEY)) == KEY
    assert is_signed_by(KEY, b"sample", SAMPLE)
    assert is_signed_by(KEY, b"test", TEST)


@pytest.mark.parametrize(
    ("message", "signature"),
    [
        (b"sample", TEST),
        (b"Sample", SAMPLE),
        (b"sample", (SAMPLE[1], SAMPLE[0])),
        (b"sample", (0, SAMPLE[1])),
        (b"sample", (SAMPLE[0], 0)),
        (b"sample", (SAMPLE[0] + ORDER, SAMPLE[1])),
        (b"sample", (SAMPLE[0], SAMPLE[1] + ORDER)),
        (b"sample", (ORDER, ORDER)),
        (b"sample", (-SAMPLE[0], SAMPLE[1])),
    ],
)
def test_nothing_else_counts_as_signed(message: bytes, signature: tuple[int, int]) -> None:
    assert not is_signed_by(KEY, message, signature)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        raw(KEY)[:-1],
        b"\x02" + raw(KEY)[1:33],
        raw(KEY._replace(y=KEY.y + 1)),
        raw(Point(0, 0)),
        b"\x04" + b"\xff" * 64,
    ],
)
def test_what_is_no_point_of_the_curve_is_no_key(data: bytes) -> None:
    with pytest.raises(ValueError, match="point"):
        read_point(data)


@pytest.mark.parametrize(
    "der",
    [
        "",
        "30",
        "3006020101020101ff",
        "3007020101020101ff",
        "3006030101020101",
        "300702020001020101",
        "3006020181020101",
        "308106020101020101",
        "3005020101020101",
        "3003020101",
        "30060201010203",
    ],
)
def test_a_signature_has_one_encoding(der: str) -> None:
    assert read_signature(bytes.fromhex("3006020101020102")) == (1, 2)
    with pytest.raises(ValueError, match=r"DER|signature|integer"):
        read_signature(bytes.fromhex(der))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl missing")
@pytest.mark.processes
def test_what_openssl_signs_is_signed(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key],
        check=True,
        capture_output=True,
    )
    der = subprocess.run(
        ["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"], check=True, capture_output=True
    ).stdout
    point = read_point(der[-65:])
    for number in range(8):  # signatures differ in length with their leading zeros
        message = f"message {number}".encode()
        der = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", key], input=message, check=True, capture_output=True
        ).stdout
        assert is_signed_by(point, message, read_signature(der))
        assert not is_signed_by(point, message + b".", read_signature(der))
        assert not is_signed_by(KEY, message, read_signature(der))
