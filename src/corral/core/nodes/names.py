"""Names that look alike to a person: `BUS-LIVE` and `bus-live`, or the same with another kind of hyphen."""

import unicodedata
from functools import lru_cache

_HYPHENS = "\u00ad\u058a\u05be\u1806\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u2e3a\u2e3b\ufe58\ufe63\uff0d_"
# Letters of other scripts that most fonts draw like a Latin one, after case folding.
_LIKE_LATIN = dict(
    zip(
        "\u0430\u0441\u0501\u0435\u04bb\u0456\u0458\u043a\u04cf\u043c\u043e\u0440\u051b\u0455\u0442\u0443\u0475\u051d\u0445"
        "\u03b1\u03bf\u03c1\u03bd\u03b9\u03ba\u03c5\u03c7",
        "acdehijklmopqstyvwx"
        "aopvikux",
        strict=True,
    )
)  # fmt: skip
_ALIKE = str.maketrans({**dict.fromkeys(_HYPHENS, "-"), **_LIKE_LATIN})


@lru_cache(maxsize=8192)  # a joining node is compared with all others
def looks_like(name: str) -> str:
    """A key that is equal for names that look alike."""
    folded = unicodedata.normalize("NFKC", name.translate(_ALIKE)).casefold().translate(_ALIKE)
    visible = "".join(char for char in folded if unicodedata.category(char) not in ("Cf", "Mn"))
    return " ".join(visible.split())
