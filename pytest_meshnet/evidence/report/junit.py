"""Rendering to JUnit XML, for the test views of CI systems; requirement ids are properties.

The format has no word for most statuses. What stands against a certificate is an error or a
failure here, so that no CI shows a run green that did not examine what it had to; the rest that
did not pass is skipped, with its status in front of the reason.
"""

from __future__ import annotations

from xml.etree import ElementTree as xml

from pytest_meshnet.evidence.report.page import PASSING, Page
from pytest_meshnet.evidence.report.results import Case
from pytest_meshnet.evidence.shown import printable, visible
from pytest_meshnet.ledger.status import Status


def junit_xml(page: Page) -> bytes:
    """Return the tests of a run as one JUnit test suite in UTF-8.

    A run that could not be judged is one test case with an error. So is one that did not pass and
    has no test to show for it, as one that was cut short or was signed by a stranger.
    """
    suite = xml.Element("testsuite", name=printable(page.title))
    properties = xml.SubElement(suite, "properties")
    for name, value in _about(page):
        xml.SubElement(properties, "property", name=name, value=printable(value))
    cases = page.results.cases if page.results else ()
    words = [_add(suite, one, page) for one in cases]
    if page.headline.word not in PASSING and not {"failure", "error"} & set(words):
        case = xml.SubElement(suite, "testcase", classname="bundle", name=page.headline.word)
        xml.SubElement(case, "error", message=printable(page.headline.sentence))
        words.append("error")
    for attribute, word in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(words.count(word)))
    suite.set("tests", str(len(words)))
    suite.set("time", f"{sum(one.seconds for one in cases):.3f}")
    root = xml.Element("testsuites")
    root.append(suite)
    xml.indent(root)
    data: bytes = xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return data


def _about(page: Page) -> list[tuple[str, str]]:
    rows = [("run", page.run_id), ("verdict", page.headline.word)]
    if page.start is not None:
        rows += [("keyid", page.start.signer.keyid), ("ledger", page.start.ledger.version)]
        rows += [("profile", name) for name in page.start.profiles]
    return rows


def _add(suite: xml.Element, case: Case, page: Page) -> str:
    module, _, name = case.test.partition("::")
    classname = module.removesuffix(".py").replace("/", ".")
    element = xml.SubElement(
        suite,
        "testcase",
        classname=printable(classname),
        name=printable(name or module),
        time=f"{case.seconds:.3f}",
    )
    properties = xml.SubElement(element, "properties")
    for one in case.requirements:
        xml.SubElement(properties, "property", name="requirement", value=printable(one))
    xml.SubElement(properties, "property", name="status", value=str(case.status))
    word = _word(case, page)
    if word:
        message = printable(f"{case.status}: {case.reason}")
        result = xml.SubElement(element, word, message=message)
        if word != "skipped":
            result.set("type", str(case.status))
            texts = (f"expected: {t.expected}\nactual: {t.actual}" for t in case.failures)
            result.text = visible("\n".join(texts))
    return word


def _word(case: Case, page: Page) -> str:
    if case.status is Status.PASSED:
        return ""
    if case.status is Status.FAILED:
        return "failure"
    binding = case.status is Status.NOT_RUN and not page.must.isdisjoint(case.requirements)
    return "error" if binding or case.status is Status.ENGINE_ERROR else "skipped"
