"""One word, one meaning: words that the glossary of ARCHITECTURE.md retired occur neither in names nor in texts. No two
public classes share a name."""

import ast
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from strings import list_all  # noqa: E402

SOURCES = sorted(path for path in (ROOT / "src" / "corral").rglob("*.py") if "static" not in path.parts)


def retired() -> Iterator[tuple[str, str]]:
    """From the table below "Retired words": what it was, and what to say instead."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    _, _, below = text.partition("### Retired words")
    for line in below.splitlines():
        if cells := re.fullmatch(r"\| (.+?) \| (.+?) \|", line):
            for word in re.findall(r"`([^`]+)`", cells[1]):
                yield word, cells[2]
        elif line.startswith("#"):
            return


RETIRED = dict(retired())


def split_name(name: str) -> list[str]:
    """`given_away`, `GivenAway` and `GIVEN_AWAY` alike: given, away."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def test_the_glossary_retires_words() -> None:
    assert len(RETIRED) > 30


def test_no_name_in_the_code_has_a_retired_word() -> None:
    names = {tuple(split_name(word.replace(" ", "_"))): word for word in RETIRED}
    found = defaultdict(set)
    for path in SOURCES:
        with tokenize.open(path) as file:
            for token in tokenize.generate_tokens(file.readline):
                if token.type != tokenize.NAME:
                    continue
                parts = split_name(token.string)
                for length in (1, 2, 3):
                    for start in range(len(parts) - length + 1):
                        if word := names.get(tuple(parts[start : start + length])):
                            found[f"{path.relative_to(ROOT)}: {token.string}"].add(f"not {word} but {RETIRED[word]}")
    assert not found, "\n".join(f"{place}: {', '.join(say)}" for place, say in sorted(found.items()))


def test_no_text_that_people_read_has_a_retired_word() -> None:
    words = {
        word: re.compile(rf"(?<![\w-]){re.escape(word.replace('_', ' '))}(?![\w-])", re.IGNORECASE) for word in RETIRED
    }
    found = [
        f"{path}:{line}: {text[:120]!r}: not {word} but {RETIRED[word]}"
        for path, line, text in list_all()
        for word, pattern in words.items()
        if pattern.search(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name
)
def test_no_document_has_a_retired_word(document: Path) -> None:
    text = document.read_text()
    found = [
        word
        for word in RETIRED
        if re.search(rf"(?<![\w-]){re.escape(word.replace('_', ' '))}(?![\w-])", text, re.IGNORECASE)
    ]
    assert not found


def test_no_two_public_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
