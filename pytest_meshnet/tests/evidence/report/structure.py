"""The elements of a page without its texts, so that two pages can be held against each other."""

from __future__ import annotations

from html.parser import HTMLParser

from markdown_it import MarkdownIt

LAID_OUT = ("class", "id", "href", "role", "type", "open", "hidden", "http-equiv", "data-status")
"""Attributes whose values no run may choose."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[object, ...]] = []
        self.texts: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = [(name, value if name in LAID_OUT else "") for name, value in attrs]
        self.elements.append((tag, *sorted(told)))
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.elements.append(("/", tag))
        self._inside.append("")

    def handle_data(self, data: str) -> None:
        if not self._inside or self._inside[-1] not in ("script", "style"):
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.elements.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.elements.append(("declaration", decl))

    def unknown_decl(self, data: str) -> None:
        self.elements.append(("unknown declaration", data))

    def handle_pi(self, data: str) -> None:
        self.elements.append(("instruction", data))


def of_html(page: str) -> tuple[list[tuple[object, ...]], str]:
    """Return (elements with the attributes that are laid out, all texts) of an HTML page."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.elements, "".join(reader.texts)


def words(page: str) -> str:
    """Return the texts of an HTML page, one space between any two words."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return " ".join(" ".join(reader.texts).split())


def of_markdown(page: str) -> tuple[list[tuple[object, ...]], str]:
    """Return the same of a Markdown page, as GitHub's dialect reads it."""
    dialect = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    return of_html(dialect.render(page))
