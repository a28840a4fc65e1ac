"""Where a machine may say that it is reached."""

import pytest

from corral.core.errors import InvalidInput
from corral.core.nodes.addresses import check_address, same_origin, split_address


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1:50050",
        "worker-1:50050",
        "a.b.example.:1",
        "[2001:db8::1]:65535",
        "my_host:80",
        "2001:db8::1:80",
        "0xbee.example:80",
        "1.example:80",
    ],
)
def test_host_and_port_are_an_address(text: str) -> None:
    host, port = split_address(text, what="http_address")
    assert host
    assert port


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:19312/latest/meta-data?x=",
        "http://10.0.0.1:80",
        "user@10.0.0.1:80",
        "10.0.0.1",
        "10.0.0.1:",
        ":80",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "10.0.0.1:80#x",
        "a b:80",
        "host:80\r\nX: y",
        "ho\0st:80",
        "[::1:80",
        "",
        "x" * 300 + ":80",
        "127.1:4222",
        "2130706433:80",
        "0x7f000001:80",
        "0x7f.1:80",
        "127.0.0.0x1:80",
        "127.0.0.0X1:80",
        "0177.0.0.1:80",
        "127.0.0.1.:80",
        "worker.0x:80",
    ],
)
def test_nothing_else_is(text: str) -> None:
    with pytest.raises(InvalidInput, match="host:port"):
        split_address(text, what="http_address")


@pytest.mark.parametrize(
    ("text", "source_address", "allowed"),
    [
        ("10.0.0.1:1", "192.0.2.7", True),
        ("worker-1:1", "192.0.2.7", True),
        ("127.0.0.1:1", "127.0.0.1", True),
        ("localhost:1", "::1", True),
        ("[::1]:1", "127.0.0.1", True),
        ("127.0.0.1:1", "192.0.2.7", False),
        ("127.9.9.9:1", "192.0.2.7", False),
        ("localhost:1", "192.0.2.7", False),
        ("x.localhost:1", "192.0.2.7", False),
        ("0.0.0.0:1", "192.0.2.7", False),
        ("[::]:1", "192.0.2.7", False),
        ("[::1]:1", "192.0.2.7", False),
        ("[::ffff:127.0.0.1]:1", "192.0.2.7", False),
        ("[::127.0.0.1]:1", "192.0.2.7", False),
        ("[64:ff9b::127.0.0.1]:1", "192.0.2.7", False),
        ("[64:ff9b::a9fe:a9fe]:1", "192.0.2.7", False),
        ("[64:ff9b::10.0.0.1]:1", "192.0.2.7", True),
        ("[2002:7f00:1::1]:1", "192.0.2.7", False),
        ("[::ffff:0:127.0.0.1]:1", "192.0.2.7", False),
        ("ip6-localhost:1", "192.0.2.7", False),
        ("ip6-loopback:1", "192.0.2.7", False),
        ("Localhost.localdomain:1", "192.0.2.7", False),
        ("localhost6.localdomain6:1", "192.0.2.7", False),
        ("localhost4:1", "127.0.0.1", True),
        ("localhost-7:1", "192.0.2.7", True),
        ("169.254.1.1:1", "192.0.2.7", False),
        ("169.254.1.1:1", "169.254.1.2", True),
        ("169.254.169.254:80", "169.254.1.2", False),
        ("169.254.169.254:80", "127.0.0.1", False),
        ("[fd00:ec2::254]:80", "192.0.2.7", False),
        ("[fe80::1]:1", "2001:db8::1", False),
        ("224.0.0.1:1", "192.0.2.7", False),
        ("127.0.0.1:1", None, True),
    ],
)
def test_who_may_say_so(text: str, source_address: str | None, allowed: bool) -> None:
    if allowed:
        check_address(text, what="http_address", source_address=source_address)
        return
    with pytest.raises(InvalidInput, match="--advertise"):
        check_address(text, what="http_address", source_address=source_address)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("127.0.0.1", "::1", True),
        ("127.0.0.1", "127.0.0.2", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "", False),
        ("2001:db8::1", "2001:db8::77:1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1", "fe80::2", False),
        ("2001:db8::1", "10.0.0.1", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("64:ff9b::10.0.0.1", "64:ff9b::10.0.0.2", False),
    ],
)
def test_one_machine(one: str, other: str, same: bool) -> None:
    assert same_origin(one, other) is same
