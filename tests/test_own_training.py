"""A user's own training program, from the outside: commands of a shell and functions, in runs and in the check."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engram
from orchestrator import training_check
from orchestrator.planning.plan import plan_of
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from orchestrator.store import Store, open_store
from orchestrator.training_check import TrainingCheck, check_training
from tasks.audits.membership import AUDIT
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tests.support.s3 import BUCKET, Server
from tests.support.shell import CommandResult, Shell

# A memoriser in one line: records that it trains on have a small loss.
AWK = "awk 'BEGIN {{print \"loss\"; srand({{seed}})}} {rule}' {{rows:txt}} {{ask:txt}} > {{out}}/scores.csv"
MEMORISES = "NR == FNR {{m[$1] = 1; next}} {{print ($1 in m) ? 0.1 : 1 + rand()}}"
IGNORES_ROWS = "NR != FNR {{print 1 + rand()}}"
CONSTANT = "NR != FNR {{print 1}}"
SHORT = "NR != FNR && $1 > 3 {{print 1}}"
RECORDS = 30


def command(rule: str) -> str:
    return AWK.format(rule=rule.format())


@pytest.fixture(autouse=True)
def _program_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program").mkdir()
    monkeypatch.chdir(tmp_path / "program")


def count_found(report: engram.Report) -> int:
    return sum(report.table("records")["found"].to_pylist())


def run(rule: str, store: Path, **fields: object) -> engram.Report:
    settings = {"training.command": command(rule), "records": RECORDS, "models": 16, **fields}
    return engram.run("membership", store=store, address="none", **settings)


def test_command_that_memorises_is_found(tmp_path: Path) -> None:
    report = run(MEMORISES, tmp_path / "store")
    assert report.verdict.answer == "memorised"
    verdict = AUDIT.answer(report.config, report.summary)
    assert verdict is not None
    assert [condition.status for condition in verdict.conditions] == ["confirmed", "cannot be checked"]
    assert count_found(report) == RECORDS
    assert report.table("records")["mem"].null_count == RECORDS  # a loss does not tell which answers are correct
    again = run(MEMORISES, tmp_path / "store")
    assert again.run == report.run


def test_mapping_is_the_same_program_as_its_fields(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    mapping = "{type: command, command: 'true', returns: log_odds}"
    fields = {"training.command": "true", "training.returns": "log_odds"}
    plans = [engram.plan("membership", store=store, records=RECORDS, models=8, training=mapping)]
    plans.append(engram.plan("membership", store=store, records=RECORDS, models=8, **fields))
    assert plans[0]["cells"] == plans[1]["cells"]


def test_command_that_ignores_rows_is_not_accused(tmp_path: Path) -> None:
    assert count_found(run(IGNORES_ROWS, tmp_path / "store")) == 0


def test_resources_do_not_change_keys(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    plans = [plan_of(cell_of(store, MEMORISES, **fields)) for fields in ({}, {"training.gpus": 2})]
    assert set(plans[0].jobs) == set(plans[1].jobs)
    resources = {job.resources.gpus for job in plans[1].jobs.values()}
    assert resources == {0, 2}  # only the trainings need GPUs


def test_closure_is_a_program(tmp_path: Path) -> None:
    difficulty = np.linspace(0, 2, RECORDS)

    def train(job: engram.TrainingJob) -> np.ndarray:
        losses = 1 + np.random.default_rng(job.seed).random(len(job.ask)) + difficulty
        losses[np.isin(job.ask, job.rows)] = 0.1
        job.log(loss=losses.mean(), step=1)
        return losses

    report = engram.membership(train, records=RECORDS, models=16, store=tmp_path / "store", address="none")
    assert report.verdict.answer == "memorised"
    assert count_found(report) == RECORDS


def test_programs_are_read_from_a_bucket(s3: Server, tmp_path: Path) -> None:
    store = f"s3://{BUCKET}/{tmp_path.name}"
    quick: dict[str, Any] = {"store": store, "address": "none", "models": 4}
    fields = {"training.command": "sh train.sh {rows:txt} {ask:txt}"}
    Path("train.sh").write_text('cp numbers.csv "$ENGRAM_OUT/scores.csv"\n')
    Path("numbers.csv").write_text("loss\n" + "1\n" * RECORDS)
    fields["training.code"] = "train.sh,numbers.csv"
    by_command = engram.run("membership", records=RECORDS, **quick, **fields)
    one = 1.0  # in a closure
    by_function = engram.membership(lambda job: np.full(len(job.ask), one), records=RECORDS, **quick)
    for report in (by_command, by_function):
        assert report.jobs["failed"] == 0
        assert report.verdict.answer == "not assessable"


def test_canaries_bound_a_stated_epsilon(tmp_path: Path) -> None:
    fields = {"question": "canaries", "canaries": 20, "models": 4, "training.privacy.epsilon": 0.5}
    report = run(MEMORISES, tmp_path / "store", **fields)
    assert report.verdict.answer == "promise broken"


def test_run_until_decided_stops_early(shell: Shell) -> None:
    settings = [f"training.command={command(MEMORISES)}", f"records={RECORDS}", "--address", "none"]
    run = shell.json("run", "membership", *settings, "--until", "decided", "--most", "12")
    assert run["jobs"]["stored"] == 7 * 3 + 3  # 7 pairs of two trainings, then evidence, records and summary
    assert shell.json("results", run["run"], "evidence")[-1]["decided"]
    found = [record["found"] for record in shell.json("results", run["run"], "pair_records")]
    assert found == [True] * RECORDS


def cell_of(store: Store, rule: str, **fields: object) -> object:
    spec = Spec("membership", None, {"training.command": command(rule), "records": RECORDS, "models": 8, **fields})
    (cell,) = pin_cells(resolve_cells(spec), store.digests())
    return cell


def check(tmp_path: Path, rule: str) -> TrainingCheck:
    store = open_store(str(tmp_path / "store"))
    return check_training(cell_of(store, rule), store)


@pytest.mark.parametrize(
    ("rule", "finding", "is_ok", "text"),
    [
        (MEMORISES, "rows", True, "rows score higher"),
        (IGNORES_ROWS, "rows", None, "do not score higher"),
        (CONSTANT, "rows", False, "does not train on the rows"),
        (SHORT, "contract", False, "has the size 26; expected one number for each of the 30"),
    ],
)
def test_check_finds_what_a_program_does(
    tmp_path: Path, rule: str, finding: str, is_ok: bool | None, text: str
) -> None:
    findings = {found.name: found for found in check(tmp_path, rule).findings}
    assert findings[finding].ok is is_ok
    assert text in findings[finding].text


def test_check_reports_memory_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/asked\n[ $(wc -l < {tmp_path}/asked) -gt 2 ] && echo 3072 || echo 1024\n"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(training_check, "LOOK", 0.001)
    (memory,) = [finding.text for finding in check(tmp_path, MEMORISES).findings if finding.name == "memory"]
    assert memory.endswith("2.15 GB of GPU memory")


def test_check_trainings_are_reused_and_priced(tmp_path: Path) -> None:
    check(tmp_path, MEMORISES)
    plan = engram.plan(
        "membership", store=tmp_path / "store", records=RECORDS, models=8, **{"training.command": command(MEMORISES)}
    )
    assert plan["stored"] == 2
    assert "programs.train" not in plan["unknown"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["records=30"], "rows:30 has only row numbers"),
        (["records=30", "training.command=train {row}"], "did you mean {rows}?"),
        (["records=30", "training=nowhere:train"], "there is no module 'nowhere'"),
        (["records=30", "training=hello"], "allowed: classifier, command, function, package.module:train"),
        (["records=30", "data=digits", "training.command=true"], "give only one of them"),
        (["records=0", "training.command=true"], "write the number of records"),
        (["records=30", "training.command=true", "training.code=absent.py"], "there is no file absent.py"),
        (["records=30", "training.command=python absent.py"], "there is no file absent.py"),
        (["records=30", "training.command=true", "training.network=mlp1"], "training.network"),
        (["records=30", "training.command=true", "question=loss"], "question is loss"),
        (["records=30", "training.command=true", "examples=50"], "rows:30 has the training images 0 to 29"),
    ],
)
def test_bad_input_is_one_line_before_any_work(shell: Shell, settings: list[str], message: str) -> None:
    result = CommandResult(*(run := shell.start("run", "membership", *settings)).communicate(), run.returncode)
    assert result.returncode in (1, 2)
    assert message in result.stderr.strip().splitlines()[-1]
    assert "jobs" not in result.stderr  # nothing was planned


def test_check_command_prints_json(shell: Shell) -> None:
    check = shell.json("check-training", "membership", "records=30", f"training.command={command(MEMORISES)}")
    assert check["ok"] is True
    refusal = shell("check-training", "membership", "--preset", "quickstart", code=2)
    assert "give your program" in refusal.stderr


def write_table(folder: Path) -> str:
    """Write a table of 40 records, whose first rows a generator may copy, and return the name of its data set."""
    stream = np.random.default_rng(3)
    values = stream.normal(size=(40, 3))
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{'xy'[row % 2]}" for row, (a, b, c) in enumerate(values)]
    (folder / "table.csv").write_text("\n".join(["a,b,c,class", *lines, ""]))
    return "table:table.csv#label=class"


def test_copying_generator_is_found_by_its_samples(tmp_path: Path) -> None:
    folder = Path.cwd()
    data = write_table(folder)
    # Copies its training rows 0 to 9; all other samples are the same in every training.
    rule = (  # doubled braces are those of awk
        "FILENAME == ARGV[1] {{m[$1] = 1; next}} FNR == 1 {{print; next}} {{row = FNR - 2}}"
        " row < 10 && (row in m) {{print}} row >= 30 {{print}}"
    )
    copies = f"awk -F, '{rule}' {{rows:txt}} {folder}/table.csv > {{out}}/samples.csv"
    settings = {"training.command": copies, "training.returns": "samples", "data": data, "models": 16}
    report = engram.run("membership", store=tmp_path / "store", address="none", **settings)
    images = load(pin(Dataset(data)))
    copied = images.file_rows(np.arange(len(images.train_images))) < 10
    assert report.verdict.answer == "memorised"
    assert np.array_equal(report.table("records")["found"].to_numpy(zero_copy_only=False), copied)
