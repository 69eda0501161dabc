"""The number that compares runs: its unit is explicit, its digits follow its interval or its distance from the null."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from orchestrator.cli.gate import Gate, pass_gate
from orchestrator.headlines import format_headline, format_range, headline_shape
from orchestrator.inspection import answers, results
from orchestrator.inspection.card import model_card
from orchestrator.inspection.compare import compare
from orchestrator.runs.report import open_report
from orchestrator.spec import audits
from orchestrator.store import Store
from orchestrator.tracking import facts, note
from tasks.audits.membership import Membership
from tasks.audits.membership.config import Canaries
from tasks.contract.objectives import Headline, headline_of
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Row
from tests.dashboards import made, pages
from tests.support.shell import Here


def headline(wording: str, unit: str, estimate: float, low: Any = None, high: Any = None, **fields: Any) -> Headline:
    row = dict.fromkeys(SUMMARY.names) | {"metric": "m", "setting": "{}", "n": 12, "null": 0.0}
    return Headline("m", unit, wording, row | {"estimate": estimate, "low": low, "high": high} | fields)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (headline("{} nats", "nats", 0.3656, 0.1775, 0.5537), "0.37 nats [0.18, 0.55]"),
        (headline("{} nats", "nats", 0.005, 0.002, 0.008), "0.0050 nats [0.0020, 0.0080]"),
        (headline("{} nats", "nats", 1.9302), "1.9 nats"),
        (headline("{} nats", "nats", 1.9302, 1.0, 2.9, n=2), "1.9 nats"),  # no interval from two values
        (headline("{} nats", "nats", 0.0), "0 nats"),
        (headline("AUC {}", "AUC", 0.50123, null=0.5), "AUC 0.5012"),
        (headline("AUC {}", "AUC", 0.6888, 0.6512, 0.7241, null=0.5), "AUC 0.689 [0.651, 0.724]"),
        (headline("{} of {n} records", "record", 288.0, n=4000), "288 of 4,000 records"),
        (headline("{} of {n} records", "record", 12345.0, n=40000), "12,345 of 40,000 records"),
        (headline("deja vu score {} %", "share", 0.42, 0.29, 0.57), "deja vu score 42 % [29, 57 %]"),
        (headline("{} % of pairs won", "share", 0.25), "25 % of pairs won"),
        (headline("a {} b {}", "", 3.0), "a {} b 3"),
        (headline("{} nats", "nats", -0.123456, null=None), "-0.12 nats"),
        (headline("{} nats", "nats", 0.123456, math.nan, math.nan), "0.12 nats"),
        (headline("{} nats", "nats", 0.123456, 0.1), "0.12 nats"),  # an interval has both limits
        (headline("{} nats", "nats", 0.123456, None, 0.2), "0.12 nats"),
        (headline("{}", "", 999_999_999.0), "999,999,999"),
        (headline("{}", "", 1e9), "1000000000"),
        (headline("{}", "", -1e9), "-1000000000"),
    ],
)
def test_text_has_unit_interval_and_fitting_digits(shown: Headline, expected: str) -> None:
    assert format_headline(shown) == expected


def test_missing_number_is_empty() -> None:
    assert (format_headline(None), format_range([]), headline_shape(None)) == ("", "", None)


def test_sweep_shows_its_range() -> None:
    one = headline("{} nats", "nats", 0.3656, 0.1775, 0.5537)
    other = headline("{} nats", "nats", 0.0132, 0.01, 0.016)
    assert format_range([one, other]) == "0.0132 to 0.37 nats"
    assert format_range([one, one]) == "0.37 nats"
    assert format_range([one]) == format_headline(one)
    counts = [headline("{} of {n}", "record", found, n=n) for found, n in ((5.0, 20), (3.0, 10), (4.0, 30))]
    assert format_range(counts) == "3 to 5 of 20"


def test_number_as_json_has_its_setting() -> None:
    shape = headline_shape(headline("{} nats", "nats", 0.5, setting='{"k": 4}'))
    assert shape is not None
    assert (shape["setting"], shape["text"], shape["unit"]) == ({"k": 4}, "0.50 nats", "nats")


def test_strongest_cells_accuse_or_have_the_largest_effects() -> None:
    cells = []
    for index, (estimate, null) in enumerate([(0.5, 0.5), (0.9, 0.5), (0.0, 0.5), (0.6, 0.5)]):
        cells.append(answers.CellAnswer(f"run-{index}", {}, None, headline("{}", "", estimate, null=null)))
    cells.append(answers.CellAnswer("run-4", {}, None))
    strongest = answers.strongest_cells(cells, "density", 2)
    assert [cell.run for cell in strongest] == ["run-1", "run-2"]


def test_questions_of_one_audit_keep_their_units(store: Store) -> None:
    audit = audits.find("membership").audit
    rows: list[Row] = []
    for metric, estimate in (("records found", 288.0), ("epsilon, at least", 1.234)):
        rows.append(dict.fromkeys(SUMMARY.names) | {"metric": metric, "setting": "{}", "estimate": estimate, "n": 400})
    table = made.pa.Table.from_pylist(rows, SUMMARY)
    texts = []
    for config in (Membership(), Membership(question=Canaries())):
        texts.append(format_headline(audit.headline(config, table)))
    assert texts == ["288 of 400 records", "epsilon at least 1.2"]
    objective = audit.compared(Membership())
    assert objective is not None
    assert headline_of(objective, Membership(), table.slice(1)) is None


@pytest.mark.parametrize("name", audits.names())
def test_name_of_a_run_is_no_answer(name: str) -> None:
    audit = audits.find(name).audit
    if audit.wording.subject is None:
        return
    answer_pattern = "|".join(re.escape(answer.removeprefix("not ")) for answer in audit.wording.answers)
    for preset in audit.presets:
        for config in audit.cells(preset):
            subject = audit.wording.subject(config)
            assert not re.search(rf"\b({answer_pattern})\b", subject), subject


def test_every_list_shows_the_same_effect(store: Store, tmp_path: Path) -> None:
    runs = [made.run(store, f"unique_feature-{i}", made.tables(6, effect=0.4 * i), setting={"seed": i}) for i in (1, 2)]
    sweep = made.sweep(store, "unique_feature-sweep-1", runs)
    junit = tmp_path / "out.xml"
    pass_gate(Gate(("memorised",), junit), sweep.journal, store)
    cases = list(ElementTree.parse(junit).iter("testcase"))
    page = pages.draw(sweep)
    card = model_card(sweep.journal, store, page)
    sweep_note = note.run_note(sweep.journal, store, "finished")
    tracked = facts.cell_metrics(sweep.journal, store)
    comparison = compare(store, *(run.journal for run in runs))
    for index, (run, case) in enumerate(zip(runs, cases, strict=True)):
        shown = results.headline(run.journal, store)
        assert shown is not None
        text = format_headline(shown)
        assert text.count(" nats [") == 1
        answer = open_report(run.journal, store).verdict
        assert answer is not None
        assert (answer.effect, answer.estimate, answer.low) == (text, shown.row["estimate"], shown.row["low"])
        assert (answer.metric, answer.effect_unit) == ("M_w effect", "nats")
        assert answers.effect(run.journal, store) == text
        assert facts.answer(run.journal, store, None)["engram.estimate"] == text
        assert tracked[index]["effect"] == shown.row["estimate"]
        assert f"**{text}**" in note.run_note(run.journal, store, "finished")
        assert f"| {text} | {answer.answer} |" in sweep_note
        assert f"| {text} | {answer.answer} |" in card
        assert f">{text}</data></td>" in page.read_text()
        assert [element.attrib["value"] for element in case.iter("property")] == [text]
        assert (case.findtext("system-out") or "").startswith(f"{text}. {answer.answer.capitalize()}")
        for failure in case.iter("failure"):
            assert failure.attrib == {"type": answer.answer, "message": f"{text}, {answer.answer}"}
        assert format_headline(comparison.headlines[index]) == text


def test_list_of_runs_shows_effects_before_answers(engram: Here) -> None:
    engram("run", "toys", "--preset", "few", "parts=3", "--address", "none")
    engram("run", "toys", "--preset", "few", "--sweep", "parts=3,4", "--address", "none")
    lines = engram("runs").stdout.splitlines()
    assert lines[0].split()[:3] == ["run", "effect", "state"]
    assert any("sum 3 to 6" in line and "2 cells" in line for line in lines)
    effects = {json.dumps(run["effect"]) for run in engram.json("runs")["runs"]}
    row = {"metric": "sum", "setting": {}, "estimate": 3.0, "low": None, "high": None, "null": None, "n": 3, "unit": ""}
    assert json.dumps({"text": "sum 3"} | row) in effects
    assert "null" in effects


def test_note_of_a_large_sweep_keeps_the_strongest_cells(store: Store) -> None:
    runs = []
    for index in range(note.MAX_CELLS + 5):
        rows = made.tables(6, effect=0.1 * (index % 10), seed=index)
        runs.append(made.run(store, f"unique_feature-{index}", {"summary": rows["summary"]}, setting={"seed": index}))
    sweep = made.sweep(store, "unique_feature-sweep-1", runs)
    compared: list[str] = []

    def comparison(names: Any) -> str:
        compared.extend(names)
        return "#/compare-runs?runs=all"

    text = note.run_note(sweep.journal, store, "finished", None, comparison)
    assert compared == [run.name for run in runs]
    assert "[Compare the cells](#/compare-runs?runs=all) in MLflow." in text
    assert "5 more cells with weaker results." in text
    weakest = sorted(runs, key=lambda run: run.headline.strength if run.headline else 0.0)[:2]
    assert all(f"| {run.name} |" not in text for run in weakest)
    assert len(text) <= note.LONGEST_NOTE
