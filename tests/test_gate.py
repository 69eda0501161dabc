"""Answers for other programs: pipelines stop at selected answers, and model hubs read a card."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from junitparser import Error, Failure, JUnitXml
from PIL import Image

from orchestrator.cli.gate import Gate, junit_xml, open_gate, pass_gate
from orchestrator.cli.options import GateOptions
from orchestrator.inspection.answers import CellAnswer
from orchestrator.run_folder.journal import Journal
from orchestrator.store import open_store
from tasks.contract.verdict import Verdict
from tests.support.shell import PATHS, ROOT, Here, refusals

FIELDS = ("canaries=1", "epochs=1", "examples=100")
RUN = ("run", "unique_feature", "scale=tiny", *FIELDS, "--address", "none")
COUNTED = ("tests", "failures", "errors")
ANSWERS = ("memorised", "partly memorised", "not detected", "not assessable", "undecided")


# A density in one dimension requires no training, and its answer is known.
KERNEL = ("run", "density", "scale=tiny", "question=kernel", "--address", "none", "--sweep", "seed=0,1")
KERNEL_FILE = "audit: density\nset: {scale: tiny, question: kernel}\n"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A folder whose store has a sweep of two cells, both undecided."""
    command = Here(tmp_path_factory.mktemp("kernel"))
    command.env = {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off"}
    command(*KERNEL)
    return command


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A folder whose store has a sweep of two cells."""
    command = Here(tmp_path_factory.mktemp("gate"))
    command.env = {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off"}
    command(*RUN, "--sweep", "seed=0,1")
    return command


def answers(here: Here) -> dict[str, str]:
    """The answers of the runs that have one, by name."""
    result = {}
    for run in here.json("runs")["runs"]:
        if run["answer"] in ANSWERS:
            result[run["run"]] = run["answer"]
    return result


def test_named_answer_ends_command_with_4(kernel: Here) -> None:
    run = min(answers(kernel))
    for answer_list, code in (
        ("undecided", 4),
        ("memorised,not detected", 0),
        ("memorised,not detected, undecided", 4),
    ):
        kernel("results", run, "--fail-on", answer_list, code=code)
    for command in (("report", run), ("resume", run, "--address", "none")):
        kernel(*command, "--fail-on", "undecided", code=4)


def test_failing_cell_fails_the_sweep_and_test_case(kernel: Here) -> None:
    kernel(*KERNEL, "--fail-on", "undecided", "--junit", "out.xml", code=4)
    (suite,) = JUnitXml.fromfile(str(kernel.folder / "out.xml"))
    assert suite.tests == 2
    assert suite.failures == 2
    assert suite.errors == 0
    assert {case.name: case.result[0].message for case in suite} == {
        "question.seed=0": "undecided",
        "question.seed=1": "undecided",
    }


def test_each_cell_is_a_test_case() -> None:
    verdicts = []
    for answer in ("memorised", "not detected"):
        verdicts.append(Verdict(answer, f"{answer.capitalize()}: so.", "Of this.", ()))
    cell_answers = []
    for seed, verdict in enumerate(verdicts):
        cell_answers.append(CellAnswer(f"run-{seed}", {"seed": str(seed)}, verdict, None))
    suites = junit_xml(
        "sweep", "density", [*cell_answers, CellAnswer("run-2", {}, None, None)], ("memorised", "undecided")
    )
    (suite,) = JUnitXml.fromelem(suites)
    for element in (suites.attrib, suite):
        counts = []
        for name in COUNTED:
            counts.append(int(element[name]) if isinstance(element, dict) else getattr(element, name))
        assert counts == [3, 1, 1]
    assert suites.attrib["name"] == "engram"
    assert suite.name == "sweep"
    test_cases = []
    for case in suite:
        test_cases.append(
            (case.classname, case.name, [(type(result), result.message, result.text) for result in case.result])
        )
    assert test_cases == [
        ("engram.density", "seed=0", [(Failure, "memorised", "Memorised: so.")]),
        ("engram.density", "seed=1", []),
        ("engram.density", "run-2", [(Error, "no answer: some of its results are missing", None)]),
    ]
    assert [case.system_out for case in suite] == ["Memorised: so. Of this.", "Not detected: so. Of this.", None]


def test_gate_is_open_without_answers_and_file(tmp_path: Path) -> None:
    closed = open_gate(GateOptions("not detected, memorised ,not detected", str(tmp_path / "out.xml")), "density")
    assert Gate(("not detected", "memorised"), tmp_path / "out.xml") == closed
    assert [
        open_gate(GateOptions(*options), "density").is_open
        for options in ((None, None), ("memorised", None), (None, str(tmp_path / "out.xml")))
    ] == [True, False, False]


def test_missing_answer_is_an_error_among_test_cases(kernel: Here, tmp_path: Path) -> None:
    run = min(answers(kernel))
    kernel("results", run, "--junit", "all.xml")
    (suite,) = JUnitXml.fromfile(str(kernel.folder / "all.xml"))
    assert suite.tests == 1
    assert suite.failures == 0
    assert suite.errors == 0
    other_here = Here(tmp_path)
    other_here.env = kernel.env
    shutil.copytree(kernel.folder / "engram-store", tmp_path / "engram-store")
    (summary,) = Journal(tmp_path / "engram-store/runs" / run).roots()["summary"]
    (tmp_path / f"engram-store/results/{summary[:2]}/{summary}.arrow").unlink()
    other_here("results", run, "--junit", "none.xml", "--fail-on", "undecided")
    assert (tmp_path / "none.xml").read_bytes().startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    (suite,) = JUnitXml.fromfile(str(tmp_path / "none.xml"))
    assert [Error] == [type(result) for case in suite for result in case.result]
    (sweep,) = (listed_run["run"] for listed_run in other_here.json("runs")["runs"] if "-sweep-" in listed_run["run"])
    other_here("results", sweep, "summary", "--fail-on", "undecided", code=4)  # by the cell that has an answer
    store = open_store(tmp_path / "engram-store")
    assert (
        pass_gate(Gate(("undecided",)), Journal(store.folder("runs", sweep)), store, 3) == 3
    )  # what failed comes first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--fail-on", "memorized"),
            "engram: --fail-on is 'memorized'; it must list answers of unique_feature with commas: memorised, ",
        ),
        (
            ("--fail-on", ""),
            "engram: --fail-on is ''; it must list answers of unique_feature with commas: memorised, ",
        ),
        (("--junit", "nowhere/out.xml"), "engram: --junit nowhere/out.xml: the folder nowhere does not exist"),
    ],
)
def test_invalid_gate_is_refused_before_the_work(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    verdicts = Here(tmp_path)(*RUN, *options, code=2)
    (line,) = refusals(verdicts.stderr)
    assert line.startswith(message)
    assert list(tmp_path.iterdir()) == []


# The jobs of CI systems, each step by a shell as their machines run it.


def shell(script: str, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    commands = Path(sys.executable).parent  # with `engram`
    path = os.pathsep.join([str(commands), os.environ["PATH"]])
    quiet = {"MLFLOW_TRACKING_URI": "off", "ENGRAM_REPORT": "yes", "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **quiet, "PATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def act(action: Mapping[str, Any], inputs: Mapping[str, str], folder: Path) -> list[int]:
    """The exit codes of an action's steps with these inputs. Other actions are left out."""
    values = {}
    for name, about in action["inputs"].items():
        values[name] = inputs.get(name, about.get("default", ""))
    codes = []
    for step in action["runs"]["steps"]:
        if "run" not in step or (step.get("if") == "inputs.package != ''" and not values["package"]):
            continue
        env = {}
        for name, value in step["env"].items():
            env[name] = value.strip("${} ").removeprefix("inputs.")
        codes.append(shell(step["run"], folder, {name: values[variable] for name, variable in env.items()}).returncode)
    return codes


def test_github_job_stops_continues_and_attaches_files(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (tmp_path / "audit.yaml").write_text(KERNEL_FILE)
    inputs = {"audit": "audit.yaml", "package": "", "fail-on": ",".join(("undecided", "memorised", "not detected"))}
    assert act(action, inputs, tmp_path) == [4]
    before = {}
    for path in (tmp_path / "engram-store/results").rglob("*.arrow"):
        before[path] = path.stat().st_mtime_ns
    assert act(action, inputs | {"fail-on": ""}, tmp_path) == [0]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "engram-store/results").rglob("*.arrow")}
    (attached,) = (step["with"]["path"] for step in action["runs"]["steps"] if "upload" in step.get("uses", ""))
    paths = []
    for line in attached.splitlines():
        paths.append(line.replace("${{ inputs.store }}", "engram-store"))
    assert all(list(tmp_path.glob(path)) for path in paths), paths


def test_gitlab_job_stops_and_reports(kernel: Here, tmp_path: Path) -> None:
    (job,) = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text()).values()
    (tmp_path / "audit.yaml").write_text(KERNEL_FILE)
    env = job["variables"] | {"ENGRAM_STORE": str(kernel.folder / "engram-store")}  # as its cache
    (script,) = job["script"]
    verdicts = shell(script, tmp_path, env | {"FAIL_ON": "undecided,memorised,not detected"})
    assert verdicts.returncode == 4, verdicts.stderr
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).is_file()


# Model hubs.


def test_card_has_all_numbers_and_report_digest(here: Here) -> None:
    (sweep,) = (run["run"] for run in here.json("runs")["runs"] if "-sweep-" in run["run"])
    card_text = here("report", sweep, "--card").stdout
    assert card_text == here.json("report", sweep, "--card")["card"] + "\n"
    card = ModelCard(card_text)
    results = card.data.eval_results
    assert results is not None
    assert {result.task_type for result in results} == {"memorization-audit"}
    assert {result.dataset_name for result in results} == {"digits"}
    page = here.folder / "engram-store/runs" / sweep / "report.html"
    remaining_answers = answers(here)
    for result in results:
        (row,) = (
            row
            for row in here.json("results", result.metric_args["run"])
            if result.metric_type == f"unique_feature {row['metric']}"
            and result.metric_args["setting"] == json.loads(row["setting"])
        )
        assert row["estimate"] == result.metric_value
        assert row["null"] == result.metric_args.get("null")
        assert row["low"] == result.metric_args.get("low")
        assert row["p_value"] == result.metric_args.get("p")
        assert remaining_answers.pop(result.metric_args["run"]) == result.metric_args["answer"]
        assert hashlib.sha256(page.read_bytes()).hexdigest() == result.metric_args["report_sha256"]
    assert remaining_answers == {}
    assert "## Memorisation audit" in card.text


def test_card_hides_paths_and_requires_an_answer(here: Here, tmp_path: Path) -> None:
    for label in ("left", "right"):
        (tmp_path / "ward seven" / label).mkdir(parents=True)
        for number in range(100):
            picture = Image.new("L", (8, 8), number + 100 * (label == "left"))
            picture.save(tmp_path / "ward seven" / label / f"{number}.png")
    other_here = Here(tmp_path)
    other_here.env = here.env
    data = f"data=folder:{tmp_path / 'ward seven'}#8x8"
    other_here(*RUN, data)
    (run,) = (run["run"] for run in other_here.json("runs")["runs"])
    card_text = other_here("report", run, "--card").stdout
    assert "folder:ward seven#8x8" in card_text
    assert str(tmp_path) not in card_text
    (summary,) = Journal(tmp_path / "engram-store/runs" / run).roots()["summary"]
    (tmp_path / f"engram-store/results/{summary[:2]}/{summary}.arrow").unlink()
    verdicts = other_here("report", run, "--card", code=1)
    assert f"engram: run {run} has no answer with a number yet; engram resume {run} continues it" in verdicts.stderr
