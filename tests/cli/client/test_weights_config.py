"""A model configuration made from the location of its weights."""

import pytest

from corral.cli.client.weights_config import config_for
from corral.core.errors import InvalidInput
from corral.store.serving.models import parse_config_text


@pytest.mark.parametrize(
    "uri",
    [
        "hf://owner/repository/Tiny-Q4.gguf",
        "hf://owner/repository/Tiny-Q4.gguf@main",
        "https://host/a/Tiny-Q4.gguf?download=true",
    ],
)
def test_the_configuration_is_valid(uri: str) -> None:
    config = parse_config_text(config_for(uri))
    assert (config.name, config.backend) == ("tiny-q4", "llama-cpp")
    assert [(file.filename, file.uri) for file in config.files] == [(config.model, uri)]
    assert (config.model.startswith("tiny-q4/"), config.model.endswith("/Tiny-Q4.gguf")) == (True, True)
    assert parse_config_text(config_for(uri, name="mine")).name == "mine"


def test_files_of_the_same_name_from_different_locations_stay_apart() -> None:
    one, other = (parse_config_text(config_for(f"https://{host}/model.gguf", name="mine")) for host in ("a", "b"))
    assert one.model != other.model


def test_another_file_format_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="--file"):
        config_for("hf://owner/repository/model.safetensors")
