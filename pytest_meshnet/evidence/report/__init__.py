"""Reports of a run for people and for CI, derived from its signed records and never read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.report.sections import Provider


class ReportError(RuntimeError):
    """A report could not be made; the run and its evidence stand without it."""


def derive(run: Judged, providers: Iterable[Provider] = ()) -> Mapping[str, bytes]:
    """Return the derived files of a run that is about to be sealed, by name.

    Raises ReportError, whatever broke in a template or in the provider of a section: a mistake in
    a page must not cost a run its seal.
    """
    try:
        from jinja2 import TemplateError
    except ImportError as error:
        raise ReportError(f"no report: {error}; install pytest-meshnet again") from error
    try:
        return _derive(run, providers)
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as e:
        raise ReportError(f"no report: {type(e).__name__}: {e}") from e


def _derive(run: Judged, providers: Iterable[Provider]) -> Mapping[str, bytes]:
    from pytest_meshnet.evidence.report.html import page_html
    from pytest_meshnet.evidence.report.junit import junit_xml
    from pytest_meshnet.evidence.report.markdown import page_markdown
    from pytest_meshnet.evidence.report.page import page_of_run

    page = page_of_run(run, providers)
    return {
        "report.html": page_html(page),
        "report.md": page_markdown(page).encode("utf-8"),
        "junit.xml": junit_xml(page),
    }


def run_report(
    bundles: Sequence[Path],
    *,
    html: Path | None = None,
    md: Path | None = None,
    junit: Path | None = None,
    trust: Path | None = None,
    providers: Sequence[Provider] = (),
) -> tuple[str, int]:
    """Report finished bundles for the command line: return (text, exit code).

    One bundle gives its page, several the compatibility matrix. Without `html`, `md` and `junit`
    the text is the Markdown. Exit code 0: written; 2: a bundle or the trust file cannot be read, a
    file cannot be written, or JUnit was asked of several bundles. What a bundle is worth is no
    error here: the page says it first.
    """
    from pytest_meshnet.evidence.signing.trust import TrustError

    if junit is not None and len(bundles) > 1:
        return "JUnit is about one run: give one bundle, or leave --junit out\n", 2
    try:
        made = _make(bundles, trust, providers)
        asked = {"html": html, "md": md, "junit": junit}
        lines = []
        for kind, path in asked.items():
            if path is not None:
                path.write_bytes(made[kind])
                lines.append(f"wrote {path}\n")
    except (TrustError, OSError) as error:
        return f"no report: {error}\n", 2
    return "".join(lines) or made["md"].decode("utf-8"), 0


def _make(
    bundles: Sequence[Path], trust: Path | None, providers: Sequence[Provider]
) -> Mapping[str, bytes]:
    from pytest_meshnet.evidence.report import html, junit, markdown
    from pytest_meshnet.evidence.report.matrix import matrix
    from pytest_meshnet.evidence.report.page import page_of_bundle
    from pytest_meshnet.evidence.signing.trust import Trust
    from pytest_meshnet.evidence.verify import verify
    from pytest_meshnet.evidence.verify.question import Question

    asked = Question(trust=Trust.load(trust) if trust else Trust({}))
    reports = [verify(bundle, asked) for bundle in bundles]
    pages = [page_of_bundle(one, providers, trust_asked=trust is not None) for one in reports]
    if len(pages) == 1:
        (page,) = pages
        return {
            "html": html.page_html(page),
            "md": markdown.page_markdown(page).encode("utf-8"),
            "junit": junit.junit_xml(page),
        }
    side_by_side = matrix(pages)
    return {
        "html": html.matrix_html(side_by_side),
        "md": markdown.matrix_markdown(side_by_side).encode("utf-8"),
    }
