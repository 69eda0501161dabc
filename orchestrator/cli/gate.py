"""Pipeline gate: an exit code that depends on the answer of a run, and the answers as JUnit XML."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from orchestrator.cli.options import GateOptions
from orchestrator.cli.store import output_file
from orchestrator.errors import SpecError, Unwritable
from orchestrator.quantities import printable

if TYPE_CHECKING:
    from orchestrator.inspection.answers import CellAnswer
    from orchestrator.run_folder.journal import Journal
    from orchestrator.store import Store

EXIT_CODE = 4


@dataclass(frozen=True)
class Gate:
    """The answers that fail a pipeline, and the path of its JUnit XML file."""

    answers: tuple[str, ...] = ()
    junit: Path | None = None

    @property
    def is_open(self) -> bool:
        """Whether every answer passes and no file is written."""
        return not self.answers and self.junit is None


def open_gate(options: GateOptions, audit: str) -> Gate:
    """Return the gate for a run of this audit. Raises SpecError for an answer that the audit cannot give."""
    from orchestrator.spec import audits

    if options.junit is None:
        junit = None
    else:
        junit = output_file("--junit", options.junit)
    if options.fail_on is None:
        return Gate((), junit)
    answers = audits.find(audit).audit.wording.answers
    failing_answers = tuple(dict.fromkeys(answer.strip() for answer in options.fail_on.split(",")))
    for answer in failing_answers:
        if answer not in answers:
            raise SpecError(
                f"--fail-on is {options.fail_on!r}; it must list answers of {audit} with commas: {', '.join(answers)}"
            )
    return Gate(failing_answers, junit)


def pass_gate(gate: Gate, journal: Journal, store: Store, code: int = 0) -> int:
    """Return the exit code of a command that would end with `code`, or EXIT_CODE if an answer does not pass.

    Runs and sweep cells without an answer are recorded as errors in the JUnit file. Raises Unwritable.
    """
    if gate.is_open:
        return code
    from orchestrator.inspection.answers import CellAnswer, cell_answers
    from orchestrator.inspection.results import answer, headline
    from orchestrator.inspection.search_results import is_search

    about = journal.about()
    if is_search(about):
        raise SpecError(
            f"{journal.run} is a search, but --fail-on and --junit require a single run; pass one of its trials"
        )
    cells = cell_answers(journal, store)
    if not cells:
        cells = [CellAnswer(journal.run, {}, answer(journal, store), headline(journal, store))]
    if gate.junit is not None:
        finished = {cell.run for cell in cells if journal.sibling(cell.run).has_finished()}
        suite = junit_xml(journal.run, about["audit"], cells, gate.answers, finished)
        try:
            gate.junit.write_bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
        except OSError as error:
            raise Unwritable(f"cannot write {gate.junit}: {error.strerror}") from None
    stopped = any(cell.verdict is not None and cell.verdict.answer in gate.answers for cell in cells)
    return code or (EXIT_CODE if stopped else 0)


def junit_xml(
    run: str, audit: str, cells: Sequence[CellAnswer], fails: Sequence[str], finished: Container[str] = ()
) -> ElementTree.Element:
    """Convert the answers of a run, or of the cells of a sweep, to test cases. Answers listed in `fails` are failures.

    A cell without an answer is an error. Its message depends on whether its run is among the `finished` ones. The
    message and the output of an answer begin with the number that compares runs, which is also the property `effect`.
    """
    counts = {
        "tests": len(cells),
        "failures": sum(cell.verdict is not None and cell.verdict.answer in fails for cell in cells),
        "errors": sum(cell.verdict is None for cell in cells),
    }
    suites = ElementTree.Element("testsuites", _attributes({"name": "engram", **counts}))
    suite = ElementTree.SubElement(suites, "testsuite", _attributes({"name": run, **counts}))
    for cell in cells:
        case = ElementTree.SubElement(
            suite, "testcase", _attributes({"classname": f"engram.{audit}", "name": cell.label})
        )
        if cell.verdict is None:
            reason = "some of its results are missing"
            if cell.run in finished:
                reason = "the audit gives none"
            ElementTree.SubElement(case, "error", {"message": f"no answer: {reason}"})
            continue
        verdict = cell.verdict
        effect = []
        if cell.effect:
            effect = [cell.effect]
            properties = ElementTree.SubElement(case, "properties")
            ElementTree.SubElement(properties, "property", _attributes({"name": "effect", "value": cell.effect}))
        if verdict.answer in fails:
            message = ", ".join([*effect, verdict.answer])
            failure = ElementTree.SubElement(case, "failure", _attributes({"type": verdict.answer, "message": message}))
            failure.text = printable(verdict.sentence)
        begin = "".join(f"{text}. " for text in effect)
        text = f"{begin}{verdict.sentence} {verdict.limits_in_full}"
        ElementTree.SubElement(case, "system-out").text = printable(text)
    return suites


def _attributes(values: Mapping[str, object]) -> dict[str, str]:
    return {name: printable(str(value)) for name, value in values.items()}
