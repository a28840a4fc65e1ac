"""Lists every text a person may read: `./dev strings` prints `path:line: text`, one a line.

Python: all string constants with at least two words, f-strings with `{}` for their values. Not SQL, and not docstrings
of code that only contributors read; docstrings of settings and commands are help texts and are listed. TypeScript: the
text of JSX elements and string literals with at least two words."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE TABLE|WHERE|ORDER BY|LEFT JOIN|VALUES)\b")
HELP = ("cli/", "settings/")
"""Whose docstrings are shown to people."""
WORDS = re.compile(r"[A-Za-z]{2,}\S* \S*[A-Za-z]{2,}")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
ELEMENT_TEXT = re.compile(r">([^<>{}=;]*[A-Za-z][^<>{}=;]*)<")


def list_python(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    hidden = set() if path.relative_to(ROOT / "src" / "corral").as_posix().startswith(HELP) else _docstrings(tree)
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node) if part is not node}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden | inside:
            text = node.value
        else:
            continue
        if WORDS.search(text) and not SQL.search(text):
            yield node.lineno, " ".join(text.split())


def _docstrings(tree: ast.Module) -> set[int]:
    """Also those below attributes."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def list_typescript(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text()
    found = [(match.start(), match[1] or match[2] or "") for match in LITERAL.finditer(source)]
    found += [(match.start(1), match[1]) for match in ELEMENT_TEXT.finditer(source)]
    for start, text in sorted(found):
        if WORDS.search(text) and not text.startswith(("./", "@/", "M ", "0 0 ")):
            yield source.count("\n", 0, start) + 1, " ".join(text.split())


def list_all() -> Iterator[tuple[Path, int, str]]:
    for path in sorted((ROOT / "src" / "corral").rglob("*.py")):
        if "static" not in path.parts:
            yield from ((path.relative_to(ROOT), line, text) for line, text in list_python(path))
    for path in sorted((ROOT / "ui" / "src").rglob("*.ts*")):
        if path.name != "schema.ts" and ".test." not in path.name:
            yield from ((path.relative_to(ROOT), line, text) for line, text in list_typescript(path))


if __name__ == "__main__":
    for path, line, text in list_all():
        sys.stdout.write(f"{path}:{line}: {text}\n")
