"""Runs from Python and in notebooks."""

from __future__ import annotations

import dataclasses
import html
import inspect
import json
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import engram
import orchestrator
from orchestrator.runs.report import Report
from tests.support.searches import FinishedSearch
from tests.support.shell import PATHS, Here, Shell

TOYS: dict[str, Any] = {"address": "none", "mlflow": "off"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Report:
    store = tmp_path_factory.mktemp("smoke")
    return orchestrator.run("unique_feature", preset="smoke", store=store, report=False, **TOYS)


def test_verdict_repeats_numbers_of_its_row(smoke: Report) -> None:
    verdict = smoke.verdict
    assert verdict is not None
    names = (verdict.metric, verdict.estimate)
    [row] = [row for row in smoke.summary.to_pylist() if (row["metric"], row["estimate"]) == names]
    numbers = (verdict.low, verdict.high, verdict.null, verdict.p)
    assert (row["low"], row["high"], row["null"], row["p_value"]) == numbers
    assert row["n"] == verdict.n
    assert row["unit"] == verdict.unit
    assert {name: row[f"setting_{name}"] for name in verdict.setting} == verdict.setting
    assert verdict.answer in ("memorised", "not detected", "undecided")
    assert verdict.tone in ("accused", "cleared", "open")
    assert verdict.sentence
    assert verdict.limits


def test_opened_run_equals_finished_run(smoke: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    assert smoke.store is not None
    folder = Path(smoke.store.location) / "runs" / smoke.run
    for opened in (
        orchestrator.open(smoke.run, smoke.store.location),
        orchestrator.open(smoke.run[:-2], Path(smoke.store.location)),
        orchestrator.open(folder),
    ):
        assert smoke.run == opened.run
        assert smoke.state == opened.state
        assert smoke.audit == opened.audit
        assert set(opened.jobs) == {"planned", "stored", "done", "failed"}
        assert smoke.verdict == opened.verdict
        assert dict(smoke.roots) == dict(opened.roots)
        assert all(smoke.table(name).equals(opened.table(name)) for name in smoke.roots)
    monkeypatch.setenv("ENGRAM_STORE", smoke.store.location)
    assert smoke.run == orchestrator.open(smoke.run).run


def test_table_is_equal_in_all_formats(smoke: Report, tmp_path: Path) -> None:
    assert smoke.store is not None
    engram = Here(tmp_path)
    engram.env["ENGRAM_STORE"] = smoke.store.location
    json_rows = engram.json("results", smoke.run)
    assert json_rows[0]["run"] == smoke.run
    assert json_rows[0]["setting_model"] == "canary"
    assert json.loads(json_rows[0]["setting"]) == {"model": "canary"}
    assert smoke.summary.schema.names == list(json_rows[0])
    printed_tables = engram("results", smoke.run).stdout + engram("results", smoke.run, "canary_scores").stdout
    assert "setting_" not in printed_tables
    assert smoke.run not in printed_tables  # the reader named the run: no row repeats it
    engram("results", smoke.run, "--out", "summary.parquet")
    folder = Path(smoke.store.location) / "runs" / smoke.run / "tables"
    assert smoke.summary.equals(pq.read_table(tmp_path / "summary.parquet"))
    assert smoke.summary.equals(pq.read_table(folder / "summary"))
    assert smoke.table("canary_scores").equals(pq.read_table(folder / "canary_scores"))
    assert set(smoke.table("canary_scores")["run"].to_pylist()) == {smoke.run}


def test_figure_is_drawn_on_request(smoke: Report) -> None:
    figure = smoke.figure("estimates")
    assert figure.svg.startswith("<svg")
    assert figure._repr_svg_() == figure.path.read_text()
    assert "estimates" in smoke.figures
    with pytest.raises(
        orchestrator.SpecError, match=r"has no figure 'estimate'; it has .*; did you mean 'estimates'\?"
    ):
        smoke.figure("estimate")
    assert smoke.store is not None
    assert orchestrator.open(smoke.run, smoke.store.location).page == figure.path.parent.parent / "report.html"


def test_notebook_shows_first_rows_or_certificate(tmp_path: Path) -> None:
    run = orchestrator.run("toys", parts=3, store=tmp_path, report=False, **TOYS)
    notebook_html = run._repr_html_()
    assert re.findall("<th>(.*?)</th>", notebook_html) == [
        "metric",
        "setting",
        "estimate",
        "95 % interval",
        "n",
        "null",
        "p",
    ]
    assert re.findall("<td>(.*?)</td>", notebook_html) == ["sum", "", "3", "", "3 parts", "", ""]
    assert f"Run {run.run}, finished: 4 of 4 jobs stored." in notebook_html
    folder = tmp_path / "runs" / run.run
    page = '<!doctype html>\n<html><head><style>p {}</style>\n</head><body>{}<section id="else">More</section>'
    certificate = '<section aria-labelledby="certificate"><p>It is "here".</p></section>'
    (folder / "report.html").write_text(page.replace("{}", certificate, 2).replace("p " + certificate, "p {}"))
    frame = orchestrator.open(folder)._repr_html_()
    inside = html.unescape(re.findall(r'srcdoc="(.*?)"', frame, re.DOTALL)[0])
    assert certificate in inside
    assert "<style>p {}</style>" in inside
    assert "More" not in inside
    assert 'sandbox=""' in frame


def test_python_arguments_override_file_settings(tmp_path: Path) -> None:
    file = tmp_path / "sum.yaml"
    fields = f"{{parts: 3, trouble: raise, at: 1, folder: {tmp_path}}}"
    file.write_text(f"audit: toys\nset: {fields}\nexecution: {{tolerate: 1, fail_fast: true, report: false}}\n")
    from_file = orchestrator.run(file, store=tmp_path / "kept", fail_fast=False, **TOYS)
    assert from_file.summary["estimate"].to_pylist() == [2.0]
    assert from_file.page is None
    overridden = orchestrator.run(file, store=tmp_path / "said", fail_fast=False, tolerate=0, report=True, **TOYS)
    with pytest.raises(orchestrator.EngramError, match="has no rows in 'summary' yet"):
        assert overridden.summary
    assert overridden.page is not None


def test_settings_and_configurations_describe_the_same_run(tmp_path: Path) -> None:
    settings = orchestrator.UniqueFeature("smoke", canaries=4)
    by_name = orchestrator.plan("unique_feature", preset="smoke", canaries=4, store=tmp_path)
    assert orchestrator.plan(settings, store=tmp_path) == by_name
    assert repr(settings) == "UniqueFeature(preset='smoke', canaries=4)"
    assert settings == orchestrator.UniqueFeature("smoke", canaries=4) != orchestrator.UniqueFeature("smoke")
    parameters = inspect.signature(orchestrator.UniqueFeature).parameters
    assert parameters["canaries"].annotation == "int"
    assert {"UniqueFeature", "Toys"} < set(dir(orchestrator))


def test_configuration_of_a_report_starts_the_same_or_another_run(smoke: Report) -> None:
    assert smoke.store is not None
    again = orchestrator.run(smoke.config, store=smoke.store.location, report=False, **TOYS)
    assert (again.run, again.jobs["done"]) == (smoke.run, 0)
    other = orchestrator.plan(dataclasses.replace(smoke.config, seed=1), store=smoke.store.location, address="none")
    assert (other["planned"], other["stored"]) == (smoke.jobs["planned"], 0)


def test_report_and_list_of_runs_show_the_same_effect(smoke: Report) -> None:
    assert smoke.store is not None
    assert smoke.verdict is not None
    assert smoke.effect == smoke.verdict.effect
    assert set(smoke.tables) == set(smoke.roots)
    effect = json.loads(smoke.summary.schema.metadata[b"engram.effect"])
    assert (effect["text"], effect["unit"]) == (smoke.effect, "nats")
    assert b"nothing is memorised" in smoke.summary.schema.field("null").metadata[b"meaning"]
    runs = engram.runs(smoke.store.location)
    row = runs.slice(0, 1).to_pylist()[0]
    assert (row["run"], row["effect"], row["answer"]) == (smoke.run, smoke.effect, smoke.verdict.answer)
    assert (row["estimate"], row["low"], row["high"]) == (effect["estimate"], effect["low"], effect["high"])
    assert all(field.metadata[b"meaning"] for field in runs.schema)
    assert not [name for name in (*runs.schema.names, *smoke.summary.schema.names) if not name.isidentifier()]


def test_sweep_has_one_result_per_cell(tmp_path: Path) -> None:
    run = orchestrator.run("toys", store=tmp_path, report=False, sweep={"parts": [2, 3]}, **TOYS)
    opened = orchestrator.open(run.run, tmp_path)
    assert [cell.run for cell in run.cells] == [cell.run for cell in opened.cells]
    assert [cell.summary["estimate"][0].as_py() for cell in opened.cells] == [1.0, 3.0]
    assert [(row["parts"], row["estimate"]) for row in opened.summary.to_pylist()] == [(2, 1.0), (3, 3.0)]
    assert opened.verdict is None
    assert opened.config is None
    assert set(opened.tables) == set(opened.cells[0].tables)
    assert run.run in opened._repr_html_()


def test_interrupted_run_opens_without_results(tmp_path: Path) -> None:
    stopped = orchestrator.run("toys", parts=3, store=tmp_path, report=False, stop_after="0.0001s", **TOYS)
    opened = orchestrator.open(stopped.run, tmp_path)
    assert opened.state == "interrupted"
    assert opened.exit_code == 130
    assert opened.verdict is None
    with pytest.raises(orchestrator.EngramError, match="has no rows in 'summary' yet"):
        assert opened.summary


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("run('toyz', address='none')", "unknown audit 'toyz'"),
        ("run('toys', part=3, address='none')", "unknown field 'part'"),
        ("run('toys', parts=0, address='none')", "parts is 0; it must be at least 1"),
        ("Toys(part=3)", "unknown field 'part'"),
        ("Toys('presett')", "unknown preset 'presett' of toys"),
        ("run(orchestrator.Toys(parts=3), parts=4)", "parts is set in Toys(parts=3) and beside it"),
        ("run(orchestrator.Toys(parts=3), preset='x')", "preset is 'x', but Toys(parts=3) has its own"),
        ("python_calls.runs()", "there is no store at ./engram-store; run an audit first"),
        ("open('nothing-1')", "there is no store at ./engram-store; run an audit first"),
        ("open('/nowhere/runs/nothing-1')", "there is no store at /nowhere"),
        ("open('page.html')", "page.html is not a folder or page of a run"),
        ("run('toys', parts=2, address='none', report=False).table('sums')", "has no table 'sums'"),
        ("run(5)", "audit is 5; it must be the name of an audit, or the path of a YAML file"),
        ("run('toys', preset=5)", "preset is 5; it must be the name of a preset"),
        ("run('toys', sweep={'seed': []})", "sweep.seed has no values"),
        ("run('toys', sweep={'seed': 3})", "sweep.seed is 3; it must be a list of values, as [3]"),
        ("run('toys', sweep={'seed': '3,4'})", "sweep.seed is '3,4'; it must be a list of values, as [3,4]"),
        ("run('toys', sweep=['seed'])", "sweep is ['seed']; it must be a mapping"),
        ("run('toys', together='x')", "together is 'x'; it must be auto, or 1 or more"),
        ("run('toys', tolerate='x')", "tolerate is 'x'; it must be a whole number"),
        ("run('toys', report=3)", "report is 3; it must be true or false"),
        ("run('toys', address=3)", "address is 3; it must be text"),
        ("run('toys', store=3)", "store is 3; it must be the path or URI of a store"),
        ("run('toys', observe=3)", "observe is 3; it must be a function of one event"),
        ("open(5)", "run is 5; it must be the name of a run, or the path of its folder or page"),
        ("open('')", "run is ''; it must be the name of a run"),
        ("open('toys', store=b'here')", "store is b'here'; it must be the path or URI of a store"),
        ("open('x' * 5000)", "there is no store at ./engram-store"),
    ],
)
def test_errors_match_command_line_with_one_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.html").touch()
    monkeypatch.delenv("ENGRAM_STORE", raising=False)
    with pytest.raises(orchestrator.EngramError) as raised:
        eval(f"orchestrator.{script}")
    assert line in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    frames = []
    for frame in traceback.extract_tb(raised.value.__traceback__):
        if "/orchestrator/" in frame.filename:
            frames.append(frame)
    package_frames = [frame for frame in frames if "/tests/" not in frame.filename]
    assert [frame.name for frame in package_frames] == ["wrapper"]
    assert raised.value.__suppress_context__


def test_importing_is_light_and_opening_loads_nothing_heavy(tmp_path: Path) -> None:
    run = Here(tmp_path).json("run", "toys", "parts=2", "--address", "none")["run"]
    script = (
        "import sys, orchestrator; light = [m for m in ('pyarrow', 'typer', 'jinja2') if m in sys.modules]; "
        f"found = orchestrator.open({run!r}); found.verdict, found.summary, found._repr_html_(); "
        "print(light, [m for m in ('torch', 'scipy', 'ray', 'mlflow', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": PATHS}, check=True)
    assert done.stdout.strip() == "[] []"


def test_opened_search_has_tables_and_recommendation(searched: FinishedSearch) -> None:
    opened = orchestrator.open(searched.store / "runs" / searched.name)
    assert opened.state == "finished"
    assert (opened.search.made if opened.search else None) == 4
    assert opened.verdict is not None
    recommendation = searched.printed["recommendation"]
    assert opened.verdict.answer == recommendation["answer"]
    assert opened.verdict.sentence == recommendation["sentence"]
    assert opened.verdict.tone == "cleared"
    assert recommendation["difference"] == {name: getattr(opened.verdict, name) for name in ("estimate", "low", "high")}
    assert opened.verdict.setting == {"rate": "0.006", "wide": "false"}
    assert (opened.table("trials").num_rows, all(opened.table("front")["front"].to_pylist())) == (7, True)
    assert {cell.run for cell in opened.cells} == set(opened.table("trials")["run"].to_pylist())
    assert "Winner" not in opened._repr_html_()
    assert html.escape(recommendation["sentence"]) in opened._repr_html_()


def test_python_search_continues_command_line_search(
    searched: FinishedSearch, tmp_path: Path, ray_cluster: Any
) -> None:
    search_copy = searched.copy_to(tmp_path)
    script = f"""
import orchestrator
over = {{"rate": [0.006, 0.01], "wide": [False, True]}}
here = dict(store={str(search_copy.store)!r}, mlflow="off", report=False, address={ray_cluster.address!r})
found = orchestrator.search("tunable", over=over, noise=0.01, sampler="grid", give_up=0.1, **here)
from orchestrator.searches import searching  # the package, whose name the function has
print(found.run, found.state, found.verdict.answer, found.verdict.setting["rate"], found.note == "")
"""
    stored_results = sorted(search_copy.store.glob("results/*/*.arrow"))
    done = Shell(tmp_path).script(script)
    assert done.stdout.strip() == f"{search_copy.name} finished recommended 0.006 True", done.stderr
    assert stored_results == sorted(search_copy.store.glob("results/*/*.arrow"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"over": 3}, "over is 3; it must be a mapping"),
        ({"over": {"rate": "1..0"}}, "over rate is 1..0; the first end must be below the second"),
        ({"over": {"rate": [0.01]}}, "over rate has only the value 0.01"),
        ({"over": {"rat": [1, 2]}}, "unknown field 'rat'"),
        ({"trials": "many"}, "trials is 'many'; it must be a whole number"),
        ({"sampler": "gird"}, "did you mean 'grid'"),
        ({"rungs": [4, 2]}, "it must be two or more numbers of epochs, ascending"),
        ({"budget": "soon"}, "'soon' is not a duration"),
        ({"observe": 1}, "observe is 1; it must be a function"),
    ],
)
def test_invalid_search_is_refused_in_one_line(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(orchestrator.SpecError) as refused:
        orchestrator.search("tunable", **{"over": {"rate": "0.1..1"}, "store": tmp_path / "store"} | arguments)
    assert message in str(refused.value)
    assert not (tmp_path / "store").exists()
