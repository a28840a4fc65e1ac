"""Downloads in a configuration are checked as workers will check them, before they are needed."""

import pytest

from corral.artifacts.settings import NetworkPolicy
from corral.core.errors import InvalidInput
from corral.core.models.config import parse_model_config
from corral.frontend.models.downloads import Downloads

POLICY = NetworkPolicy(trusted_hosts=frozenset({"10.0.0.0/8"}), plain_http_hosts=frozenset({"files.lan", "10.1.1.1"}))


def check(uri: str) -> list[str]:
    document = {"name": "m", "download_files": [{"filename": "f.gguf", "uri": uri}]}
    return Downloads(POLICY).check(parse_model_config(document))


@pytest.mark.parametrize(
    "uri",
    ["https://host/f.gguf", "hf://owner/repository/f.gguf", "http://files.lan/f.gguf", "http://10.1.1.1/f.gguf"],
)
def test_allowed_downloads_get_no_warning(uri: str) -> None:
    assert check(uri) == []


@pytest.mark.parametrize(
    ("uri", "advice"),
    [
        ("http://host/f.gguf", "--plain-http-hosts host "),
        ("http://10.2.2.2/f.gguf", "--plain-http-hosts 10.2.2.2 "),
        ("https://192.168.1.7/f.gguf", "--trusted-hosts 192.168.1.7 "),
        ("http://localhost:8000/f.gguf", "--trusted-hosts localhost "),
        ("http://[::1]/f.gguf", "--trusted-hosts ::1 "),
    ],
)
def test_downloads_that_workers_reject_by_default_get_a_warning_with_the_setting(uri: str, advice: str) -> None:
    [warning] = check(uri)
    assert warning.startswith(f"workers will not download {uri}: ")
    assert advice in warning


@pytest.mark.parametrize(
    "uri", ["ftp://host/f.gguf", "https://ann:secret@host/f.gguf", "https:///f.gguf", "https://host:port/f.gguf"]
)
def test_impossible_downloads_are_rejected(uri: str) -> None:
    with pytest.raises(InvalidInput, match="no node can download"):
        check(uri)
