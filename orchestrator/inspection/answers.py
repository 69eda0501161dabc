"""Answers and their supporting numbers, for a run and for the cells of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator import headlines, rounding
from orchestrator.errors import EngramError
from orchestrator.inspection import results, search_results
from orchestrator.inspection.search_results import SearchResults
from orchestrator.quantities import format_count
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits, resolve
from orchestrator.spec.fields import text
from orchestrator.store import Store
from tasks.contract.objectives import SHARE, Headline
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
    """A sweep cell: its run, the fields that distinguish it, its answer, and the number that compares the cells.

    `headline` is None if nothing is stored, or if the summary lacks the number.
    """

    run: str
    varied: Mapping[str, str]
    verdict: Verdict | None
    headline: Headline | None = None

    @property
    def effect(self) -> str:
        """The number with its unit and interval. Empty if there is none."""
        return headlines.format_headline(self.headline)

    @property
    def label(self) -> str:
        """The distinguishing fields in one line, such as `data=mnist, network=mlp1`.

        If there are none, the name of the run.
        """
        return ", ".join(f"{name}={value}" for name, value in self.varied.items()) or self.run


@dataclass(frozen=True)
class Answer:
    """An audit's answer and the summary row that compares its runs.

    answer, tone: the answer, such as `memorised`, and its tone: `accused`, `cleared` or `open`.
    sentence, limits: the answer with its evidence, and its limits, after the result of the paper's own test.
    metric, setting: the row of the summary; estimate, low, high: its number with the 95 % interval; null: the estimate
    expected without memorisation; p: its p-value; n, unit: the sample size and its unit. Each is None if the row has no
    such value. If the summary lacks this row, it is the first row that supports the answer. If there is none either,
    each is None.
    effect: the number in words, with its unit and interval, as every list shows it; effect_unit: the unit of the
    estimate. Both are empty if the summary lacks the number.
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
    effect: str = ""
    effect_unit: str = ""


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
    headline = results.headline(journal, store)
    row: Row | None
    if headline is not None:
        row = headline.row
        answer = replace(answer, effect=headlines.format_headline(headline), effect_unit=headline.unit)
    else:
        row = next(iter(supporting_rows(verdict, results.summary(journal, store).table.to_pylist())), None)
    if row is None:
        return answer
    names = ("metric", "estimate", "low", "high", "null", "n", "unit")
    numbers = {name: row[name] for name in names}
    return replace(answer, setting=rounding.parse_setting(row["setting"]) or {}, p=row["p_value"], **numbers)


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
        varied = {field: text(setting[field]) for field in fields if field in setting}
        answers.append(CellAnswer(name, varied, verdict, results.headline(cell, store)))
    return answers


def strongest_cells(cells: Sequence[CellAnswer], audit: str, count: int) -> list[CellAnswer]:
    """Return at most `count` cells in their order: those that accuse first, then those with the largest effects."""

    def weakness(index: int) -> tuple[bool, float]:
        cell = cells[index]
        is_accused = cell.verdict is not None and tone(audit, cell.verdict) == "accused"
        return not is_accused, 0.0 if cell.headline is None else -cell.headline.strength

    chosen = sorted(range(len(cells)), key=weakness)[:count]
    return [cells[index] for index in sorted(chosen)]


def effect(journal: Journal, store: Store) -> str:
    """Return the number that compares runs, with its unit and interval, as every list shows it.

    For a sweep, returns the range over its cells, as in `0.013 to 0.37 nats`. For a search, returns the winner's
    reduction in memorisation. Returns an empty string if there is no number.
    """
    if search_results.is_search(journal.about()):
        return headlines.format_headline(run_headline(journal, store))
    numbers = []
    for cell in results.cells(journal) or (journal.run,):
        with suppress(EngramError):
            if (headline := results.headline(journal.sibling(cell), store)) is not None:
                numbers.append(headline)
    return headlines.format_range(numbers)


def run_headline(journal: Journal, store: Store) -> Headline | None:
    """Return the number that compares runs or searches. Returns None if there is none, and for a sweep."""
    if search_results.is_search(journal.about()):
        return search_headline(search_results.read_search(journal))
    return results.headline(journal, store)


def search_headline(search: SearchResults) -> Headline | None:
    """Return the winner's reduction in memorisation compared with the start. Returns None without a recommendation."""
    recommendation = search_answer(search)
    if recommendation is None or recommendation.estimate is None:
        return None
    registered = audits.find_installed(search.audit)
    objectives = None if registered is None else registered.audit.objectives
    unit = "" if objectives is None else objectives.memorization.unit
    if unit == SHARE:
        wording = "{} percentage points less"
    else:
        wording = " ".join(filter(None, ("{}", unit, "less")))
    numbers = {name: getattr(recommendation, name) for name in ("estimate", "low", "high", "null", "n")}
    return Headline(REDUCTION_METRIC, unit, wording, {"metric": REDUCTION_METRIC, "setting": "{}", **numbers})


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
