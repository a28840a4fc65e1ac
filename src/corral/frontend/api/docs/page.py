"""Renders an OpenAPI document as one page of HTML, without scripts and without anything from elsewhere."""

from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import Any

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
details { border: 1px solid #8886; border-radius: .4rem; margin: .4rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
code, b.method { font-family: ui-monospace, monospace; }
b.method { display: inline-block; min-width: 4.5rem; text-transform: uppercase; }
table { border-collapse: collapse; } th, td { border: 1px solid #8886; padding: .2rem .6rem; text-align: left; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_METHODS = ("get", "post", "put", "patch", "delete")
Document = Mapping[str, Any]


def render_page(title: str, intro: str, *documents: Document) -> str:
    """`intro`: HTML."""
    body = "".join(part for document in documents for part in _sections(document))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1>{intro}{body}</html>"
    )


def _sections(document: Document) -> Iterator[str]:
    yield f"<h2>{escape(document['info']['title'])}</h2>"
    operations = [
        (_tag(methods[method]), path, method, methods[method])
        for path, methods in document["paths"].items()
        for method in _METHODS
        if method in methods
    ]
    operations.sort(key=lambda operation: operation[0])
    for tag, group in groupby(operations, key=lambda operation: operation[0]):
        yield f"<h3>{escape(tag)}</h3>"
        for _, path, method, operation in group:
            yield _operation(path, method, operation, document)


def _tag(operation: Document) -> str:
    return next(iter(operation.get("tags", ())), "other")


def _operation(path: str, method: str, operation: Document, document: Document) -> str:
    # FastAPI's summary repeats the function's name; the description is its docstring.
    text = operation.get("description") or operation.get("summary", "")
    title = f'<b class="method">{method}</b><code>{escape(path)}</code>'
    rows = [
        _row(f"{one['name']} ({one['in']})", one.get("schema", {}), document, required=one.get("required", False))
        for one in operation.get("parameters", ())
    ]
    kinds: list[str] = []
    for kind, media in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolve(media.get("schema", {}), document)
        kinds.append(kind)
        required = schema.get("required", ())
        rows += [
            _row(name, one, document, required=name in required) for name, one in schema.get("properties", {}).items()
        ]
    table = f"<table><tr><th>field<th>type<th>required</tr>{''.join(rows)}</table>" if rows else ""
    body = f"<p>Body: {escape(', '.join(kinds))}</p>" if kinds else ""
    summary = f"<summary>{title} {escape(_first_sentence(text))}</summary>"
    return f"<details>{summary}<p>{escape(text)}</p>{body}{table}</details>"


def _row(name: str, schema: Document, document: Document, *, required: bool) -> str:
    kind = escape(_describe(schema, document))
    return f"<tr><td><code>{escape(name)}</code><td>{kind}<td>{'yes' if required else ''}</tr>"


def _describe(schema: Document, document: Document) -> str:
    found = _resolve(schema, document)
    if "anyOf" in found:
        return " or ".join(dict.fromkeys(_describe(one, document) for one in found["anyOf"]))
    if "enum" in found:
        return ", ".join(map(str, found["enum"]))
    if found.get("type") == "array":
        return f"list of {_describe(found.get('items', {}), document)}"
    return str(found.get("type", "any"))


def _resolve(schema: Document, document: Document) -> Document:
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    found: Document = document["components"]["schemas"][name] if name else schema
    return found


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].partition("\n")[0]
