"""Output, metrics and state of jobs are kept in the store, for every kind of store and end of a job."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.errors import StoreError
from orchestrator.executors import kept_services
from orchestrator.executors.calls import Call, Done, Failed, Item, Lost, perform
from orchestrator.run_folder import job_metrics
from orchestrator.run_folder.job_metrics import MetricsWriter, checked_metrics, read_metrics
from orchestrator.store import Store, job_files, open_store
from orchestrator.store.entry import JOB_STATES, OUTPUTS
from tasks.contract.job import Inputs, task
from tasks.worker.job_services import ProgramDied, current_services
from tests.orchestrator.executors.jobs import Number, key_of
from tests.support.s3 import BUCKET, Server

KEY = key_of(1)
TROUBLES: dict[int, Exception] = {
    1: ValueError("it cannot be had"),
    2: ProgramDied("the program was ended by SIGSEGV"),
    3: ProgramDied("the program was ended by SIGKILL", is_out_of_memory=True),
}


@task(version=1)
def use(config: Number, inputs: Inputs) -> pa.Table:
    """Print, log, count the attempts in the state, and raise the exception of the config's number if there is one."""
    services = current_services()
    assert services.output is not None
    assert services.state is not None
    (services.output / "stderr").write_text("of a program\n")
    attempts = services.state / "of all" / "attempts"
    attempts.parent.mkdir(exist_ok=True)
    with open(attempts, "a") as file:
        file.write("x")
    sys.stdout.write(f"attempt {len(attempts.read_text())}\n")
    services.log({"loss": 1 / len(attempts.read_text())}, step=len(attempts.read_text()))
    if config.value in TROUBLES:
        raise TROUBLES[int(config.value)]
    return pa.table({"attempts": [len(attempts.read_text())]})


@task(version=1)
def ignore(config: Number, inputs: Inputs) -> pa.Table:
    sys.stdout.write("this is kept only if the job fails\n")
    return pa.table({"value": [config.value]})


@pytest.fixture(params=["folder", "bucket"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return open_store(tmp_path / "store")
    server: Server = request.getfixturevalue("s3")
    for name, value in server.env.items():
        pytest.MonkeyPatch().setenv(name, value)
    return open_store(f"s3://{BUCKET}/{tmp_path.name}")


def compute(store: Store, name: str, value: float) -> object:
    (outcome,) = perform(Call(1, name, (Item(KEY, f"{__name__}:{name}", Number(value)),)), store).outcomes
    return outcome


def stored_files(store: Store) -> set[str]:
    names: set[str] = set()
    for folder in (OUTPUTS, JOB_STATES):
        names.update(store.files(folder))
    return names


@pytest.mark.parametrize("trouble", TROUBLES)
def test_state_and_output_survive_a_failed_attempt(any_store: Store, trouble: int) -> None:
    first = compute(any_store, "use", trouble)
    if trouble == 1:
        assert isinstance(first, Failed)
    else:
        assert first == Lost(KEY, str(TROUBLES[trouble]), True, "host" if trouble == 3 else None)
    assert list(job_files.job_states(any_store)) == [KEY]
    assert job_files.read_streams(any_store, KEY) == {"stdout": "attempt 1\n", "stderr": "of a program\n"}
    assert isinstance(compute(any_store, "use", 0), Done)
    assert any_store.read(KEY)["attempts"].to_pylist() == [2]
    first_line, separator, last_line = job_files.read_streams(any_store, KEY)["stdout"].splitlines()
    assert (first_line, last_line) == ("attempt 1", "attempt 2")
    assert separator.startswith("--- next attempt, ")
    points = read_metrics(any_store, KEY)
    assert [(point.step, dict(point.metrics)) for point in points] == [(1, {"loss": 1.0}), (2, {"loss": 0.5})]
    assert any_store.record(KEY)["metrics"] == {"step": 2, "loss": 0.5}
    assert job_files.job_states(any_store) == {}


def test_job_without_services_leaves_no_files(store: Store) -> None:
    assert isinstance(compute(store, "ignore", 1), Done)
    assert stored_files(store) == set()


def test_state_is_copied_to_a_bucket_at_intervals(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{BUCKET}/{tmp_path.name}")
    monkeypatch.setenv(kept_services.STATE_EVERY, "1h")
    state = kept_services.RemoteState(store, KEY)
    (state.folder / "epoch").write_text("1")
    state.save()
    assert job_files.job_states(store) == {}
    state._saved -= 3601
    state.save()
    (state.folder / "epoch").write_text("2")
    state.save()
    again = kept_services.RemoteState(store, KEY)  # after the first one was killed
    assert (again.folder / "epoch").read_text() == "1"
    again.close(is_stored=True)
    state.close(is_stored=True)
    assert job_files.job_states(store) == {}


def test_second_attempt_gets_another_folder_while_the_first_lives(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_services, "LOCK_SECONDS", 0.0)
    location = Path(store.location) / JOB_STATES / KEY
    first = kept_services.LocalState(location)
    second = kept_services.LocalState(location)
    assert first.folder != second.folder
    assert first.inherited != ()
    assert second.inherited == ()
    second.close(is_stored=True)
    first.close(is_stored=False)
    assert not location.exists()  # nothing was written to it


def test_long_output_keeps_beginning_and_end(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_text("first" + "x" * 3000 + "last")
    job_files.shorten(path, 1000)
    text = path.read_text()
    assert text.startswith("firstx")
    assert text.endswith("xlast")
    assert "--- 2,009 bytes are left out here\n" in text
    assert len(text) < 1100


def test_many_metrics_are_thinned_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_metrics, "MAX_LINES", 40)
    writer = MetricsWriter(tmp_path / "metrics.jsonl")
    for step in range(1000):
        writer.add(checked_metrics({"loss": 1.0}, step))
        writer.add(checked_metrics({"accuracy": step / 1000}, step))
    writer.close()
    points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert 20 <= len(points) <= 42
    assert points[0]["step"] == 0
    assert points[-1] == {**points[-1], "step": 999, "metrics": {"accuracy": 0.999}}
    for name in ("loss", "accuracy"):  # every step that is kept has both
        assert [point["step"] for point in points if name in point["metrics"]] == sorted({p["step"] for p in points})


def test_metrics_must_be_numbers() -> None:
    with pytest.raises(ValueError, match="metric loss is 'low'; it must be a number"):
        checked_metrics({"loss": "low"}, 1)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="step is nan; it must be a whole number"):
        checked_metrics({"loss": 0.1}, float("nan"))  # type: ignore[arg-type]


def test_key_names_no_folder_outside_the_store(store: Store) -> None:
    with pytest.raises(StoreError):
        job_files.remove_job_state(store, "../runs")
