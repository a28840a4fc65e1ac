"""How client commands find the frontend and the API key, and reject invalid ones."""

import json
from pathlib import Path

import pytest

from corral.cli.client.api import connect
from corral.core.errors import InvalidInput


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "http://", "http://host:port", "http://host:80800", "http://[::1"])
def test_an_invalid_address_is_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^--url \(CORRAL_URL\): "):
        connect(url, tmp_path, as_json=False)


@pytest.mark.parametrize("url", ["http://host:8080", "http://host:8080/", " http://host:8080\n"])
def test_one_address_may_be_written_in_several_ways(url: str, tmp_path: Path) -> None:
    assert connect(url, tmp_path, as_json=False).url == "http://host:8080"


@pytest.mark.parametrize("key", ["corral-abc\ndef", "corral-ключ"])
def test_an_invalid_key_is_rejected_without_showing_it(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_API_KEY", key)
    with pytest.raises(InvalidInput, match=r"^CORRAL_API_KEY: ") as caught:
        connect("http://host:8080", tmp_path, as_json=False)
    assert "corral-" not in str(caught.value)


def test_the_data_directory_flag_overrides_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "admin.key").write_text("corral-local\n")
    (tmp_path / "run.json").write_text(json.dumps({"url": "http://127.0.0.1:9191"}))
    monkeypatch.setenv("CORRAL_URL", "http://elsewhere:8080")
    monkeypatch.setenv("CORRAL_API_KEY", "corral-elsewhere")
    named = connect(None, tmp_path, as_json=False)
    assert (named.url, named.key) == ("http://127.0.0.1:9191", "corral-local")
    monkeypatch.setenv("CORRAL_DATA_DIR", str(tmp_path))
    for url, data_dir in ((None, None), ("http://elsewhere:8080", tmp_path)):
        meant = connect(url, data_dir, as_json=False)
        assert (meant.url, meant.key) == ("http://elsewhere:8080", "corral-elsewhere")
