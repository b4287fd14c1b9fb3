"""Texts of strangers, made harmless for the place where they are shown.

A runtime's name, a log line, a test's id or a model's answer may hold anything: what steers a
terminal, markup, or characters that a document may not contain.
"""

from __future__ import annotations

import re


def printable(text: str) -> str:
    """Return one line for a terminal: control, format and odd characters become escapes."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def visible(text: str) -> str:
    """Return a text of several lines in which only the line feeds are left as they are.

    What remains is legal in HTML and in XML 1.0, and shows no other order than it has.
    """
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


_PLAIN = re.compile(r"[^`|]+")
_KEPT = re.compile(r"[^0-9A-Za-z ]")


def md_code(text: str) -> str:
    """Return a text as Markdown code within a line, also within the cell of a table.

    A pipe or a backtick could end a cell or the code; such a text is written with numeric
    references, which Markdown never reads as structure.
    """
    line = printable(text).strip(" ")
    if not line:
        return "(empty)"
    if _PLAIN.fullmatch(line):
        return f"`{line}`"
    return f"<code>{_KEPT.sub(lambda one: f'&#{ord(one[0])};', line)}</code>"


_MARKUP = re.compile(r"[\\`*_{}\[\]<>#+!|~&@$^]|:(?=\S)|(?<=www)\.", re.IGNORECASE)


def md_prose(text: str) -> str:
    """Return a sentence for Markdown in which nothing is markup, a link or a mention."""
    return _MARKUP.sub(lambda one: f"&#{ord(one[0])};", printable(text.replace("\n", " ")))


def md_block(text: str) -> str:
    """Return a text as a fenced block, with a fence that no line of the text can close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}"
