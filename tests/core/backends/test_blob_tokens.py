import pytest

from corral.core.backends.blob_tokens import VALID_S, make_blob_token, opens_blob

TOKEN = make_blob_token("secret", "sha256:1", now_s=1000.5)


def test_it_opens_its_blob_until_it_expires() -> None:
    assert opens_blob("secret", TOKEN, "sha256:1", now_s=1000.0 + VALID_S - 1)
    assert not opens_blob("secret", TOKEN, "sha256:1", now_s=1000.0 + VALID_S)


@pytest.mark.parametrize(
    ("secret", "token", "digest"),
    [
        ("secret", TOKEN, "sha256:2"),
        ("other", TOKEN, "sha256:1"),
        ("secret", TOKEN.replace("one.4600", "one.9600"), "sha256:1"),
        ("secret", TOKEN[:-1], "sha256:1"),
        ("secret", "one.\u00b2.x", "sha256:1"),
        ("secret", "", "sha256:1"),
    ],
    ids=["another blob", "another worker", "extended", "cut", "no number", "empty"],
)
def test_it_opens_nothing_else(secret: str, token: str, digest: str) -> None:
    assert not opens_blob(secret, token, digest, now_s=1001.0)
