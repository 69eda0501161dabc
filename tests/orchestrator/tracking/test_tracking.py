"""MLflow contains each run exactly once, despite kills, resumes, second starts and server failures."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from orchestrator.tracking import facts
from tasks.contract.schemas import SUMMARY
from tests.conftest import DatabaseCopier
from tests.support.mlflow_server import MlflowServer, client, name_of, tracked
from tests.support.ports import free_port
from tests.support.shell import Shell
from tests.support.waiting import HANGING

PROGRESS = ("system/jobs done", "system/jobs failed", "system/models per minute")
TOYS = ("run", "toys", "--address", "none")


def shell(folder: Path, fresh: bool = False, **env: str) -> Shell:
    """A shell in which runs are tracked as by default."""
    folder.mkdir(exist_ok=True)
    new_shell = Shell(folder, fresh)
    new_shell.env.pop("MLFLOW_TRACKING_URI")
    new_shell.env |= env
    return new_shell


def database(engram: Shell) -> Any:
    return client(f"sqlite:///{engram.folder}/engram-store/mlflow/mlflow.db")


def steps(mlflow: Any, run: Any, metric: str) -> list[int]:
    return [entry.step for entry in mlflow.get_metric_history(run.info.run_id, metric)]


def marked_processes(mark: str) -> list[str]:
    """The processes that carry a mark in their environment."""
    command_lines = []
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            with suppress(OSError):
                if mark.encode() in (proc / "environ").read_bytes():
                    command_lines.append((proc / "cmdline").read_text().replace("\0", " "))
    return command_lines


def only_run(mlflow: Any, status: str) -> Any:
    """The only run, which must have this status."""
    runs = tracked(mlflow)
    assert [status] == [run.info.status for run in runs]
    return runs[0]


@pytest.mark.slow
def test_killed_and_resumed_run_is_tracked_once(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    engram = shell(tmp_path / "a folder of mine", fresh=True, TRACKED=f"mark-{os.getpid()}-{time.time()}")
    (engram.folder / "tasks.py").write_text("raise ImportError('this is the user\\'s own')\n")
    command = (*TOYS, "parts=80", "trouble=wait", "at=40", f"folder={engram.folder}")
    copy_database(engram.folder)
    first = engram.start(*command)
    engram.await_results(40, first)
    (name,) = [entry.name for entry in (engram.folder / "engram-store" / "runs").glob("[!.]*")]
    receipt = engram.folder / "engram-store" / "runs" / name / "mlflow.json"
    engram.until(receipt.exists, first)
    mlflow = database(engram)
    engram.until(lambda: [run.info.status for run in tracked(mlflow)] == ["RUNNING"], first)
    alive = only_run(mlflow, "RUNNING")
    assert json.loads(receipt.read_text())["address"] == engram.json("status")["mlflow"]
    assert "already has a driver" in engram(*command, code=1).stderr
    first.kill()
    first.communicate()
    engram.until(lambda: [run.info.status for run in tracked(mlflow)] == ["KILLED"])
    engram.until(lambda: marked_processes(engram.env["TRACKED"]) == [])
    engram.go()
    engram.fresh = False
    for _ in range(5):
        report = engram.json("resume", name, "--address", "none")
    assert report["state"] == "finished"
    assert report["jobs"]["stored"] == 81
    assert report["mlflow"] == f"sqlite:///{engram.folder}/engram-store/mlflow/mlflow.db"
    run = only_run(mlflow, "FINISHED")
    assert alive.info.run_id == run.info.run_id
    for metric in PROGRESS[:2]:
        history = mlflow.get_metric_history(run.info.run_id, metric)
        assert list(range(len(history))) == [entry.step for entry in history]
        assert sorted(entry.timestamp for entry in history) == [entry.timestamp for entry in history]
    assert len(history) >= 4
    assert tuple(run.data.metrics[name] for name in (*PROGRESS[:2], "effect")) == (81.0, 0.0, 3160.0)
    tags = {"engram.run": name, "engram.kind": "cell", "engram.audit": "toys", "engram.state": "finished"}
    assert tags.items() <= run.data.tags.items()
    assert {"audit": "toys", "parts": "80", "trouble": "wait"}.items() <= run.data.params.items()
    artifact_location = mlflow.get_experiment_by_name("engram").artifact_location
    assert (engram.folder / "engram-store" / "mlflow" / "artifacts").as_uri() == artifact_location
    toys = {"began.log", "computed.log", "go"}
    assert set(os.listdir(engram.folder)) - toys == {"engram-store", "tasks.py"}
    assert set(os.listdir(engram.folder / "engram-store" / "mlflow")) == {"mlflow.db", "artifacts", "id", "lock"}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, copy_database: DatabaseCopier) -> tuple[Shell, dict[str, Any]]:
    """A sweep of two small cells of a real audit, tracked."""
    engram = shell(tmp_path_factory.mktemp("swept"))
    copy_database(engram.folder)
    few = ("--preset", "smoke", "canaries=1", "epochs=1", "--sweep", "learning_rate=1e-3,3e-3", "--address", "none")
    return engram, engram.json("run", "unique_feature", *few)


@pytest.mark.slow
def test_sweep_has_a_parent_and_a_child_each(swept: tuple[Shell, dict[str, Any]]) -> None:
    engram, report = swept
    runs = {name_of(run): run for run in tracked(database(engram))}
    names = [cell["run"] for cell in report["cells"]]
    assert set(runs) == {report["run"], *names}
    parent = runs[report["run"]]
    assert "mlflow.parentRunId" not in parent.data.tags
    assert parent.data.tags["engram.kind"] == "sweep"
    assert {runs[name].data.tags["mlflow.parentRunId"] for name in names} == {parent.info.run_id}
    assert [runs[name].data.params["question.training.learning_rate"] for name in names] == ["0.001", "0.003"]
    assert "question.training.learning_rate" not in parent.data.params
    settings = "question.canaries=1, question.training.epochs=1"
    swept_field = "question.training.learning_rate"
    assert parent.info.run_name == f"letter A, smoke, {settings}, sweep of {swept_field}"
    assert [runs[name].info.run_name for name in names] == [f"{swept_field}=0.001", f"{swept_field}=0.003"]
    assert re.fullmatch(r"2 \w+|1 \w+, 1 \w+", parent.data.tags["engram.answer"])
    assert re.fullmatch(r"\S+ to \S+ nats", parent.data.tags["engram.estimate"])
    mlflow = database(engram)
    history = mlflow.get_metric_history(parent.info.run_id, "effect")
    assert [(entry.step, entry.value) for entry in history] == [
        (step, runs[name].data.metrics["effect"]) for step, name in enumerate(names)
    ]
    ids = [quote(json.dumps(runs[name].info.run_id)) for name in names]
    assert f"](#/compare-runs?runs=%5B{'%2C'.join(ids)}%5D&experiments=" in parent.data.tags["mlflow.note.content"]
    assert report["jobs"]["planned"] == parent.data.metrics["system/jobs done"]
    assert {run.info.status for run in runs.values()} == {"FINISHED"}


@pytest.mark.slow
def test_effect_is_a_metric_and_tables_are_complete(swept: tuple[Shell, dict[str, Any]], tmp_path: Path) -> None:
    engram, report = swept
    mlflow = database(engram)
    name = report["cells"][0]["run"]
    (run,) = [run for run in tracked(mlflow) if name_of(run) == name]
    engram("results", name, "summary", "--out", str(tmp_path / "summary.parquet"))
    table = pq.read_table(tmp_path / "summary.parquet")
    rows = table.to_pylist()
    metric = "M_w effect"
    setting = '{"images": "probe"}'
    row = next(row for row in rows if (row["metric"], row["setting"]) == (metric, setting))
    present_columns = {name for name, column in facts.COLUMNS.items() if row[column] is not None}
    assert row["estimate"] == run.data.metrics["effect"]
    assert run.data.tags["engram.effect"] == "M_w effect (images=probe), nats"
    logged = tracked(mlflow)
    cells = [run for run in logged if "mlflow.parentRunId" in run.data.tags]
    # on which a comparison opens
    assert {next(iter(cell.data.metrics)) for cell in cells} == {"effect"}
    curves = {f"learning/{name}" for name in ("train_loss", "validation_loss", "validation_accuracy")}
    assert set(run.data.metrics) == {*PROGRESS, *present_columns, *curves}
    # one epoch
    assert {step for curve in curves for step in steps(mlflow, run, curve)} == {1}
    tags = run.data.tags
    assert tags["engram.measured"] == "M_w effect (images=probe)"
    assert float(tags["engram.estimate"].split(" nats")[0]) == pytest.approx(row["estimate"], rel=0.05)
    table_folder = Path(mlflow.download_artifacts(run.info.run_id, "tables", str(tmp_path)))
    assert table.equals(pq.read_table(table_folder / "summary.parquet"))  # with the run and flat settings
    expected_rows = table.select(SUMMARY.names).to_pylist()  # which the table that MLflow shows leaves out
    json_table = json.loads((table_folder / "summary.json").read_text())
    assert [list(row.values()) for row in expected_rows] == json_table["data"]
    tables = []
    for entry in json.loads(run.data.tags["mlflow.loggedArtifacts"]):
        tables.append(entry["path"])
    assert {f"tables/{name}.json" for name in ("summary", "canary_scores")} <= set(tables)
    assert "| M_w effect | images=probe |" in run.data.tags["mlflow.note.content"]
    # One canary and one epoch: which of the two it is depends on how the processor rounds.
    tones = {"memorised": "accused", "undecided": "open"}
    assert tones[run.data.tags["engram.answer"]] == run.data.tags["engram.tone"]


@pytest.mark.slow
def test_data_sets_of_a_run_are_inputs(swept: tuple[Shell, dict[str, Any]]) -> None:
    engram, report = swept
    runs = {name_of(run): run for run in tracked(database(engram))}
    for name in (report["run"], report["cells"][0]["run"]):
        inputs_by_name = {}
        for entry in runs[name].inputs.dataset_inputs:
            inputs_by_name[entry.dataset.name] = entry
        assert set(inputs_by_name) == {"digits", "photos"}
        digest = json.loads(inputs_by_name["digits"].dataset.source)["digest"]
        assert inputs_by_name["digits"].dataset.digest == digest[:32]
        assert len(digest) == 64
        assert [(tag.key, tag.value) for tag in inputs_by_name["digits"].tags] == [
            ("mlflow.data.context", "question.data")
        ]


@pytest.mark.slow
def test_resume_delivers_new_page_without_images(
    swept: tuple[Shell, dict[str, Any]],
) -> None:
    engram, report = swept
    name = report["cells"][0]["run"]
    folder = engram.folder / "engram-store" / "runs" / name
    (folder / "figures").mkdir()
    (folder / "figures" / "effect.svg").write_text("<svg/>")
    (folder / "report.html").write_text("<p>the page</p>")
    (folder / "report-with-images.html").write_text("<p>secret</p>")
    engram("resume", name, "--address", "none")
    mlflow = database(engram)
    (run,) = [run for run in tracked(mlflow) if name_of(run) == name]
    top = {artifact.path for artifact in mlflow.list_artifacts(run.info.run_id)}
    assert top == {"report.html", "figures", "tables"}
    assert [artifact.path for artifact in mlflow.list_artifacts(run.info.run_id, "figures")] == ["figures/effect.svg"]
    everything = (engram.folder / "engram-store" / "mlflow" / "artifacts").rglob("*")
    assert not [path for path in everything if path.is_file() and b"secret" in path.read_bytes()]
    assert len(tracked(mlflow)) == 3


@pytest.mark.slow
def test_delivered_run_resumes_without_mlflow(swept: tuple[Shell, dict[str, Any]], tmp_path: Path) -> None:
    engram, report = swept
    (tmp_path / "mlflow.py").write_text("raise SystemExit('broken')\n")
    broken = Shell(engram.folder)
    broken.env = engram.env | {"PYTHONPATH": os.pathsep.join([str(tmp_path), engram.env["PYTHONPATH"]])}
    done = broken("resume", report["run"], "--address", "none", "--json")
    assert report["mlflow"] == json.loads(done.stdout)["mlflow"]
    assert "tracked" not in done.stderr
    done = broken(*TOYS, "--preset", "few", "--json")
    assert done.stderr.count("not fully tracked") == 1
    assert json.loads(done.stdout)["mlflow"] is None


@pytest.mark.slow
def test_failed_run_is_marked_and_off_is_silent(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    engram = shell(tmp_path)
    arguments = (*TOYS, "parts=3", "trouble=raise", "at=1", f"folder={tmp_path}")
    quiet = engram(*arguments, "--mlflow", "off", "--json", code=3)
    assert json.loads(quiet.stdout)["mlflow"] is None
    assert "track" not in quiet.stderr
    assert not (tmp_path / "engram-store" / "mlflow").exists()
    copy_database(tmp_path)
    engram("resume", "--address", "none", code=3)
    mlflow = database(engram)
    run = only_run(mlflow, "FAILED")
    assert "engram resume" in run.data.tags["mlflow.note.content"]
    mlflow.delete_experiment(run.info.experiment_id)
    (tmp_path / "mended").touch()
    done = engram("resume", "--address", "none")
    assert done.stderr.count("has been deleted in MLflow") == 1
    done = engram(*TOYS, "--preset", "few", "--mlflow", "carrier-pigeon://roof")
    assert done.stderr.count("not fully tracked") == 1


@pytest.mark.slow
def test_moved_store_keeps_its_tracked_runs(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    engram = shell(tmp_path)
    copy_database(tmp_path)
    name = engram.json(*TOYS, "--preset", "few")["run"]
    (tmp_path / "new place").mkdir()
    (tmp_path / "engram-store").rename(tmp_path / "new place" / "engram-store")
    moved = shell(tmp_path / "new place")
    moved("resume", name, "--address", "none")
    mlflow = database(moved)
    (run,) = tracked(mlflow)
    assert (moved.folder / "engram-store").as_uri() in run.info.artifact_uri
    assert len(mlflow.list_artifacts(run.info.run_id, "tables")) == 2
    assert os.listdir(tmp_path) == ["new place"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(migrated, folder / "server.db")
    mlflow_server = MlflowServer(folder)
    yield mlflow_server
    mlflow_server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "is killed"])
def test_lost_server_delays_no_job(tmp_path: Path, server: MlflowServer, fault: signal.Signals) -> None:
    name = fault.name.lower()
    engram = shell(tmp_path, MLFLOW_TRACKING_URI=server.url, MLFLOW_EXPERIMENT_NAME=name)
    run = engram.start(*TOYS, "parts=24", "trouble=wait", "at=2", f"folder={tmp_path}", f"label={name}")
    receipts = tmp_path / "engram-store" / "runs"
    engram.until(lambda: bool(list(receipts.glob("*/mlflow.json"))), run)
    server.signal(fault)
    engram.go()
    messages = run.communicate(timeout=HANGING)[1]  # it has ended while the server was away
    assert run.returncode == 0, messages
    assert messages.count("not fully tracked") == 1
    (log,) = receipts.glob("*/events.jsonl")
    if fault is signal.SIGKILL:
        server.kill()
        server.start()
    else:
        server.signal(signal.SIGCONT)
    report = engram.json("resume", log.parent.name, "--address", "none")
    mlflow = client(server.url)
    (tracked_run,) = tracked(mlflow, name)
    assert tracked_run.info.status == "FINISHED"
    assert tracked_run.data.metrics["system/jobs done"] == 25.0
    assert tracked_run.data.metrics["effect"] == 276.0
    assert list(range(len(steps(mlflow, tracked_run, PROGRESS[0])))) == steps(mlflow, tracked_run, PROGRESS[0])
    assert sorted(artifact.path for artifact in mlflow.list_artifacts(tracked_run.info.run_id, "tables")) == [
        "tables/summary.json",
        "tables/summary.parquet",
    ]
    experiment = tracked_run.info.experiment_id
    page = f"{server.url}/#/experiments/{experiment}/runs/{tracked_run.info.run_id}?workflowType=machine_learning"
    assert page == report["mlflow"]


@pytest.mark.slow
def test_missing_server_gives_one_line(tmp_path: Path) -> None:
    engram = shell(tmp_path, MLFLOW_TRACKING_URI=f"http://127.0.0.1:{free_port()}")
    done = engram(*TOYS, "--preset", "few")
    assert done.stderr.count("nothing answers at") == 1
    assert "engram resume toys-" in done.stderr


def test_interrupted_run_ends_despite_a_hanging_server(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        engram = shell(tmp_path, MLFLOW_TRACKING_URI=f"http://127.0.0.1:{silent.getsockname()[1]}")
        run = engram.start(*TOYS, "parts=60", "seconds=0.5", "trouble=wait", "at=2", f"folder={tmp_path}")
        engram.await_results(2, run)
        run.send_signal(signal.SIGTERM)
        engram.go()
        messages = run.communicate(timeout=HANGING)[1]
    assert run.returncode == 130
    assert messages.count("not fully tracked") == 1
    assert "engram resume toys-" in messages
