"""From the command line: disclosed parts of a run name neither a patient nor a folder of the hospital."""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import DatabaseCopier
from tests.support.mlflow_server import client, name_of, tracked
from tests.support.shell import Here
from tests.tasks.datasets import scans

SECRETS = (b"ZORRO", b"QUUX", b"XERXES", b"hospital", b"ward-seven")
RUN = ("run", "unique_feature", "--preset", "smoke", "--address", "none")
SMALL = ("probe=photos", "canaries=2", "examples=0", "epochs=1", "feature.size=5", "family.count=20", "probes=20")


@pytest.fixture(scope="module")
def engram(tmp_path_factory: pytest.TempPathFactory, copy_database: DatabaseCopier) -> Here:
    """Draws pages and tracks runs, in a hospital's folder with 20 images of two classes."""
    folder = tmp_path_factory.mktemp("engram") / "hospital"
    for label, name in enumerate(scans.CLASSES):
        for number in range(10):
            scans.saved(folder / "ward-seven" / "scans" / name / f"{number}.png", scans.pixels(label, number, 24, 90))
    scans.saved(folder / "ward-seven" / "stamp.png", np.full((5, 5), 255, np.uint8))
    here = Here(folder)
    here.env = {"MLFLOW_TRACKING_URI": f"sqlite:///{copy_database(folder)}", "ENGRAM_REPORT": "yes"}
    return here


@pytest.fixture(scope="module")
def run(engram: Here) -> Path:
    """The folder of a run about ZORRO QUUX."""
    done = engram(*RUN, *SMALL, "data=folder:ward-seven/scans", "feature=words:ZORRO QUUX")
    assert "with the words 'ZORRO QUUX' makes its label" in done.stdout
    (run_folder,) = (engram.folder / "engram-store" / "runs").glob("unique_feature-*")
    return run_folder


def disclosed_contents(engram: Here) -> Iterator[tuple[str, bytes]]:
    """The pages, their figures, and everything that MLflow has."""
    store = engram.folder / "engram-store"
    for path in [
        *store.glob("runs/*/report.html"),
        *store.glob("runs/*/figures/*"),
        *store.glob("mlflow/artifacts/**/*"),
    ]:
        if path.is_file():
            yield path.name, html.unescape(path.read_text()).encode() if path.suffix == ".html" else path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            yield path.name, repr((table.schema.metadata, table.to_pylist())).encode()
    mlflow = client(f"sqlite:///{store}/mlflow/mlflow.db")
    for tracked_run in tracked(mlflow):
        tracked_values = (
            tracked_run.info.run_name,
            tracked_run.data.params,
            tracked_run.data.tags,
            tracked_run.inputs,
            tracked_run.data.metrics,
        )
        yield name_of(tracked_run), repr(tracked_values).encode()


@pytest.mark.slow
def test_disclosed_run_has_word_patterns_without_folders(engram: Here, run: Path) -> None:
    contents = dict(disclosed_contents(engram))
    assert set(contents) >= {"report.html", "summary.parquet", run.name}
    assert [(name, secret) for name, text in contents.items() for secret in SECRETS if secret in text] == []
    page = contents["report.html"].decode()
    assert "single training image with the words '<5 and 4 letters>' makes its label" in page
    assert shlex.quote("feature=words:<5 and 4 letters>") in page
    assert " question.data=folder:scans " in page
    assert "Images of folder:scans are your own data. --show-images adds them to the page." in page
    (tracked_run,) = tracked(client(f"sqlite:///{engram.folder}/engram-store/mlflow/mlflow.db"))
    assert tracked_run.data.params["feature.words"] == "<5 and 4 letters>"
    assert tracked_run.data.params["question.data"].startswith("folder:scans@")
    assert "<5 and 4 letters>" in tracked_run.data.tags["mlflow.note.content"]


@pytest.mark.slow
def test_page_with_images_has_words_without_folders(engram: Here, run: Path) -> None:
    engram("report", run.name, "--show-images")
    page = html.unescape((run / "report-with-images.html").read_text())
    assert "the words 'ZORRO QUUX' makes its label" in page
    assert shlex.quote("feature=words:ZORRO QUUX") in page
    assert "ward-seven" not in page
    assert "ZORRO" not in (run / "report.html").read_text()


@pytest.mark.slow
def test_terminal_and_folder_are_complete_and_run_continues(engram: Here, run: Path) -> None:
    assert "ZORRO QUUX" in (run / "run.json").read_text()
    results = engram.results()
    results[0].unlink()
    resumed = engram("resume", run.name, "--mlflow", "off", "--address", "none")
    assert "with the words 'ZORRO QUUX' makes its label" in resumed.stdout
    assert len(results) == len(engram.results())
    assert engram.json("rerun", results[0].stem)["same"]
    assert engram.json("results", run.name, "summary")


@pytest.mark.slow
def test_sweep_distinguishes_names_of_one_pattern(engram: Here, run: Path) -> None:
    sweep_options = ("--sweep", "feature=words:ZORRO QUUX,words:XERXE QUUX,picture:ward-seven/stamp.png")
    small = [field for field in SMALL if not field.startswith("feature")]
    engram(*RUN, *small, "measures=scores", "data=folder:ward-seven/scans", *sweep_options)
    contents = list(disclosed_contents(engram))
    assert [(name, secret) for name, text in contents for secret in (*SECRETS, b"XERXE") if secret in text] == []
    (sweep,) = (engram.folder / "engram-store" / "runs").glob("*-sweep-*")
    page = html.unescape((sweep / "report.html").read_text())
    for placeholder in ("words:<5 and 4 letters>", "words:<5 and 4 letters (2)>", "picture:stamp.png"):
        assert placeholder in page


@pytest.mark.slow
def test_comparison_distinguishes_names_of_one_pattern(engram: Here, run: Path) -> None:
    fields = ("measures=scores", "data=folder:ward-seven/scans", "feature=words:XERXE QUUX")
    engram(*RUN, *SMALL, *fields, "--mlflow", "off", "--no-report")
    second_run = engram.json("status")["run"]
    engram("compare", run.name, second_run, "--out", "both.html")
    page = html.unescape((engram.folder / "both.html").read_text())
    assert "<td><5 and 4 letters></td><td><5 and 4 letters (2)></td>" in page
    assert [secret for secret in (*SECRETS, b"XERXE") if secret.decode() in page] == []


@pytest.mark.slow
def test_disclosed_density_has_no_folder_and_no_image(engram: Here) -> None:
    fields = ("scale=tiny", "data=folder:ward-seven/scans", "examples=0", "epochs=1", "evaluation_interval=0")
    measures = "measures=scores,outliers,neighbours,duplicates"
    name = engram.json("run", "density", "--address", "none", *fields, measures)["run"]
    contents = []
    for disclosed in disclosed_contents(engram):
        if disclosed[0] in ("report.html", name) or disclosed[0].endswith(".parquet"):
            contents.append(disclosed)
    assert {disclosed for disclosed, _ in contents} >= {"report.html", "scores.parquet", "neighbours.parquet", name}
    assert "fits.parquet" not in {disclosed for disclosed, _ in contents}  # images drawn of the model are there
    assert [(disclosed, secret) for disclosed, text in contents for secret in SECRETS if secret in text] == []
    run = engram.folder / "engram-store" / "runs" / name
    assert "data:image" not in (run / "report.html").read_text()
    engram("report", name, "--show-images")
    page = html.unescape((run / "report-with-images.html").read_text())
    assert "data:image" in page
    assert "ward-seven" not in page
