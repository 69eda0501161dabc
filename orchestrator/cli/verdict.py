"""Output of the state or the final result of a run, as JSON and as text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orchestrator import rounding
from orchestrator.cli.store import store_option
from orchestrator.cli.terminal import (
    cell,
    emit,
    filled_columns,
    numbers,
    paragraph,
    say,
    setting_text,
    show,
    summary,
    table,
)
from orchestrator.errors import StoreError
from orchestrator.headlines import format_headline, headline_shape
from orchestrator.inspection.compare import Comparison, Difference, Row
from orchestrator.quantities import format_count

if TYPE_CHECKING:
    from orchestrator.inspection.answers import CellAnswer
    from orchestrator.inspection.search_results import Row, SearchAnswer, SearchResults
    from orchestrator.inspection.status import Status
    from orchestrator.run_folder.journal import Journal
    from orchestrator.runs.report import Report
    from orchestrator.store import Store
    from tasks.contract.objectives import Headline
    from tasks.contract.verdict import Tone

CHANGED = re.compile(r"(is|are) not (the one|those) that (was|were) pinned")  # in job errors
LISTED = 20  # maximum number of failures or sweep cells to show
MAX_ROWS = 5  # maximum number of summary rows shown at the end of a run
STYLES: Mapping[Tone, str] = {"accused": "bold red", "cleared": "bold green", "open": "bold yellow"}
OBJECTIVES = ("memorization", "utility")


def shape(run: Report | Status) -> dict[str, Any]:
    """Return the JSON representation of a run. `report` is a path and `mlflow` an address, or null if there is none.

    For a search it also contains the number of trials and the recommendation.
    """
    of_search: dict[str, Any] = {}
    if run.search is not None:
        if run.search.answer is None:
            answer = None
        else:
            answer = run.search.answer.as_json()
        of_search = {"trials": {"planned": run.search.planned, "made": run.search.made}, "recommendation": answer}
    return {
        "run": run.run,
        "audit": run.audit,
        "state": run.state,
        "jobs": {name: run.jobs[name] for name in ("planned", "stored", "done", "failed")},
        **({} if run.look is None else {"look": run.look}),
        "report": None if run.page is None else str(run.page),
        "mlflow": run.mlflow,
        **of_search,
    }


def answer_shape(run: Report | Status, store: Store) -> dict[str, Any]:
    """Return the answer and the effect of a run as JSON. They are null for a run that has not finished."""
    from orchestrator.inspection import answers, results
    from orchestrator.run_folder.journal import COMPLETE, Journal

    if run.state not in COMPLETE:
        return {"answer": None, "effect": None}
    journal = Journal(store.folder("runs", run.run))
    headline = answers.run_headline(journal, store)
    return {"answer": results.short_answer(journal, store) or None, "effect": headline_shape(headline)}


def display_answer(report: Report, store: str | None, json: bool, next_step: Callable[[], str] | None = None) -> None:
    """Print the failures of a run and, unless `json` is set, its answer, numbers and next command.

    `next_step` returns the line that follows the answer, once this is printed. The report and the delivery to MLflow
    may still be missing.
    """
    command = f"engram resume {report.run}{store_option(store)}"
    failures(report.failures)
    if report.damaged:
        say(f"{report.damaged} results were damaged or missing and have been recomputed")
    if report.differing and report.store:
        say(
            f"{format_count(report.differing, 'result')} differed when computed again; "
            f"the first is kept, the other is in {report.store.location}/conflicts"
        )
    if report.state == "failed":
        say(f"{format_count(report.jobs['failed'], 'job')} failed; {_advice(report.failures, command)}")
    elif report.state == "decided":
        say(report.note)
    elif report.state != "finished":
        say(f"{report.state}{f': {report.note}' if report.note else ''}; continue with: {command}")
    if not json:
        with suppress(StoreError):  # the reason why the run ended has been printed
            _print_answer(report, store, next_step)


def _report_shape(report: Report) -> dict[str, Any]:
    """Return the JSON representation of a run with its answer."""
    return shape(report) | (answer_shape(report, report.store) if report.store else {})


def display_end(report: Report, json: bool, left_out: Sequence[str] = ()) -> int:
    """Print the final state of a run with its report and its address in MLflow, as the last line or as JSON.

    `left_out` contains the lines about skipped preset cells, printed before the last line. Returns the exit code.
    """
    if json:
        if report.cells:
            cells = {"cells": [_report_shape(cell) for cell in report.cells]}
        else:
            cells = {}
        skipped = []
        for cell in report.left_out:
            skipped.append({"setting": dict(cell.setting), "problem": cell.problem})
        emit(_report_shape(report) | cells | ({"left_out": skipped} if skipped else {}))
        return report.exit_code
    jobs = report.jobs
    counts = f"{jobs['stored']} of {jobs['planned']} jobs stored, {jobs['done']} computed now, {jobs['failed']} failed"
    folder = ""
    if report.store:
        folder = f"{report.store.location}/runs/{report.run}"
    if report.page:
        page = f"report {report.page}"
    else:
        page = folder
    by_ui = ""
    if report.mlflow and not report.mlflow.startswith("http"):
        by_ui = ", view with engram ui"
    mlflow_note = ""
    if report.mlflow:
        mlflow_note = f"; MLflow {report.mlflow}{by_ui}"
    for line in left_out:
        show(line)
    show(f"{report.run} {report.state}: {counts}; {page}{mlflow_note}")
    return report.exit_code


def status_line(status: Status) -> str:
    """Return the state of a run as one line."""
    jobs = status.jobs
    if status.search is None:
        trials = ""
    else:
        trials = f"{_describe_trials(status.search)}, "
    parts = [
        f"{status.run} {status.state}: {trials}{jobs['stored']} of {jobs['planned']} jobs stored, "
        f"{jobs['failed']} failed",
        f"driven by {status.driver}" if status.driver else "",
        _describe_look(status.look),
        status.note,
    ]
    return "; ".join(part for part in parts if part)


def _describe_look(look: Mapping[str, Any] | None) -> str:
    """Return text such as `look 3 at its question, summed error 15 %`. Returns an empty string for a first look."""
    if look is None or look["number"] == 1:
        return ""
    summed = look.get("summed_error")
    return f"look {look['number']} at its question" + ("" if summed is None else f", summed error {summed:g} %")


def ray_lines(status: Status) -> list[str]:
    """Return the addresses of Ray's own pages."""
    lines = []
    for subject, address in status.ray.items():
        lines.append(f"Ray's page on the {subject}: {address}")
    return lines


def _describe_trials(search: SearchResults) -> str:
    return f"{search.made} of {format_count(search.planned, 'trial')} done"


def row(status: Status, effect: str, answer: str) -> dict[str, Any]:
    """Return a run, the number that compares runs and its answer as a row in the list of runs."""
    from orchestrator.spec import resolve

    varied = resolve.label(status.setting, status.setting)
    jobs = status.jobs
    state = status.state
    if status.search is not None:
        if state != "finished":
            state += f", {_describe_trials(status.search)}"
    elif state not in ("finished", "unreadable"):  # including runs that stopped once decided, with fewer jobs
        state += f", {jobs['stored']} of {format_count(jobs['planned'], 'job')}"
    if jobs["failed"]:
        state += f", {jobs['failed']} failed"
    return {
        "run": status.run,
        "effect": effect,
        "answer": answer,
        "state": state,
        "preset": status.preset,
        "varied": _cells(status) or varied,
        "created": status.created[:16].replace("T", " "),
    }


def _cells(status: Status) -> str:
    """Return the number of sweep cells, or the fields of a search. Returns an empty string for a single run."""
    if status.search is not None:
        return f"search over {', '.join(status.search.settings['over'])}"
    if status.cells:
        return f"{len(status.cells)} cells"
    return ""


def failures(failed: Iterable[tuple[str, str, str]]) -> None:
    """Print the failed jobs. Jobs of one task that raised the same error share a line with the first key."""
    alike: dict[tuple[str, str], list[str]] = {}
    for key, task, error in failed:
        alike.setdefault((task, error), []).append(key)
    for (task, error), keys in list(alike.items())[:LISTED]:
        more = ""
        if len(keys) > 1:
            more = f" and {format_count(len(keys) - 1, 'more job')}"
        say(f"failed: {task} {keys[0][:12]}{more}: {error}")
    if len(alike) > LISTED:
        say(f"... and {len(alike) - LISTED} more kinds of failure")
    if alike:
        say(f"to see the traceback and output of the first: engram runs logs {next(iter(alike.values()))[0][:12]}")


def _advice(failed: Iterable[tuple[str, str, str]], command: str) -> str:
    """Return advice after failed jobs. `command` is the command that repeats them.

    Repeating does not help if a file or data set has changed, because a run only accepts the content it was started
    with.
    """
    if not any(CHANGED.search(error) for _, _, error in failed):
        return f"try again with: {command}"
    return (
        "their input files have changed since the run began. To start a new run with the current files, repeat the "
        f"original command (engram run ...). To continue this run, restore the old files and use: {command}"
    )


def _print_answer(report: Report, store: str | None, next_step: Callable[[], str] | None) -> None:
    """Print the answer, the most important numbers, and the commands that show the rest. A sweep prints each cell."""
    from orchestrator.inspection import results
    from orchestrator.run_folder.journal import Journal

    if report.store is None:
        return
    journal = Journal(report.store.folder("runs", report.run))
    if report.cells:
        has_answer = _print_sweep_answers(report, journal)
    else:
        has_answer = _print_run_answer(report, journal, next_step)
    rows = results.summary(journal, report.store).table.num_rows
    if not has_answer:
        return
    show("")
    show(f"next: engram report --open{store_option(store)}")
    more = ""
    if rows > has_answer:
        more = f", for all {format_count(rows, 'row')}"
    show(f"      engram results {report.run} summary{store_option(store)}{more}")


def _print_run_answer(report: Report, journal: Journal, next_step: Callable[[], str] | None) -> int:
    """Print the effect and answer of a run, the next step and the first summary rows. Returns the number of rows."""
    from orchestrator.inspection import answers, results

    assert report.store is not None
    rows = results.summary(journal, report.store).table.to_pylist()
    answer = results.answer(journal, report.store)
    headline = results.headline(journal, report.store)
    if answer is not None:
        if headline is not None:
            show(f"effect: {_describe_effect(headline)}")
            show("")
        for text in answer.paragraphs:
            paragraph(text, STYLES[answers.tone(report.audit, answer)], answer.answer.capitalize())
        if next_step is not None:
            paragraph(next_step())
        show("")
    first = answers.leading_rows(answer, rows, MAX_ROWS)
    if first:
        summary(first)
    return len(first)


def _describe_effect(headline: Headline) -> str:
    """Return the number followed by the name of its summary row, unless the number's wording contains the metric."""
    from orchestrator.inspection import answers

    number = format_headline(headline)
    name = answers.row_name(headline.row) if headline.unit else ""
    metric = headline.row["metric"]
    if number.startswith(metric):
        return f"{number}{name.removeprefix(metric)}"
    return ", ".join(filter(None, (number, name)))


def _print_sweep_answers(report: Report, journal: Journal) -> int:
    """Print one row per sweep cell: the number that compares the cells, and its answer. Returns the number of rows.

    If there are too many, the cells with the strongest results are printed.
    """
    from orchestrator.inspection import answers

    assert report.store is not None
    cells = answers.cell_answers(journal, report.store)
    answered = [cell for cell in cells if cell.headline is not None or cell.verdict is not None]
    printed = answers.strongest_cells(answered, report.audit, LISTED)
    if printed:
        rows = [_cell_row(cell) for cell in printed]
        table(rows, filled_columns(rows))
    names = dict.fromkeys(answers.row_name(cell.headline.row) for cell in printed if cell.headline is not None)
    if names:
        show("")
        paragraph(f"effect: {'; '.join(names)}")
    _show_sweep_error(report)
    if len(answered) > len(printed):
        show(f"... and {format_count(len(answered) - len(printed), 'more cell')} with weaker results")
    if len(cells) <= MAX_ROWS:
        for cell in answered:
            if cell.verdict is not None:
                show("")
                style = STYLES[answers.tone(report.audit, cell.verdict)]
                lead = cell.verdict.answer.capitalize()
                paragraph(f"{cell.label}: {cell.verdict.sentence}", style, lead, f"{cell.label}: ")
    return len(printed)


def _show_sweep_error(report: Report) -> None:
    """Print the total rate of false findings over all sweep cells, as recorded in their folders."""
    looks = [cell.look for cell in report.cells]
    summed = []
    for look in looks:
        if look is not None and look["summed_error"] is not None:
            summed.append(look["summed_error"])
    if summed:
        show("")
        paragraph(
            f"over all {len(report.cells)} cells: if the models memorised nothing, at most {max(summed):g} of 100 such "
            "sweeps would report a finding"
        )


def _cell_row(cell: CellAnswer) -> dict[str, str]:
    """Return a sweep cell as a table row: its varied fields, the number that compares the cells, and its answer."""
    return {**cell.varied, "effect": cell.effect, "answer": "" if cell.verdict is None else cell.verdict.answer}


def lines(answer: Mapping[str, Any]) -> list[str]:
    """Return the lines that `explain` prints for a key."""
    from orchestrator.cli.terminal import cell

    texts = []
    for name, value in answer.items():
        if name == "traceback" and value:
            texts += ["traceback", *(f"  {line}" for line in value.rstrip().splitlines())]
        elif name == "nearest" and value:
            fields = (
                f"{path} is {cell(this_value)}, not {cell(nearest_value)}"
                for path, (this_value, nearest_value) in value["fields"].items()
            )
            version = []
            if "version" in value:
                version = [f"version is {value['version'][0]}, not {value['version'][1]}"]
            inputs = []
            if "inputs" in value:
                inputs = ["inputs differ"]
            texts += [
                f"nearest     {value['key'][:16]}, a stored result of the same task:",
                *_indent((*fields, *version, *inputs)),
            ]
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            texts += [name, *_indent(" ".join(cell(part) for part in mapping.values()) for mapping in value)]
        elif isinstance(value, Mapping):
            texts += [name, *_indent(f"{path} {cell(part)}" for path, part in value.items())]
        elif value not in (None, [], ""):
            texts.append(f"{name:<11} {', '.join(map(str, value)) if isinstance(value, list) else cell(value)}")
    return texts


def _indent(texts: Iterable[str]) -> list[str]:
    return [f"  {text}" for text in texts]


def display_trials(rows: Sequence[Row], names: tuple[str, str] = OBJECTIVES, limit: int | None = None) -> None:
    """Print up to `limit` trials with both objectives, under the given names, and their 95 % intervals."""
    table_rows = [_trial_row(row, names) for row in rows[:limit]]
    if table_rows:
        table(table_rows, filled_columns(table_rows), right_aligned=names)
    if len(rows) > len(table_rows):
        show(f"... and {format_count(len(rows) - len(table_rows), 'more trial')}")


def display_recommendation(answer: SearchAnswer) -> None:
    """Print the recommendation of a search."""
    paragraph(answer.sentence, STYLES[answer.tone], answer.answer.capitalize())


def _trial_row(row: Row, names: tuple[str, str]) -> dict[str, Any]:
    from orchestrator.inspection import search_results

    state = ""
    if row["state"] != "finished":
        state = row["state"]
    early = ""
    if row["state"] == "stopped early":
        early = f" at epoch {row['epochs']}"
    return {
        "trial": f"{row['trial']}",
        "choices": search_results.trial_name(row),
        "front": "front" if row["front"] else "",
        **{
            name: _trial_value(search_results.value(row, objective))
            for name, objective in zip(names, OBJECTIVES, strict=True)
        },
        "state": f"{state}{early}",
        "run": row["run"],
        "note": row["note"],
    }


def _trial_value(value: dict[str, Any] | None) -> str:
    if value is None:
        return ""
    return (
        f"{rounding.format_row_value(value, 'estimate')} {rounding.format_interval(value['low'], value['high'])}"
    ).rstrip()


def comparison_shape(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON: runs, audits, differing fields and environment, answers, effects, paired rows."""
    shape = dataclasses.asdict(comparison)
    del shape["headlines"]
    return shape | {"effects": [headline_shape(headline) for headline in comparison.headlines]}


def display_comparison(comparison: Comparison) -> None:
    """Print a comparison on stdout: names with effects and answers, differences, summaries, answers in full.

    Prints one line if the runs answer different questions.
    """
    if comparison.shares_nothing:
        (a, b), (audit_a, audit_b) = comparison.runs, comparison.audits
        paragraph(f"nothing to compare: {a} ({audit_a}) and {b} ({audit_b}) answer different questions")
        return
    for index, letter in enumerate("ab"):
        answer = comparison.answers[index]
        result = [format_headline(comparison.headlines[index]), answer.answer if answer else ""]
        line = ": ".join(filter(None, (f"({comparison.audits[index]})", ", ".join(filter(None, result)))))
        show(f"{letter}  {comparison.runs[index]} {line}")
    show("")
    differing = [*_differing("config", comparison.fields), *_differing("made with", comparison.environment)]
    table(differing or [{"": "same configuration and same environment"}])
    show("")
    rows = [
        {"metric": pair.metric, "setting": setting_text(pair.setting)}
        | _summary_columns("a", pair.a)
        | _summary_columns("b", pair.b)
        for pair in comparison.rows
    ]
    table(rows, right_aligned=("a", "b", "a: null", "b: null"))
    show("")
    for letter, answer in zip("ab", comparison.answers, strict=True):
        paragraph(f"{letter}  {'no answer yet' if answer is None else answer.sentence}")


def _differing(kind: str, differences: tuple[Difference, ...]) -> Iterator[dict[str, Any]]:
    for difference in differences:
        yield {"differs": kind, "name": difference.name, "a": cell(difference.a), "b": cell(difference.b)}


def _summary_columns(letter: str, row: Row | None) -> dict[str, Any]:
    summary_row = row or {}
    texts = numbers(summary_row)
    return {
        letter: texts["estimate"],
        f"{letter}: 95 % interval": texts["95 % interval"],
        f"{letter}: n": summary_row.get("n"),
        f"{letter}: null": texts["null"],
    }
