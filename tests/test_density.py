"""The audit of densities from outside: the effects of failed trainings, and users' own data and models."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.inspection import status
from orchestrator.run_folder.journal import Journal
from orchestrator.store import open_store
from tasks.numerics import seeds
from tests.support import densities
from tests.support.shell import ROOT, Here, Shell, refusals
from tests.tasks.datasets import scans

RUN = ("run", "density", "scale=tiny", "--address", "none")
# Two repetitions of three folds and the model of all data, in a second.
SMALL = ("examples=60", "evaluation_interval=0", "epochs=1")
OWN = (*RUN, "model=own:pixels", *SMALL)
PICTURES = ("measures=scores,outliers,neighbours,duplicates", "examples=0", "evaluation_interval=0", "epochs=1")


@pytest.fixture
def engram(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    densities.write(tmp_path / "models")
    shell.env["PYTHONPATH"] += f":{tmp_path / 'models'}"
    return shell


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """The same in this process. Afterwards the imported model is forgotten, because each test has another."""
    densities.write(tmp_path / "models")
    monkeypatch.syspath_prepend(tmp_path / "models")
    yield Here(tmp_path)
    sys.modules.pop("own", None)


def roots(engram: Shell | Here, run: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The keys of each table: as planned, and as available."""
    journal = Journal(engram.folder / "engram-store" / "runs" / run)
    return journal.roots(), status.roots(journal)


def read_rows(engram: Shell | Here, run: str, name: str) -> list[dict[str, Any]]:
    """The rows of a run's table."""
    (key,) = roots(engram, run)[1][name]
    rows: list[dict[str, Any]] = open_store(engram.folder / "engram-store").read(key).to_pylist()
    return rows


def make_training_fail(engram: Shell | Here, *path: str | int) -> None:
    """Make the training of one seed fail."""
    densities.write(engram.folder / "models", [seeds.derive(0, "training", *path)])


@pytest.mark.slow
def test_failed_fold_ends_the_run_unless_tolerated(here: Here) -> None:
    make_training_fail(here, 1, 2)
    done = here(*OWN, "measures=scores", code=3)
    assert "TrainingError: loss is not finite" in done.stderr
    assert "Traceback" not in done.stderr
    ended = here.json("status")
    assert ended["state"] == "failed"
    assert ended["jobs"]["failed"] == 1
    assert (
        "1 of the 1 results behind 'summary' are not available yet" in here("results", ended["run"], "summary").stderr
    )

    output = here(*OWN, "measures=scores", "--tolerate", "1", code=3).stdout
    assert "the image with the fewest models has 5 of the 6 planned" in output
    assert "The model of all data is missing" not in output
    planned_keys, available = roots(here, ended["run"])
    assert planned_keys.keys() == available.keys()
    for name in ("summary", "scores", "distribution", "losses", "fits"):
        assert planned_keys[name] != available[name]
    models = [(row["trained_models"], row["held_out_models"]) for row in read_rows(here, ended["run"], "scores")]
    assert Counter(models) == {(3, 2): 40, (4, 1): 20}
    for row in read_rows(here, ended["run"], "scores"):
        assert None not in (row["m"], row["m_matched"], row["p_value"])
        assert (row["held_out_models"] == 1) == (row["held_out"][1] is None)
    (row,) = (
        summary_row
        for summary_row in read_rows(here, ended["run"], "summary")
        if summary_row["metric"].startswith("models of an")
    )
    assert row["estimate"] == 5
    assert row["n"] == 6


@pytest.mark.slow
def test_observations_of_a_failed_fold_have_no_score(here: Here) -> None:
    make_training_fail(here, 0, 1)
    run = here.json(*OWN, "measures=scores,outliers", "repetitions=1", "--tolerate", "1", code=3)["run"]
    scores = read_rows(here, run, "scores")
    without = [row for row in scores if row["held_out_models"] == 0]
    assert len(without) == 20
    assert {(row["log_p_held_out"], row["m"], row["p_value"]) for row in without} == {(None, None, None)}
    assert None not in {row["m"] for row in scores if row["held_out_models"]}
    summary = {row["metric"]: row for row in read_rows(here, run, "summary")}
    assert tuple(summary["observations without a score"][name] for name in ("estimate", "n")) == (20, 60)
    assert sum(row["memorised"] + row["regular"] for row in read_rows(here, run, "outliers")) == 40


@pytest.mark.slow
def test_missing_full_model_only_removes_neighbours(here: Here) -> None:
    make_training_fail(here, "whole")
    arguments = (*OWN, "measures=scores,outliers,neighbours")
    assert here.json(*arguments, code=3)["state"] == "failed"
    output = here(*arguments, "--tolerate", "1", code=3).stdout
    assert "The model of all data is missing" in output
    assert "Some trainings are missing" not in output
    planned_keys, available = roots(here, here.json("status")["run"])
    assert planned_keys.keys() - available.keys() == {"neighbours", "ratios"}
    assert planned_keys["scores"] == available["scores"]
    assert planned_keys["summary"] != available["summary"]


@pytest.mark.slow
def test_users_images_are_shown_only_on_request(here: Here) -> None:
    here.env["ENGRAM_REPORT"] = "yes"
    scans.classes(here.folder / "scans", count=20)
    lines = []
    for name in scans.CLASSES:
        for number in range(20):
            lines.append(f"scans/{name}/{number:02}.png,{name}")
    (here.folder / "scans.csv").write_text("path,label\n" + "\n".join(lines))
    ended = here.json(*RUN, *PICTURES, "data=list:scans.csv", "model=own:pixels")
    assert ended["state"] == "finished"
    assert len(read_rows(here, ended["run"], "scores")) == 32
    folder = here.folder / "engram-store" / "runs" / ended["run"]
    page = (folder / "report.html").read_text()
    assert "are your own data. --show-images adds them to the page." in page
    assert "data:image" not in page
    here("report", ended["run"], "--show-images")
    assert (folder / "report-with-images.html").read_text().count("data:image") > 15
    assert "data:image" not in (folder / "report.html").read_text()


@pytest.mark.slow
def test_users_model_is_identified_by_its_source(engram: Shell) -> None:
    arguments = (*RUN, *SMALL, "model=flow:real_nvp", "measures=scores,neighbours")
    source = (ROOT / "examples" / "density" / "flow.py").read_text()
    model_file = engram.folder / "models" / "flow.py"
    model_file.write_text(source)
    first = engram.json(*arguments)
    assert first["state"] == "finished"
    assert engram.json(*arguments)["jobs"]["done"] == 0
    model_file.write_text(source.replace("hidden=128", "hidden=16"))
    second = engram.json(*arguments)
    assert first["run"] != second["run"]
    assert second["jobs"]["planned"] == second["jobs"]["done"]
    # A run continues with the model that it was started with.
    assert engram.json("resume", first["run"])["state"] == "finished"


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (("model=flo:real_nvp",), 2, "there is no module 'flo' on Python's path"),
        (("model=own:nothing", *SMALL), 3, "own has no function nothing; it has Pixels, pixels, silent"),
        (("model=own:pixels", "outlier_share=0.1"), 2, "outlier_share is 0.1; it must be 0 for your own model"),
        (("model=own:pixels", "privacy.epsilon=1"), 2, "privacy is set and model is own:pixels; it must be vae"),
        (("model=vea",), 2, "model is 'vea'; it must be one of vae, conv-vae"),
        (("model=conv-vae",), 2, "model is conv-vae, for images of 32 x 32; the data's are 28 x 28"),
        (("model=conv-vae", "data=digits#32x32", "privacy.epsilon=1"), 2, "it must be vae, whose rows never mix"),
        (("folds=1",), 2, "folds is 1; it must be at least 2"),
        (("examples=5000",), 2, "examples is 5000; it must be at most 1437, the number of training images"),
        (("estimator=loo", "held_out_rows=121"), 2, "held_out_rows is 121; it must be at most 120"),
        (("estimator=loo", "evaluation_split=test"), 2, "evaluation_split is not a field of question.estimator=loo"),
        (("question=kernel", "epochs=1"), 2, "epochs is not a field of question=kernel"),
        (("evaluation_interval=-1",), 2, "evaluation_interval is -1; it must be at least 0"),
        (("privacy.epsilon=-1",), 2, "privacy: epsilon is -1.0; it must be a finite number above 0"),
    ],
)
def test_invalid_settings_give_one_line_error(here: Here, settings: tuple[str, ...], code: int, says: str) -> None:
    message = here(*RUN, *settings, code=code).stderr
    assert says in message
    assert "Traceback" not in message
    assert code == 3 or len(refusals(message)) == 1


@pytest.mark.slow
def test_sweep_is_drawn_and_its_cells_compared(here: Here) -> None:
    here.env["ENGRAM_REPORT"] = "yes"
    fields = ("measures=scores", "epochs=2", "evaluation_interval=1", "--sweep", "learning_rate=1e-2,1e-3")
    arguments = []
    for field in OWN:
        if not field.startswith(("epochs", "evaluation_interval")):
            arguments.append(field)
    swept = here.json(*arguments, *fields)
    runs = here.folder / "engram-store" / "runs"
    figure_names = {path.stem for path in (runs / swept["run"] / "figures").iterdir()}
    assert figure_names == {"sweep", "sweep-others", "densities", "courses", "losses"}
    first, second = (cell["run"] for cell in swept["cells"])
    output = here("compare", first, second, "--out", "both.html").stdout
    difference = ["config", "question.training.learning_rate", "0.01", "0.001"]
    assert difference in [line.split() for line in output.splitlines()]
    assert output.count("; 2 random partitions into 3 folds;") == 2
    assert "generalisation gap of log p" in (here.folder / "both.html").read_text()
