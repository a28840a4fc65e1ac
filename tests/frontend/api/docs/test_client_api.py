"""The description of the client APIs says what the gateway has, and the page shows all of it."""

from html.parser import HTMLParser
from typing import Any

from corral.frontend.api.docs.client_api import client_openapi
from corral.frontend.api.docs.page import render_page
from corral.frontend.http.client_paths import CLIENT_PATHS, OLLAMA_ADMIN


class Page(HTMLParser):
    """What a page would load, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.loaded: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "iframe"), tag
        loads = "href" if tag == "link" else "src"
        self.loaded += [value or "" for name, value in attributes if name == loads]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_path_of_the_gateway_is_described() -> None:
    described = {path for path in client_openapi()["paths"] if "{" not in path}
    assert described == {*CLIENT_PATHS, *OLLAMA_ADMIN}


def test_operations_are_complete() -> None:
    document = client_openapi()
    operations: list[tuple[str, dict[str, Any]]] = [
        (path, operation) for path, methods in document["paths"].items() for operation in methods.values()
    ]
    ids = [operation["operationId"] for _, operation in operations]
    assert len({*ids}) == len(ids)
    for path, operation in operations:
        assert operation["responses"]["200"]["content"]
        assert {one["name"] for one in operation.get("parameters", ())} == {
            part.strip("{}") for part in path.split("/") if part.startswith("{")
        }


def test_the_page_shows_all_and_loads_nothing_from_elsewhere() -> None:
    document = client_openapi()
    page = Page(render_page("APIs", "", document))
    assert page.loaded == ["data:,"]
    for path in document["paths"]:
        assert path in page.text


def test_text_of_a_document_is_not_html() -> None:
    operation = {"tags": ["<b>"], "description": "<script>alert(1)</script>", "responses": {}}
    page = Page(render_page("x", "", {"info": {"title": "<i>"}, "paths": {"/<u>": {"get": operation}}}))
    assert "<script>alert(1)</script>" in page.text
