"""Rendering to HTML: one file that needs no network and no script to be read.

Every text is escaped twice over: characters that steer become visible, then Jinja escapes markup.
The page's own policy allows the one style and the one script in it, by their digests, and nothing
else, so that even markup that got through would find nothing to load or run.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_meshnet import __version__
from pytest_meshnet.evidence.report.matrix import Matrix
from pytest_meshnet.evidence.report.page import Page, duration
from pytest_meshnet.evidence.report.sections import Bars, Table
from pytest_meshnet.evidence.shown import visible

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"


def page_html(page: Page) -> bytes:
    """Return the page of one run as UTF-8."""
    return _render("page.html.j2", page=page)


def matrix_html(matrix: Matrix) -> bytes:
    """Return the compatibility matrix of several runs as UTF-8."""
    return _render("matrix.html.j2", matrix=matrix)


def page_of(folder: Path, template: str, **values: Any) -> bytes:
    """Return a page of another room as UTF-8: its template in `folder` extends frame.html.j2."""
    text: str = _environment(folder).get_template(template).render(**values)
    return text.encode("utf-8")


def _render(template: str, **values: Any) -> bytes:
    return page_of(_TEMPLATES, template, **values)


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FileSystemLoader([folder, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    made.filters["duration"] = duration
    made.filters["breakable"] = _breakable
    made.tests["table"] = lambda block: isinstance(block, Table)
    made.tests["bars"] = lambda block: isinstance(block, Bars)
    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
    script = (_TEMPLATES / "filter.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src {_allowed(style)}; script-src {_allowed(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    made.globals.update(
        style=Markup(style), script=Markup(script), policy=policy, version=__version__
    )
    made.globals["parts"] = made.get_template("parts.html.j2").module
    return made


def _harmless(value: Any) -> Any:
    # Only plain texts come from a run; markup is what the templates themselves made.
    return visible(value) if type(value) is str else value


def _breakable(name: str) -> str:
    """Let the long name of a test break where its words do."""
    from markupsafe import Markup, escape

    return Markup("_<wbr>").join(escape(visible(part)) for part in name.split("_"))


def _allowed(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{b64encode(digest).decode('ascii')}'"
