"""Where client commands look for a frontend: what cannot be an address or a key is told in words."""

from pathlib import Path

import pytest

from corral.cli.client import connect
from corral.core.errors import InvalidInput


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "http://", "http://host:port", "http://host:80800", "http://[::1"])
def test_what_is_no_address_is_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^--url \(CORRAL_URL\): "):
        connect(url, tmp_path, as_json=False)


@pytest.mark.parametrize("url", ["http://host:8080", "http://host:8080/", " http://host:8080\n"])
def test_one_address_may_be_written_in_several_ways(url: str, tmp_path: Path) -> None:
    assert connect(url, tmp_path, as_json=False).url == "http://host:8080"


@pytest.mark.parametrize("key", ["corral-abc\ndef", "corral-ключ"])
def test_what_can_be_no_key_is_named_and_not_shown(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_API_KEY", key)
    with pytest.raises(InvalidInput, match=r"^CORRAL_API_KEY: ") as caught:
        connect("http://host:8080", tmp_path, as_json=False)
    assert "corral-" not in str(caught.value)
