"""Where another version of a build may be."""

import pytest

from corral.artifacts.sources.other_version import version_locations

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("uri", "offered", "version", "locations"),
    [
        pytest.param("pypi://xllamacpp==0.2.0", "", "0.3", ["pypi://xllamacpp==0.3"], id="a-package"),
        pytest.param("pypi://vllm", "", "v0.11.0", ["pypi://vllm==0.11.0"], id="a-package-without-a-version"),
        pytest.param(
            "pypi://torch==1?index=https://i.test/cu12",
            "1",
            "2",
            ["pypi://torch==2?index=https://i.test/cu12"],
            id="a-package-of-another-index",
        ),
        pytest.param("pypi://a==1,b==2", "", "3", ["pypi://a==3,b==2"], id="only-the-first-package"),
        pytest.param("r.test/echo:1.3-cuda", "1.3", "1.2", ["r.test/echo:1.2-cuda"], id="a-tag-with-the-version"),
        pytest.param(
            "r.test/echo:1.3-cuda",
            "1.3",
            "v1.2",
            ["r.test/echo:1.2-cuda", "r.test/echo:v1.2-cuda"],
            id="a-tag-in-another-spelling",
        ),
        pytest.param("r.test/echo:v1.3", "v1.3", "1.2", ["r.test/echo:v1.2", "r.test/echo:1.2"], id="a-tag-with-v"),
        pytest.param(
            "quay.io/a/b:latest-gpu-cuda12",
            "",
            "v3.5.0",
            ["quay.io/a/b:v3.5.0-gpu-cuda12", "quay.io/a/b:3.5.0-gpu-cuda12"],
            id="a-moving-tag-with-and-without-v",
        ),
        pytest.param("r.test:5000/echo", "", "2", ["r.test:5000/echo:2", "r.test:5000/echo:v2"], id="no-tag"),
        pytest.param(
            "r.test/echo:2.0", "", "1.0", ["r.test/echo:1.0", "r.test/echo:v1.0"], id="a-tag-that-is-a-version"
        ),
        pytest.param(f"r.test/echo:2.0@{DIGEST}", "2.0", "1.0", ["r.test/echo:1.0"], id="a-tag-and-a-digest"),
        pytest.param("r.test/echo:cuda", "", "1.0", [], id="a-tag-that-says-nothing"),
        pytest.param("https://f.test/v1.3/e-1.3.tgz", "1.3", "1.2", ["https://f.test/v1.2/e-1.2.tgz"], id="a-download"),
        pytest.param("https://f.test/e.tgz", "1.3", "1.2", [], id="a-download-without-its-version"),
        pytest.param("r.test/echo:latest", "", "", [], id="no-version"),
    ],
)
def test_version_locations(uri: str, offered: str, version: str, locations: list[str]) -> None:
    assert version_locations(uri, offered, version) == locations
