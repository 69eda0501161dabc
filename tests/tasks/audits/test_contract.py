"""Requirements that every audit meets: the audits of this project, of another package, and the README's example."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dashboards.run import open_run
from orchestrator.planning.identity import key_of
from orchestrator.planning.plan import Plan
from orchestrator.run_folder import tables
from orchestrator.runs.lifecycle import start
from orchestrator.runs.report import Report
from orchestrator.spec import audits
from orchestrator.spec.config_parts import parts
from orchestrator.spec.resolve import Cell, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from orchestrator.store import open_store
from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.presets import audit_targets
from tasks.contract.job import Job, Roots
from tasks.contract.schemas import SUMMARY
from tasks.contract.verdict import Tone, Verdict
from tasks.training import dp_sgd
from tests.dashboards import pages
from tests.support.lost_job import Lost, lost
from tests.support.packages import EXAMPLE, offered_example
from tests.support.shell import PATHS, ROOT

OURS = sorted(path.stem for path in (ROOT / "tasks" / "audits").iterdir() if not path.name.startswith("_"))
AUDITS = sorted({*audits.names(), EXAMPLE})
CHEAP = ("smoke", "null", "few")  # presets that take about a second at tiny scale
ABSENT = {("toys", "absent"), ("toys", "partly")}  # presets whose data no test has
LIMITS = {"density": {"examples": 32, "samples": 2}}  # of presets that are not cheap, since its models are large
PRESETS = [
    pytest.param(audit, preset, marks=() if preset in CHEAP else pytest.mark.slow)
    for audit in AUDITS
    for preset in (("smoke", "null", "mnist") if audit == EXAMPLE else audits.find(audit).audit.presets)
    if (audit, preset) not in ABSENT
]
# Plans every audit at full and at tiny scale, in a fresh process.
PLANNING = """
import hashlib, json, sys
from orchestrator.errors import EngramError
from orchestrator.planning.plan import plan_of
from orchestrator.spec import audits
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec

def keys(spec):
    try:
        plans = [plan_of(cell) for cell in pin_cells(resolve_cells(spec), digests)]
    except EngramError as error:
        return str(error)
    jobs = [[list(plan.jobs), dict(plan.roots), dict(plan.inputs), dict(plan.after)] for plan in plans]
    return [hashlib.sha256(json.dumps(jobs_of_cell).encode()).hexdigest() for jobs_of_cell in jobs]

digests = {}
requests = [(name, preset, scale) for name in sys.argv[2:] for preset in audits.find(name).audit.presets
            for scale in ("full", "tiny")]
requests = requests[::int(sys.argv[1])]
plans = [keys(Spec(name, preset, {"scale": scale})) for name, preset, scale in requests]
loaded = [name for name in ("torch", "scipy", "sklearn", "pandas", "ray") if name in sys.modules]
print(json.dumps({"requests": requests, "plans": plans, "loaded": loaded}))
"""


@dataclass(frozen=True)
class PlannedPresets:
    """The plans of one process: for each audit, preset and scale, one digest per cell or the error message."""

    plans: dict[tuple[str, str, str], Any]
    loaded: list[str]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the package that provides the example; it is on Python's path."""
    folder = tmp_path_factory.mktemp("package")
    with offered_example(folder):
        yield folder


@pytest.fixture(autouse=True)
def _embedded_data_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGRAM_DATA", raising=False)


def plan_in_process(package: Path, hash_seed: str, step: int) -> PlannedPresets:
    env = {name: value for name, value in os.environ.items() if name != "ENGRAM_DATA"}
    env |= {"PYTHONPATH": os.pathsep.join([str(package), PATHS]), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PLANNING, str(step), *AUDITS]
    output = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)
    names = [tuple(request) for request in output["requests"]]
    return PlannedPresets(dict(zip(names, output["plans"], strict=True)), output["loaded"])


@pytest.fixture(scope="module")
def plans(package: Path) -> tuple[PlannedPresets, PlannedPresets]:
    """The plans of two processes, which order sets of strings differently and plan the presets in opposite orders."""
    return plan_in_process(package, "0", 1), plan_in_process(package, "1", -1)


def test_plans_do_not_depend_on_process_or_order(plans: tuple[PlannedPresets, PlannedPresets]) -> None:
    forward, backward = plans
    assert forward.plans == backward.plans


def test_planning_loads_no_computing_libraries(plans: tuple[PlannedPresets, PlannedPresets]) -> None:
    assert [planned.loaded for planned in plans] == [[], []]


def test_unplannable_presets_name_missing_data(plans: tuple[PlannedPresets, PlannedPresets]) -> None:
    refused = {
        preset_at_scale: message for preset_at_scale, message in plans[0].plans.items() if isinstance(message, str)
    }
    for preset_at_scale, message in refused.items():
        assert len(message.splitlines()) == 1, preset_at_scale
        assert ("no folder " if preset_at_scale[:2] == ("toys", "partly") else "ENGRAM_DATA is not set") in message, (
            preset_at_scale
        )
    # At tiny scale all data are embedded, and so are the data of the presets that a new user tries.
    embedded_refusals = set()
    for audit, preset, scale in refused:
        if audit in (*OURS, EXAMPLE) and scale == "tiny":
            embedded_refusals.add((audit, preset))
    assert set() == embedded_refusals
    tried = set()
    for audit, preset, _ in refused:
        if audit in OURS and preset in ("quickstart", "null", "smoke"):
            tried.add(preset)
    assert set() == tried


def choices(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The choices of a config by field. A number counts only as positive or not, since sizes do not change the code."""
    if is_dataclass(value):
        yield path, type(value)
        for field in fields(value):
            yield from choices(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, tuple):
        yield path, len(value) > 0
        for part in value:
            yield from choices(part, f"{path}[]")
    else:
        yield path, value > 0 if isinstance(value, float) or type(value) is int else value


def with_limits(value: Any, limits: Mapping[str, int]) -> Any:
    """A config whose numbers in fields of these names are at most the limits."""
    if isinstance(value, tuple):
        return tuple(with_limits(part, limits) for part in value)
    changes = {}
    for name, part in (parts(value) or {}).items():
        changes[name] = min(part, limits[name]) if name in limits else with_limits(part, limits)
    return replace(value, **changes) if changes else value


def with_less(audit: str, config: Any) -> Any:
    """The config with fewer examples and samples, and fewer trainings of one kind."""
    config = with_limits(config, LIMITS.get(audit, {}))
    if not isinstance(config, Forgetting) or not isinstance(config.audited, Trained):
        return config
    targets = {tuple(choices(target)): target for target in config.audited.targets}
    return audit_targets(config, *targets.values(), outside=config.audited.outside)


@cache
def differing_cells(audit: str, preset: str) -> list[Cell]:
    """The preset's cells at tiny scale with a choice that neither an earlier preset nor an earlier cell makes.

    Cells that differ only in numbers, such as those of a ladder, run once. Combinations of choices that occur
    separately elsewhere are planned (`test_unplannable_presets_name_missing_data`), not run.
    """
    cells = pin_cells(resolve_cells(Spec(audit, preset, {"scale": "tiny"})), {})
    if preset in CHEAP:
        cells_by_choices = {frozenset(choices(cell.config)): cell for cell in cells}
        return list(cells_by_choices.values())
    presets = [name for name in audits.find(audit).audit.presets if (audit, name) not in ABSENT]
    earlier_choices: set[tuple[str, Any]] = set()
    for name in [*cheap(audit), *presets[: presets.index(preset)]]:
        for cell in differing_cells(audit, name):
            earlier_choices |= set(choices(cell.config))
    new_cells = []
    for cell in cells:
        smaller = replace(cell, config=with_less(audit, cell.config))
        cell_choices = set(choices(smaller.config))
        if not cell_choices <= earlier_choices:
            new_cells.append(smaller)
            earlier_choices |= cell_choices
    return new_cells


@dataclass(frozen=True)
class Tiny:
    """Runs at tiny scale, each computed once, in one store."""

    store: Path
    done: dict[tuple[str, str], Report]

    def run(self, audit: str, preset: str, tolerate: int = 0) -> Report:
        return start(differing_cells(audit, preset), open_store(self.store), replace(pages.HERE, tolerate=tolerate))

    def report(self, audit: str, preset: str) -> Report:
        if (audit, preset) not in self.done:
            self.done[audit, preset] = self.run(audit, preset)
        return self.done[audit, preset]

    def cells(self, audit: str, preset: str) -> list[tuple[Any, Report]]:
        """The config and the report of each cell that differs from earlier ones."""
        configs = [cell.config for cell in differing_cells(audit, preset)]
        report = self.report(audit, preset) if configs else None
        return list(zip(configs, report.cells or (report,), strict=True)) if report else []


@pytest.fixture(scope="module")
def tiny(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dp_sgd, "TOLERANCE", 0.5)  # the search for the last hundredth takes longer than the trainings
        dp_sgd._noise.cache_clear()
        yield Tiny(tmp_path_factory.mktemp("store"), {})
    dp_sgd._noise.cache_clear()


def stored_table(report: Report, name: str) -> pa.Table:
    """The stored table, without the columns that are added for users."""
    assert report.store is not None
    return tables.read(report.store, report.roots[name])


def cheap(audit: str) -> list[str]:
    """The presets that these tests run; each audit has at least one."""
    presets = [preset for preset in CHEAP if preset in audits.find(audit).audit.presets]
    assert presets, f"{audit} has none of the presets {', '.join(CHEAP)}"
    return presets


def verdict(audit: str, config: Any, summary: pa.Table) -> Verdict | None:
    return audits.find(audit).audit.answer(config, summary)  # raises an error for an undeclared answer


def names(summary: pa.Table) -> list[tuple[str, str]]:
    return [(row["metric"], row["setting"]) for row in summary.to_pylist()]


@pytest.mark.parametrize("audit", AUDITS)
def test_second_run_computes_nothing_and_agrees(audit: str, tiny: Tiny) -> None:
    first = tiny.report(audit, cheap(audit)[0])
    second = tiny.run(audit, cheap(audit)[0])
    assert second.state == "finished"
    assert second.jobs["done"] == 0
    assert first.run == second.run
    assert dict(first.roots) == dict(second.roots)
    assert all(first.table(name).equals(second.table(name)) for name in first.roots)


@pytest.mark.parametrize(("audit", "preset"), PRESETS)
def test_tables_have_the_schemas_of_their_measures(audit: str, preset: str, tiny: Tiny) -> None:
    # several measures may share a name if a config has only one measure of that name
    measures = audits.find(audit).audit.measures
    for _, report in tiny.cells(audit, preset):
        assert stored_table(report, "summary").schema.equals(SUMMARY)
        if measures:
            assert set(report.roots) <= {"summary", *(measure.name for measure in measures)}
        for name in report.roots:
            table = stored_table(report, name)
            assert table.num_rows, name
            schemas = [measure.schema for measure in measures if measure.name == name]
            assert not schemas or any(table.schema.equals(schema) for schema in schemas), name
            parquet = io.BytesIO()
            pq.write_table(table, parquet)
            assert table.equals(pq.read_table(parquet)), name  # lists of a fixed size would break this


@pytest.mark.parametrize(("audit", "preset"), PRESETS)
def test_summary_rows_have_name_unit_and_size(audit: str, preset: str, tiny: Tiny) -> None:
    for _, report in tiny.cells(audit, preset):
        summary = report.table("summary")
        for row in summary.to_pylist():
            assert row["metric"]
            assert row["unit"], row
            assert row["n"] is not None, row
            assert row["n"] >= 0, row
            assert isinstance(json.loads(row["setting"]), dict)
            assert row["published"] is None, row  # published numbers belong to other data and networks
            if row["low"] is not None:
                assert row["low"] <= row["estimate"] <= row["high"], row
        assert len(names(summary)) == len(set(names(summary)))


@pytest.mark.parametrize("audit", AUDITS)
def test_answers_are_declared_with_their_tone(audit: str, package: Path) -> None:
    answers = audits.find(audit).audit.wording.answers
    assert "open" in {meaning.tone for meaning in answers.values()}  # the answer if there is no result
    for answer, meaning in answers.items():
        assert 1 <= len(answer.split()) <= 4, answer
        assert meaning.words, answer
        assert meaning.tone in get_args(Tone), answer


@pytest.mark.parametrize(("audit", "preset"), PRESETS)
def test_answer_refers_to_rows_of_the_summary(audit: str, preset: str, tiny: Tiny) -> None:
    assert audit not in OURS or audits.find(audit).audit.verdict is not None
    for config, report in tiny.cells(audit, preset):
        summary = report.table("summary")
        for table in (summary, summary.slice(0, 0)):  # the second has no result
            answer = verdict(audit, config, table)
            if answer is not None:
                assert answer.answer in audits.find(audit).audit.wording.answers
                assert answer.sentence
                assert answer.limits
                assert set(answer.rows) <= set(names(table))
                assert not re.findall(r"\b(?:nan|inf|None(?! of))\b", answer.sentence)


def test_all_presets_of_the_example_are_tested(package: Path) -> None:
    tested_presets = [case.values[1] for case in PRESETS if case.values[0] == EXAMPLE]
    assert list(audits.find(EXAMPLE).audit.presets) == tested_presets


@pytest.mark.parametrize("audit", [audit for audit in AUDITS if audit in (*OURS, EXAMPLE)])
def test_null_preset_interval_covers_the_null(audit: str, tiny: Tiny) -> None:
    for config, report in tiny.cells(audit, "null"):
        rows = {}
        for row in report.table("summary").to_pylist():
            rows[(row["metric"], row["setting"])] = row
        answer = verdict(audit, config, report.table("summary"))
        assert answer is not None
        assert audits.find(audit).audit.wording.answers[answer.answer].tone != "accused"
        decisive_row = next(row for row in map(rows.__getitem__, answer.rows) if row["low"] is not None)
        assert decisive_row["low"] <= decisive_row["null"] <= decisive_row["high"], decisive_row


def with_failed_leaf(roots: Roots) -> Roots:
    """The same plan, in which the first job that reads no tables fails."""
    leaf = next(key for key, job in Plan.from_roots(roots).jobs.items() if not job.inputs)
    new_jobs: dict[Job, Job] = {}

    def with_failure(job: Job) -> Job:
        if job not in new_jobs:
            inputs = tuple(with_failure(source) for source in job.inputs)
            after = None if job.after is None else with_failure(job.after)
            fails = not inputs and key_of(job, ()) == leaf
            new_jobs[job] = Job(lost, Lost()) if fails else replace(job, inputs=inputs, after=after)
        return new_jobs[job]

    def all_with_failure(jobs: Sequence[Job]) -> tuple[Job, ...]:
        return tuple(with_failure(job) for job in jobs)

    result = {}
    for name, root in roots.items():
        result[name] = with_failure(root) if isinstance(root, Job) else all_with_failure(root)
    return result


@pytest.mark.parametrize("audit", [audit for audit in AUDITS if audit != "chains"])  # chains is a single training
def test_tolerated_failure_still_yields_a_summary(audit: str, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = cheap(audit)[0]
    ((config, _),) = tiny.cells(audit, preset)  # so that only jobs that read the failed one are computed again
    original = audits.find(audit)
    failing = replace(
        original, audit=replace(original.audit, plan=lambda config: with_failed_leaf(original.audit.plan(config)))
    )
    monkeypatch.setattr(audits, "find", lambda name: failing)
    report = tiny.run(audit, preset, tolerate=1)
    assert report.state == "failed"
    assert report.jobs["failed"] == 1
    assert report.exit_code == 3
    summary = report.table("summary").select(SUMMARY.names)
    assert summary.schema.equals(SUMMARY)
    assert summary.num_rows
    answer = verdict(audit, config, summary)
    assert answer is None or set(answer.rows) <= set(names(summary))


@pytest.mark.parametrize("audit", AUDITS)
def test_report_shows_the_audits_documentation(audit: str, tiny: Tiny) -> None:
    definition = audits.find(audit)
    assert definition.question
    assert definition.documentation or audit not in (*OURS, EXAMPLE)
    run = open_run(open_store(str(tiny.store)), tiny.report(audit, cheap(audit)[0]).run)
    page = pages.words(pages.draw(run))
    asked = definition.question
    if run.certificate is not None:
        asked = run.certificate.asked
    assert asked.partition("?")[0] in page
    for paragraph in definition.documentation.split("\n\n"):
        assert " ".join(paragraph.replace("`", "").split()) in page  # backticks become elements of the page
