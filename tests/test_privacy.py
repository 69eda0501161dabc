"""From the command line: what is passed on of a run names neither a patient nor a folder of the hospital's."""

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
SMALL = ("probe=photos", "canaries=2", "examples=0", "epochs=1", "feature.size=5", "family.count=20")


@pytest.fixture(scope="module")
def engram(tmp_path_factory: pytest.TempPathFactory, copy_database: DatabaseCopier) -> Here:
    """Draws pages and tracks runs, in a hospital's folder with 20 pictures of two classes."""
    folder = tmp_path_factory.mktemp("engram") / "hospital"
    for label, name in enumerate(scans.CLASSES):
        for number in range(10):
            scans.saved(folder / "ward-seven" / "scans" / name / f"{number}.png", scans.pixels(label, number, 24, 90))
    scans.saved(folder / "ward-seven" / "stamp.png", np.full((5, 5), 255, np.uint8))
    made = Here(folder)
    made.env = {"MLFLOW_TRACKING_URI": f"sqlite:///{copy_database(folder)}", "ENGRAM_REPORT": "yes"}
    return made


@pytest.fixture(scope="module")
def run(engram: Here) -> Path:
    """The folder of a run about ZORRO QUUX."""
    done = engram(*RUN, *SMALL, "data=folder:ward-seven/scans", "feature=words:ZORRO QUUX")
    assert "with the words 'ZORRO QUUX' makes its label" in done.stdout
    (found,) = (engram.folder / "engram-store" / "runs").glob("unique_feature-*")
    return found


def passed_on(engram: Here) -> Iterator[tuple[str, bytes]]:
    """The pages, their figures, and all that MLflow has."""
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
    for each in tracked(mlflow):
        told = (each.info.run_name, each.data.params, each.data.tags, each.inputs, each.data.metrics)
        yield name_of(each), repr(told).encode()


@pytest.mark.slow
def test_what_is_passed_on_of_a_run_has_the_pattern_of_the_words_and_no_folder(engram: Here, run: Path) -> None:
    said = dict(passed_on(engram))
    assert {"report.html", "summary.parquet", run.name} <= set(said)
    assert [(name, secret) for name, text in said.items() for secret in SECRETS if secret in text] == []
    page = said["report.html"].decode()
    assert "single training image with the words '<5 and 4 letters>' makes its label" in page
    assert shlex.quote("feature=words:<5 and 4 letters>") in page
    assert " question.data=folder:scans " in page
    assert "Images of folder:scans are your own data. --show-images adds them to the page." in page
    (tracked_run,) = tracked(client(f"sqlite:///{engram.folder}/engram-store/mlflow/mlflow.db"))
    assert tracked_run.data.params["feature.words"] == "<5 and 4 letters>"
    assert tracked_run.data.params["question.data"].startswith("folder:scans@")
    assert "<5 and 4 letters>" in tracked_run.data.tags["mlflow.note.content"]


@pytest.mark.slow
def test_the_page_with_images_has_the_words_and_still_no_folder(engram: Here, run: Path) -> None:
    engram("report", run.name, "--show-images")
    page = html.unescape((run / "report-with-images.html").read_text())
    assert "the words 'ZORRO QUUX' makes its label" in page
    assert shlex.quote("feature=words:ZORRO QUUX") in page
    assert "ward-seven" not in page
    assert "ZORRO" not in (run / "report.html").read_text()


@pytest.mark.slow
def test_the_terminal_and_the_folder_have_it_all_and_the_run_goes_on(engram: Here, run: Path) -> None:
    assert "ZORRO QUUX" in (run / "run.json").read_text()
    stored = engram.results()
    stored[0].unlink()
    resumed = engram("resume", run.name, "--mlflow", "off", "--address", "none")
    assert "with the words 'ZORRO QUUX' makes its label" in resumed.stdout
    assert len(stored) == len(engram.results())
    assert engram.json("rerun", stored[0].stem)["same"]
    assert engram.json("results", run.name, "summary")


@pytest.mark.slow
def test_a_sweep_over_names_of_one_pattern_tells_its_cells_apart(engram: Here, run: Path) -> None:
    asked = ("--sweep", "feature=words:ZORRO QUUX,words:XERXE QUUX,picture:ward-seven/stamp.png")
    small = [each for each in SMALL if not each.startswith("feature")]
    engram(*RUN, *small, "measures=scores", "data=folder:ward-seven/scans", *asked)
    said = list(passed_on(engram))
    assert [(name, secret) for name, text in said for secret in (*SECRETS, b"XERXE") if secret in text] == []
    (sweep,) = (engram.folder / "engram-store" / "runs").glob("*-sweep-*")
    page = html.unescape((sweep / "report.html").read_text())
    for told in ("words:<5 and 4 letters>", "words:<5 and 4 letters (2)>", "picture:stamp.png"):
        assert told in page


@pytest.mark.slow
def test_two_runs_about_names_of_one_pattern_differ_on_their_common_page(engram: Here, run: Path) -> None:
    fields = ("measures=scores", "data=folder:ward-seven/scans", "feature=words:XERXE QUUX")
    engram(*RUN, *SMALL, *fields, "--mlflow", "off", "--no-report")
    other = engram.json("status")["run"]
    engram("compare", run.name, other, "--out", "both.html")
    page = html.unescape((engram.folder / "both.html").read_text())
    assert "<td><5 and 4 letters></td><td><5 and 4 letters (2)></td>" in page
    assert [secret for secret in (*SECRETS, b"XERXE") if secret.decode() in page] == []


@pytest.mark.slow
def test_what_is_passed_on_of_a_density_has_no_folder_and_no_image(engram: Here) -> None:
    fields = ("scale=tiny", "data=folder:ward-seven/scans", "examples=0", "epochs=1", "evaluation_interval=0")
    measures = "measures=scores,outliers,neighbours,duplicates"
    name = engram.json("run", "density", "--address", "none", *fields, measures)["run"]
    said = [each for each in passed_on(engram) if each[0] in ("report.html", name) or each[0].endswith(".parquet")]
    assert {"report.html", "scores.parquet", "neighbours.parquet", name} <= {each for each, _ in said}
    assert "fits.parquet" not in {each for each, _ in said}  # images drawn of the model are there
    assert [(each, secret) for each, text in said for secret in SECRETS if secret in text] == []
    run = engram.folder / "engram-store" / "runs" / name
    assert "data:image" not in (run / "report.html").read_text()
    engram("report", name, "--show-images")
    page = html.unescape((run / "report-with-images.html").read_text())
    assert "data:image" in page
    assert "ward-seven" not in page
