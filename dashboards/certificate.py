"""The certificate: the first page of a report, for readers without a machine-learning background.

The first page states the question, the answer, its meaning, its reliability, conditions and limits, next steps, the
examined models and digests. If there is space, it shows a few images. The second page gives the rule, other error rates
and the controls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from dashboards import configuration, sheet
from dashboards.number_line import Entry, legend_entries, number_line
from dashboards.run import Run
from dashboards.signs import badge
from dashboards.symbols import INTERVAL_MEANING
from orchestrator.inspection import page_seal
from orchestrator.inspection.page_seal import AuditedItem, ResultTable
from orchestrator.quantities import format_count, format_size
from orchestrator.run_folder.notes import Details
from tasks.contract.certificate import RARITY, RUN_NAME, Certificate, Finding
from tasks.contract.looks import INTERVAL
from tasks.contract.verdict import Meaning

MOST_SEPARATE = 3  # findings that get their own paragraph; more than this are shown as a table
TONES = ("accused", "open", "cleared")  # priority when a sheet cannot show all findings
# texts on the first sheet
FIRST_PAGE = ("examined", "question", "meaning", "reliability", "conditions", "limits", "steps")
INTERVAL_NOTE = f"A {INTERVAL} {INTERVAL_MEANING}."
RARITY_NOTE = (
    "To say how reliable the answer is, quote the error rate in this section: it holds for every audit with this rule. "
    f"A number “{RARITY[0].lower()}{RARITY[1:]}” in the answer only says how unusual this single result is."
)
RULE_NOTE = "The rule was fixed before the run. See “Rule and statistics” (page 2 in print)."
CASE_BREAK = re.compile(r"(?<=\.) (?=Otherwise |The answer is )")  # boundary between two cases of a rule
PARTIES = ("auditor", "client", "purpose")
MASKED = (
    "Text in angle brackets is masked on this page. The auditor has the original text in the folder of the run and can "
    "write a page that shows it."
)


@dataclass(frozen=True)
class ShownFinding:
    """A finding, a badge for its answer, a rendered number line and the legend entries of that line."""

    finding: Finding
    badge: Markup
    line: Markup
    legend: tuple[Entry, ...]


@dataclass(frozen=True)
class AuditedRow:
    """One row in the table of audited items, with all values as text."""

    kind: str
    name: str
    digest: str
    size: str
    date: str


def findings(run: Run) -> list[ShownFinding]:
    """Return the findings on the certificate. Returns an empty list if the run has no answer."""
    if run.certificate is None:
        return []
    result = []
    for finding in run.certificate.findings:
        result.append(present_finding(finding, badge(finding.answer, run.meaning_of(finding.answer))))
    return result


def audited_rows(run: Run) -> tuple[list[AuditedRow], dict[str, AuditedRow]]:
    """Return the audited items, and each run's summary table keyed by run name."""
    items = []
    for item in page_seal.audited_items(run.journal, run.store):
        items.append(_item_row(item))
    summaries = {}
    for table in page_seal.tables(run.journal, run.store):
        if table.stored and table.name == "summary":
            summaries[table.run] = _table_row(table, bool(run.cells))
    return items, summaries


def select_audited_rows(run: Run, is_selected: Callable[[ResultTable], bool]) -> list[AuditedRow]:
    """Return the audited items followed by the result tables for which `is_selected` returns true."""
    rows = []
    for item in page_seal.audited_items(run.journal, run.store):
        rows.append(_item_row(item))
    for table in page_seal.tables(run.journal, run.store):
        if is_selected(table):
            rows.append(_table_row(table, bool(run.cells)))
    return rows


def present_finding(finding: Finding, sign: Markup) -> ShownFinding:
    """Draw a finding's number line and add the badge for its answer."""
    if finding.line is None:
        return ShownFinding(finding, sign, Markup(""), ())
    return ShownFinding(finding, sign, number_line(finding.line), tuple(legend_entries(finding.line)))


def _item_row(item: AuditedItem) -> AuditedRow:
    if item.embedded:  # the file's date is only the installation date
        return AuditedRow(item.what, item.name, item.digest, "embedded in the program", "")
    if item.size is None:
        size = ""
    else:
        size = format_size(item.size)
    return AuditedRow(item.what, item.name, item.digest, size, _day(item.modified))


def _table_row(table: ResultTable, of_sweep: bool) -> AuditedRow:
    if of_sweep:
        name = f"{table.name} of {table.run}"
    else:
        name = table.name
    parts = format_count(table.stored, "result")
    if table.stored == table.planned:
        size = parts
    else:
        size = f"{table.stored} of {format_count(table.planned, 'result')}"
    return AuditedRow("result", name, table.digest, size, _day(table.finished))


def _day(stamp: str | None) -> str:
    """Return the date part of a timestamp. Returns an empty string if the timestamp is missing or invalid."""
    try:
        if not stamp:
            return ""
        return datetime.fromisoformat(stamp).date().isoformat()
    except ValueError:
        return ""


def context(run: Run, notice_count: int = 0, has_strip: bool = False) -> dict[str, Any]:
    """Return the template variables, limited to the findings and items that fit on one sheet.

    The remaining ones are counted instead. `notice_count` is the number of notices above the certificate. Images next
    to the answer are printed only if they leave space for everything else.
    """
    texts = _certificate_texts(run)
    every = []
    for cell in run.cells or (run,):
        for finding in findings(cell):
            every.append((cell, finding))
    items, summaries = audited_rows(run)
    as_table = bool(run.cells) or len(every) > MOST_SEPARATE
    remaining_height = sheet.remaining_height(notice_count, [texts[name] for name in FIRST_PAGE], run.details)
    if name_missing_details(run.details):
        remaining_height -= sheet.NOTE
    least_items = min(len(items), sheet.THINGS)
    fitting: Sequence[int] = range(len(every))
    if as_table:
        fitting = _fitting_findings(run, every, remaining_height - least_items * sheet.ROW)
    shown_findings = [every[index] for index in fitting]
    separate_height = sum(sheet.finding_height(finding.finding.sentence) for _, finding in shown_findings)
    item_count = least_items
    if not as_table:
        item_count = min(len(items), sheet.row_count(remaining_height - separate_height, least_items))
    summarised_runs = {cell.name for cell, _ in shown_findings}
    if not shown_findings:
        summarised_runs = {*list(summaries)[: sheet.row_count(remaining_height, 1)]}
    shown_summaries = []
    for name, row in summaries.items():
        if not run.cells or name in summarised_runs:
            shown_summaries.append(row)
    filled: float = (item_count + len(shown_summaries)) * sheet.ROW
    if as_table:
        filled += sum(_heights(run, shown_findings))
    else:
        filled += separate_height - sheet.TABLE
    prints_strip = has_strip and remaining_height - filled > sheet.STRIP
    if prints_strip:
        filled += sheet.STRIP
    left_out = []
    for index, (_, finding) in enumerate(every):
        if index not in fitting:
            left_out.append(finding)
    return {
        "rules": [split_rule(rule) for rule in texts["rule"]],
        "certificate": texts if any(cell.certificate for cell in run.cells or (run,)) else None,
        "findings": shown_findings,
        "as_table": as_table,
        "unlisted": _describe_left_out(left_out, bool(run.cells)),
        "audited": [*items[:item_count], *shown_summaries],
        "zoom": sheet.zoom_factor(remaining_height - filled),
        "prints_strip": prints_strip,
        "missing_details": name_missing_details(run.details),
        "unnamed": max(0, len(items) - item_count) + len(summaries) - len(shown_summaries),
    }


def name_missing_details(details: Details) -> str:
    """Return a sentence that names the parties and other details that the certificate lacks, if any."""
    missing = [name for name in PARTIES if not getattr(details, name)]
    if not details:
        missing.append("date of signature")
    if not missing:
        return ""
    return f"Not stated on this certificate: {', '.join(missing)}."


def _certificate_texts(run: Run) -> dict[str, list[str]]:
    """Return the certificate texts by name. In a sweep, texts shared by several cells appear once."""
    answered = [(cell, cell.certificate) for cell in run.cells or (run,) if cell.certificate is not None]
    certificates = [certificate for _, certificate in answered]
    questions = _distinct_texts(certificate.asked for certificate in certificates)
    if len(questions) > 1:
        questions = _distinct_texts([run.question, "Each cell of the sweep answers it for one setting."])
    examined = _distinct_texts(certificate.examined for certificate in certificates)
    if len(examined) > 1:
        examined = _distinct_texts([_common_sentences(examined), "The page of each cell names its own models."])
    limits = _distinct_texts(certificate.beyond for certificate in certificates)
    if len(limits) > 1:
        limits = _distinct_texts([_common_sentences(limits), "The page of each cell states its further limits."])
    if run.withholds and any("<" in text for text in _texts(certificates)):
        questions.append(MASKED)
    meanings = []
    for cell, certificate in answered:
        for finding in certificate.findings:
            meanings.append(define_answer(finding.answer, cell.meaning_of(finding.answer)))
    return {
        "examined": examined,
        "question": split_question(questions),
        "meaning": _distinct_texts(meanings),
        "reliability": state_reliability(certificates),
        "conditions": list_conditions(certificates),
        "limits": limits,
        "steps": list_steps(run, certificates),
        "rule": _distinct_texts(certificate.rule for certificate in certificates),
        "other_errors": _distinct_texts(certificate.other_errors for certificate in certificates),
        "controls": _distinct_texts([run.controls] if certificates else []),
    }


def define_answer(answer: str, meaning: Meaning) -> str:
    """Return the definition of an answer and its implication, such as `Memorised: the audit found that ...`.

    Returns an empty string if the audit does not define the answer.
    """
    if not meaning.words:
        return ""
    return f"{answer[0].upper()}{answer[1:]}: {meaning.words}. {meaning.implication}".strip()


def split_question(texts: Sequence[str]) -> list[str]:
    """Return the question, which is the heading of the page, and its explanations."""
    if not texts:
        return []
    question, mark, explanation = texts[0].partition("? ")
    if not mark:
        return list(texts)
    return [f"{question}?", explanation, *texts[1:]]


def split_rule(rule: str) -> list[str]:
    """Split a rule into its cases. Each case starts with a sentence that names an answer."""
    return CASE_BREAK.split(rule)


def list_conditions(certificates: Sequence[Certificate]) -> list[str]:
    """Return the conditions that all certificates share, and a note if some have further ones."""
    texts = [[condition.text for condition in certificate.conditions] for certificate in certificates]
    shared = []
    if texts:
        for text in texts[0]:
            if all(text in other_texts for other_texts in texts):
                shared.append(f"{text[0].upper()}{text[1:]}")
    if any(len(cell_texts) > len(shared) for cell_texts in texts):
        shared.append("The page of each cell states its further conditions.")
    return _distinct_texts(shared)


def list_steps(run: Run, certificates: Sequence[Certificate]) -> list[str]:
    """Return the next steps. Commands name the run, except in a sweep, whose cells are runs."""
    steps = _distinct_texts(step for certificate in certificates for step in certificate.steps)
    if run.cells:
        return steps
    return [step.replace(f" {RUN_NAME} ", f" {run.name} ") for step in steps]


def state_reliability(certificates: Sequence[Certificate]) -> list[str]:
    """Return the error rates stated by the certificates, with a pointer to the rule if they state one."""
    rates = _distinct_texts(rate for certificate in certificates for rate in certificate.error.split("\n"))
    if any(INTERVAL in text for text in _texts(certificates)):
        rates.append(INTERVAL_NOTE)
    if rates and any(RARITY in text for text in _texts(certificates)):
        rates.append(RARITY_NOTE)
    if any(certificate.rule for certificate in certificates):
        rates.append(RULE_NOTE)
    return rates


def _texts(certificates: Iterable[Certificate]) -> Iterator[str]:
    """Yield every question, sentence and target in these certificates."""
    for certificate in certificates:
        yield certificate.asked
        for finding in certificate.findings:
            yield from (finding.sentence, finding.target)


def _fitting_findings(run: Run, every: Sequence[tuple[Run, ShownFinding]], remaining_height: float) -> Sequence[int]:
    """Return the indices of the findings that fit into a table of this height.

    Findings that accuse the model take priority, followed by open ones. Among these, larger effects take priority.
    """
    summary_height = 0
    if run.cells:
        summary_height = sheet.ROW
    heights = [height + summary_height for height in _heights(run, every)]
    if sum(heights) <= remaining_height - (0 if run.cells else sheet.ROW):
        return range(len(every))
    order = sorted(
        range(len(every)), key=lambda index: (TONES.index(_tone(*every[index])), -_strength(every[index][0]))
    )
    return sorted(sheet.fitting_items(order, [heights[index] for index in order], remaining_height - sheet.ROW))


def _heights(run: Run, every: Sequence[tuple[Run, ShownFinding]]) -> list[float]:
    """Return the height that each finding takes as a table row."""
    columns = 0
    if run.cells:
        columns = len(configuration.distinguishing_fields(run))
        columns += any(cell.effect for cell, _ in every)
    columns += 1 + any(finding.finding.target for _, finding in every)
    heights = []
    for _, finding in every:
        heights.append(sheet.row_height(finding.finding.sentence, columns))
    return heights


def _strength(cell: Run) -> float:
    """Return the size of the effect. 0 if there is none."""
    return 0.0 if cell.headline is None else cell.headline.strength


def _tone(run: Run, finding: ShownFinding) -> str:
    return run.meaning_of(finding.finding.answer).tone


def _describe_left_out(left_out: Sequence[ShownFinding], is_sweep: bool) -> str:
    """Summarise the omitted findings, such as `18 more cells: 15 not detected, 3 undecided`.

    Returns an empty string if all findings are shown.
    """
    if not left_out:
        return ""
    counts = Counter(finding.finding.answer for finding in left_out)
    by_answer = ", ".join(f"{count} {answer}" for answer, count in counts.items())
    return f"{format_count(len(left_out), 'more cell' if is_sweep else 'more target')}: {by_answer}"


def _common_sentences(texts: Sequence[str]) -> str:
    """Return the sentences that occur in every text, in the order of the first text."""
    sentences = [text.removesuffix(".").split(". ") for text in texts]
    common = []
    for sentence in sentences[0]:
        if all(sentence in other_sentences for other_sentences in sentences):
            common.append(f"{sentence}.")
    return " ".join(common)


def _distinct_texts(texts: Iterable[str]) -> list[str]:
    """Return the distinct non-empty texts in their original order.

    Settings and commands in parentheses are marked; backticks are removed.
    """
    distinct = dict.fromkeys(text.replace("(`", "(for the technical team: ").replace("`", "") for text in texts)
    return [text for text in distinct if text]
