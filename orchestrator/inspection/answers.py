"""Answers and their supporting numbers, for a run and for the cells of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator import rounding
from orchestrator.errors import EngramError
from orchestrator.inspection import results, search_results
from orchestrator.inspection.search_results import SearchResults
from orchestrator.quantities import format_count
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits, resolve
from orchestrator.spec.fields import text
from orchestrator.store import Store
from tasks.contract.verdict import Tone, Verdict

Row = Mapping[str, Any]  # a summary row
HEAD = ("metric", "setting", "estimate", "95 % interval", "n", "null", "p")  # columns of a table of summary rows
REDUCTION_METRIC = "memorization, less than the start"  # the metric reported for a search
BEYOND = (
    "This result covers only the settings that were tried, these data, and the kind of memory that the audit tests. "
    "Less memorisation is not zero memorisation: the audit of the winner shows how much remains."
)


@dataclass(frozen=True)
class CellAnswer:
    """A sweep cell: its run, the fields that distinguish it, its answer, and the row that supports the answer.

    Without an answer, `row` is the first row of the summary, or None if nothing is stored.
    """

    run: str
    varied: Mapping[str, str]
    verdict: Verdict | None
    row: Row | None

    @property
    def label(self) -> str:
        """The distinguishing fields in one line, such as `data=mnist, network=mlp1`.

        If there are none, the name of the run.
        """
        return ", ".join(f"{name}={value}" for name, value in self.varied.items()) or self.run


@dataclass(frozen=True)
class Answer:
    """An audit's answer and the first summary row that supports it.

    answer, tone: the answer, such as `memorised`, and its tone: `accused`, `cleared` or `open`.
    sentence, limits: the answer with its evidence, and its limits, after the result of the paper's own test.
    metric, setting: the row of the summary; estimate, low, high: its number with the 95 % interval; null: the estimate
    expected without memorisation; p: its p-value; n, unit: the sample size and its unit. Each is None if the row has no
    such value, or if no row supports the answer.
    look: the number of times that this question was examined; cells: the number of cells judged together;
    summed_error: the maximum number of false findings in 100 such audits of models without memorisation, summed over
    looks and cells. None if the audit states no error.
    """

    answer: str
    tone: Tone
    sentence: str
    limits: str
    metric: str | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    null: float | None = None
    p: float | None = None
    n: int | None = None
    unit: str | None = None
    look: int = 1
    cells: int = 1
    summed_error: float | None = None


def run_answer(journal: Journal, store: Store) -> Answer | None:
    """Return the answer of a run.

    Returns None if there is no answer yet, if the audit has no verdicts, and for a sweep. For a search, returns the
    recommendation: `setting` contains the winner's choices, and the number is its reduction in memorisation compared
    with the start. Raises EngramError if the audit gives an answer that it does not declare.
    """
    if search_results.is_search(journal.about()):
        return search_answer(search_results.read_search(journal))
    verdict = results.answer(journal, store)
    if verdict is None:
        return None
    recorded = journal.about().get("look", {})
    answer = Answer(
        verdict.answer,
        tone(journal.about()["audit"], verdict),
        verdict.sentence,
        verdict.limits_in_full,
        look=recorded.get("number", 1),
        cells=recorded.get("cells", 1),
        summed_error=recorded.get("summed_error"),
    )
    rows = supporting_rows(verdict, results.summary(journal, store).table.to_pylist())
    if not rows:
        return answer
    names = ("metric", "estimate", "low", "high", "null", "n", "unit")
    numbers = {name: rows[0][name] for name in names}
    return replace(answer, setting=rounding.parse_setting(rows[0]["setting"]) or {}, p=rows[0]["p_value"], **numbers)


def search_answer(search: SearchResults) -> Answer | None:
    """Return the recommendation of a search, or None if there is none yet."""
    recommendation = search.answer
    if recommendation is None:
        return None
    if recommendation.winner is None:
        best = None
    else:
        best = search.trial(recommendation.winner)
    if best is None:
        choices = {}
    else:
        choices = search_results.setting(best)
    answer = Answer(recommendation.answer, recommendation.tone, recommendation.sentence, BEYOND, setting=choices)
    if recommendation.winner is None:
        fresh = None
    else:
        fresh = search.trial(recommendation.winner, search_results.FRESH)
    if recommendation.estimate is None or fresh is None:
        return answer
    numbers = {}
    for name in ("estimate", "low", "high"):
        numbers[name] = getattr(recommendation, name)
    n = fresh["memorization_n"]
    unit = fresh["memorization_unit"]
    return replace(answer, metric=REDUCTION_METRIC, null=0.0, n=n, unit=unit, **numbers)


def supporting_rows(verdict: Verdict, rows: Sequence[Row]) -> list[Row]:
    """Return the summary rows that support the answer, the most important one first."""
    result = []
    for name in verdict.rows:
        for row in rows:
            if (row["metric"], row["setting"]) == name:
                result.append(row)
    return result


def leading_rows(verdict: Verdict | None, rows: Sequence[Row], count: int) -> list[Row]:
    """Return the `count` summary rows to read first: the supporting rows, followed by the first remaining rows."""
    if verdict is None:
        first = []
    else:
        first = supporting_rows(verdict, rows)
    return [*first, *(row for row in rows if row not in first)][:count]


def cell_answers(journal: Journal, store: Store) -> list[CellAnswer]:
    """Return the answers of a sweep's cells, in order."""
    settings = results.cells(journal)
    fields = resolve.distinguishing_fields(list(settings.values()))
    answers = []
    for name, setting in settings.items():
        cell = journal.sibling(name)
        verdict = results.answer(cell, store)
        rows = results.summary(cell, store).table.to_pylist()
        row = next(iter((verdict and supporting_rows(verdict, rows)) or rows), None)
        varied = {field: text(setting[field]) for field in fields if field in setting}
        answers.append(CellAnswer(name, varied, verdict, row))
    return answers


def row_cells(row: Row, equals: str = "=") -> tuple[str, ...]:
    """Return the cells of a row under HEAD, with `equals` between a varied field and its value."""
    return (
        row["metric"],
        rounding.format_setting(row["setting"], equals=equals),
        rounding.format_row_value(row, "estimate"),
        rounding.format_row_interval(row),
        "" if row["n"] is None else format_count(row["n"], row["unit"] or ""),
        rounding.format_row_value(row, "null"),
        rounding.format_p_value(row["p_value"]),
    )


def row_name(row: Row) -> str:
    """Return the name of a summary row, such as `M_w effect (images=probe)`."""
    setting_text = rounding.format_setting(row["setting"], text)
    if setting_text:
        return f"{row['metric']} ({setting_text})"
    return str(row["metric"])


def tone(audit: str, verdict: Verdict) -> Tone:
    """Return the tone of an answer: accused, cleared or open."""
    try:
        return audits.find(audit).audit.wording.answers[verdict.answer].tone
    except (EngramError, KeyError):
        return "open"
