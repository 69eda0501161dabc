"""The audit of forgetting from outside: external models, refusals and failed trainings."""

from __future__ import annotations

import csv
import json
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

from orchestrator.inspection import status
from orchestrator.planning.identity import key_of
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.config_parts import plain
from orchestrator.spec.fields import coerce, text
from orchestrator.spec.resolve import Cell, pin_cells
from orchestrator.store import open_store
from tasks.audits.forgetting import AUDIT, Forgetting, Target
from tasks.audits.forgetting.config import Scores
from tasks.audits.forgetting.data_sets import load_data_sets
from tasks.audits.forgetting.query_set import handout_order
from tasks.audits.forgetting.trainings import training_jobs
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.external.handout import image_of
from tasks.training.mixed import MIXED
from tests.support.shell import Here, refusals
from tests.tasks.audits.unique_feature.depth_first import tables
from tests.tasks.datasets import scans

RUN = ("run", "forgetting", "--preset", "smoke", "scale=tiny", "--address", "none")
OWN = (
    *("query.data=folder:mine", "query.examples=0"),
    *("calibration.data=folder:theirs", "calibration.first=0", "calibration.examples=0"),
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A folder with a store, in which models for several tests are trained once."""
    return Here(tmp_path_factory.mktemp("forgetting"))


@pytest.fixture(scope="module")
def done() -> dict[str, pa.Table]:
    """Results that presets share, computed once."""
    return {}


def read_rows(folder: Path, run: str, name: str) -> list[dict[str, Any]]:
    """The rows of a run's table."""
    store = open_store(folder / "engram-store")
    keys = status.roots(Journal(folder / "engram-store" / "runs" / run))[name]
    return [row for key in keys for row in store.read(key).to_pylist()]


def config(preset: str) -> Forgetting:
    """The first cell of a preset at tiny scale."""
    (cell,) = pin_cells([Cell("forgetting", AUDIT.tiny(AUDIT.cells(preset)[0]), None, {})], {})
    pinned: Forgetting = cell.config
    return pinned


def shares(rows: Sequence[Mapping[str, Any]], metric: str = "share of D_Q held") -> dict[str, Mapping[str, Any]]:
    """The rows of a summary with this metric, by their targets."""
    result = {}
    for row in rows:
        if row["metric"] == metric:
            result[json.loads(row["setting"])["target"]] = row
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failed_models", "models", "says"),
    [
        ([("target", 1, 1)], {"D_C": 2, "D_C + D_Q": 1}, "D_C + D_Q is "),
        ([("target", 1, 0), ("target", 1, 1)], {"D_C": 2}, "D_C + D_Q is undecided: there are no answers of the model"),
        ([("query", None, 0), ("query", None, 1)], {"D_C": 2, "D_C + D_Q": 2}, "D_C + D_Q is "),
        ([("calibration", None, 0), ("calibration", None, 1)], {"D_C": 2, "D_C + D_Q": 2}, "Not assessable: "),
    ],
)
def test_missing_replicates_lower_the_number_of_models(
    failed_models: Sequence[tuple[str, int | None, int]],
    models: Mapping[str, int],
    says: str,
    done: dict[str, pa.Table],
) -> None:
    audit_config = config("smoke")
    tables(AUDIT.plan(audit_config), done=done)
    assert isinstance(audit_config.question, Scores)
    trainings = training_jobs(audit_config.question, load_data_sets(audit_config))
    models_by_key = {key_of(job, []): (model.kind, model.target, model.replicate) for model, job in trainings}
    gone = {key for key, model in models_by_key.items() if model in failed_models}
    weights = {}
    for key, table in done.items():
        if table.schema.equals(MIXED) and key not in gone:
            weights[key] = table
    summary = tables(AUDIT.plan(audit_config), absent=lambda job: key_of(job, []) in gone, done=weights)["summary"]
    rows = {name: row for name, row in shares(summary.to_pylist()).items() if row["n"]}
    assert models == {name: row["n"] for name, row in rows.items()}
    assert AUDIT.verdict is not None
    assert says in AUDIT.verdict(audit_config, summary).sentence


@pytest.mark.slow
def test_one_replicate_is_undecided_with_a_reason(here: Here) -> None:
    run = here(*RUN, "replicates=1", "targets=D_C").stdout
    assert "too few models show how effects vary" in run
    (name,) = {path.name for path in (here.folder / "engram-store" / "runs").glob("[!.]*") if path.is_dir()}
    (row,) = read_rows(here.folder, name, "decisions")
    assert row["models"] == 1
    assert row["share"] is None
    assert row["effect_low"] is None
    assert row["decision"] == "undecided"
    assert None not in {row["rho"] for row in read_rows(here.folder, name, "ratios")}


class Owner(NamedTuple):
    """An owner's replies in three forms: the model, its probabilities, and its confidences alone."""

    folder: Path
    files: tuple[str, str, str]
    confidences: Sequence[float]


@pytest.fixture(scope="module")
def owner(here: Here) -> Owner:
    """A model trained on an auditor's probes, and queried with the images in their files."""
    output = here("probes", "forgetting", "--preset", "smoke", "scale=tiny", "--out", "probes").stdout
    assert "132 images in probes, in 1 set: pictures-" in output  # a tenth of them twice
    warning = "Warning: the run's seed alone determines which images are D_Q"
    assert f"split of the data (keep it private): probes-split.csv\n{warning}" in output
    with (here.folder / "probes" / "images.csv").open(newline="") as file:
        names = [row["image"] for row in csv.DictReader(file)]
    pixels = np.stack([np.asarray(Image.open(here.folder / "probes" / name)) for name in names])
    digits = catalog.load(Dataset("digits"))
    row_of = {}
    for row, image in enumerate(digits.train_images[:120]):
        row_of[image.tobytes()] = row
    labels = digits.train_labels[[row_of[image.tobytes()] for image in pixels[..., None]]]
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
    images = torch.tensor(pixels)[:, None].float() / 255
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model[1].reset_parameters()  # type: ignore[operator]
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), torch.tensor(labels).long()).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated; its files are not gone
        torch.jit.script(model.eval()).save(str(here.folder / "model.pt"))  # type: ignore[no-untyped-call]
    p = model(images).detach().double().softmax(1).numpy()
    write(here.folder / "all.csv", ["image", *(f"p{k}" for k in range(10))], zip(names, *p.T, strict=True))
    alone = p[np.arange(len(p)), labels]
    columns = {"image": names, "label": labels.astype(np.int64), "confidence": alone}
    pq.write_table(pa.table(columns), here.folder / "alone.parquet")
    probe_order = handout_order(config("smoke").probes)
    assert names == [image_of(probe_order.name, position) for position in range(132)]
    by_image = [float(alone[names.index(name)]) for name in probe_order.ids]
    return Owner(here.folder, ("model.pt", "all.csv", "alone.parquet"), by_image)


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.mark.slow
def test_model_probabilities_and_confidences_are_judged_equally(here: Here, owner: Owner) -> None:
    model, *outputs = owner.files
    ended = here.json(*RUN, f"given.models={model}", f"given.outputs={','.join(outputs)}")
    assert ended["state"] == "finished"
    confidence_rows = read_rows(here.folder, ended["run"], "confidences")
    for target in range(3):
        confidences = []
        for row in confidence_rows:
            if (row["model"], row["target"]) == ("target", target):
                confidences.append(row["confidence"])
        assert owner.confidences == pytest.approx(confidences, abs=1e-6)
    rows = []
    for row in read_rows(here.folder, ended["run"], "ratios"):
        if row["score"] == "published":
            rows.append(row)
    assert list(owner.files) == [row["name"] for row in rows]
    assert [row["source"] for row in rows] == ["model", "outputs", "outputs"]
    assert {
        (row["query"], row["calibration"], row["outside"], row["right"])
        for row in read_rows(here.folder, ended["run"], "decisions")
    } == {(None, None, None, None)}
    effects = []
    for row in read_rows(here.folder, ended["run"], "decisions"):
        effects.append(row["effect"])
    assert [effects[0]] * 3 == pytest.approx(effects, abs=0.2)
    assert [rows[0]["rho"]] * 3 == pytest.approx([row["rho"] for row in rows], abs=0.05)


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (("targets=2D_Q",), 2, "targets[0] is '2D_Q': query is 2.0; it must be a share from 0 to 1"),
        (("targets=D_C,D_C",), 2, "targets has D_C twice; each must be there once"),
        (("negligible=2",), 2, "negligible is 2.0; it must be between 0 and 1"),
        (("query.held_back=1",), 2, "held_back is 1.0; it must be between 0 and 1"),
        (("query.held_back=0",), 2, "held_back is 0.0; it must be between 0 and 1"),
        (
            ("query.control.data=digits",),
            1,
            "the query set digits and the control set digits have 120 images in common",
        ),
        (("network=cnn",), 2, "network is 'cnn'; it must be one of mlp1, cnn1"),
        (("query=digits",), 2, "query is 'digits'; its fields are data, first, examples, control"),
        (("calibration.data=digits-on-photos#16x16",), 1, "all must have one shape: add #28x28, or another height x"),
        (("given.outputs=gone.csv",), 1, "there is no file "),
        (("given.models=gone.pt",), 1, "there is no file "),
        (("given.columns=a,b",), 2, "question.audited.tables.outputs is missing; only columns is given"),
        (("given.bound_by=a notary",), 2, "question.audited.tables.outputs is missing; only bound_by is given"),
        (("given.interface.layout=nhwc",), 2, "no model to audit: set given.models=..., or given.outputs=..."),
        (("targets=D_C", "given.models=gone.pt"), 2, "targets is not a field of question.audited=given, but another"),
        (("question=examples", "epochs=3"), 2, "epochs"),
        (("measures=examples",), 2, "unknown field 'measures'"),
        (
            ("given.model=a.pt",),
            2,
            "unknown field 'question.audited.model': given has models, tables, interface; did you mean 'models'?",
        ),
    ],
)
def test_invalid_settings_give_one_line_error(settings: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    message = Here(tmp_path)(*RUN, *settings, code=code).stderr
    assert says in message
    assert len(refusals(message)) == 1
    assert "Traceback" not in message


@pytest.mark.parametrize("preset", ["table1", "null"])
def test_targets_in_a_report_are_valid_settings(preset: str) -> None:
    targets = AUDIT.cells(preset)[0].audited.targets
    assert targets == coerce(text(plain(targets)), tuple[Target, ...], "targets")


def test_images_in_both_sets_are_refused_by_number(tmp_path: Path) -> None:
    parts = ("query.examples=200", "calibration.first=100", "calibration.examples=200")
    message = Here(tmp_path)(*RUN, *parts, code=1).stderr
    assert "the query set digits and the calibration set digits-on-photos have 100 images in common" in message
    assert "training image 100 is 100, 101 is 101, 102 is 102, 103 is 103, 104 is 104, and 95 more" in message
    assert len(refusals(message)) == 1
    assert list((tmp_path / "engram-store").rglob("*.arrow")) == []


@pytest.mark.slow
def test_users_images_are_audited_unless_sets_overlap(tmp_path: Path) -> None:
    scans.classes(tmp_path / "mine")
    for label, name in enumerate(scans.CLASSES):
        for number in range(10, 16):
            scans.saved(tmp_path / "theirs" / name / f"{number}.png", scans.pixels(label, number))
    engram = Here(tmp_path)
    arguments = (*RUN, *OWN, "replicates=1", "targets=D_C")
    assert engram.json(*arguments)["state"] == "finished"
    shutil.copy(tmp_path / "mine" / "cat" / "02.png", tmp_path / "theirs" / "cat" / "12x.png")
    message = engram(*arguments, code=1).stderr
    common = r"in common: training image \d+ is \d+; the calibration set must not contain images of the query set"
    assert re.search(common, message)
    assert len(refusals(message)) == 1


@pytest.mark.slow
def test_failing_trainings_are_reported_once_without_answer(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    absurd = (*RUN, "learning_rate=1e30", "replicates=1", "targets=D_C")
    for tolerated in ([], ["--tolerate", "9"]):
        result = engram(*absurd, *tolerated, code=3)
        failed = {line for line in result.stderr.splitlines() if "mixed.train" in line}
        assert len(failed) == 6, result.stderr
        assert all("loss is not finite" in line and "try a lower learning rate" in line for line in failed)
        assert "Traceback" not in result.stderr
        assert "rho" not in result.stdout
