"""Confidences in the query set: of models trained here, of a third-party file, or in a table.

The certificate names the same key that was promised to the owner.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from orchestrator.planning.plan import Plan
from tasks.audits.forgetting import AUDIT, plan, split
from tasks.audits.forgetting.audited import Given, ReturnedTables
from tasks.audits.forgetting.measures.query_confidences import (
    COMMITMENT,
    COMMITMENT_MEASURE,
    CONFIDENCES,
    Ask,
    ask,
    commitment,
)
from tasks.audits.forgetting.query_set import ProbeSet, handout_order
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.job import Job, marks
from tasks.contract.measure import Tables
from tasks.contract.schemas import SUMMARY
from tasks.datasets import catalog
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder, Share
from tasks.external.blinding import csv_of
from tasks.external.model_file import Interface, ModelFile
from tasks.models.catalog import Network
from tasks.models.networks import architecture_of, weights_of_model
from tasks.training.mixed import Mixture, logits, train
from tasks.worker.files import File
from tests.support import published_data
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.forgetting.test_answer import CLEARED, target
from tests.tasks.audits.forgetting.test_plan import SMOKE

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")

DIGITS = pin(Dataset("digits"))
QUERY = ProbeSet(Part(DIGITS, 10, 30))
ROWS = range(10, 40)
PICTURES = load(DIGITS).train_images[10:40]
LABELS = load(DIGITS).train_labels[10:40]


def softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The softmax of each row."""
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def in_single(p: NDArray[np.float64], labels: NDArray[np.int64] = LABELS) -> list[float]:
    """The confidence in the true class, in float32."""
    result = []
    for value in p[np.arange(len(labels)), labels].astype(np.float32):
        result.append(float(value))
    return result


def linear(path: Path, classes: int = 10) -> tuple[torch.nn.Linear, ModelFile]:
    """A TorchScript model that is a linear function of the pixels."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(784, classes)
    torch.jit.script(torch.nn.Sequential(torch.nn.Flatten(), layer)).save(str(path))
    return layer, ModelFile(str(path))


def build_linear(shape: tuple[int, int, int], classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), classes))


def csv(path: Path, header: str, lines: Sequence[str]) -> File:
    path.write_text("\n".join([header, *(f"query/{index:06d}.png,{line}" for index, line in enumerate(lines)), ""]))
    return File(str(path))


def test_trained_model_gives_its_float32_softmax() -> None:
    mixture = Mixture((Share(Part(DIGITS, 0, 60)),), DIGITS, 10, network=Network("mlp1"), epochs=30)
    training = train(mixture, [])
    table = ask(Ask(ModelId("calibration", None, 3), QUERY), [training])
    answers = logits(architecture_of(training), weights_of_model(training), PICTURES).astype(np.float64)
    assert in_single(softmax(answers)) == table["confidence"].to_pylist()
    assert table.schema == CONFIDENCES
    about = {}
    for name in ("model", "target", "replicate", "resolution"):
        about[name] = set(table[name].to_pylist())
    assert set(table["set"].to_pylist()) == {"query"}
    assert (answers.argmax(axis=1) == LABELS).tolist() == table["right"].to_pylist()
    assert table["again"].null_count == 30
    assert about == {"model": {"calibration"}, "target": {None}, "replicate": {3}, "resolution": {0.0}}
    assert table["row"].to_pylist() == list(ROWS)
    assert table["group"].to_pylist() == list(ROWS)
    assert LABELS.tolist() == table["label"].to_pylist()


def test_model_file_gives_the_models_confidences(tmp_path: Path) -> None:
    layer, file = linear(tmp_path / "theirs.pt")
    table = ask(Ask(ModelId("target", 2, 0), QUERY, file=file), [])
    with torch.no_grad():
        answers = layer(torch.from_numpy(PICTURES.reshape(30, 784).copy()).float() / 255).double().numpy()
    assert table["confidence"].to_pylist() == pytest.approx(in_single(softmax(answers)), rel=1e-6)
    assert tuple(set(table[name].to_pylist()) for name in ("target", "resolution")) == ({2}, {0.0})


def test_factory_weights_give_the_models_confidences(tmp_path: Path) -> None:
    layer, model = linear(tmp_path / "theirs.pt")
    weights = tmp_path / "weights.pt"
    torch.save(torch.nn.Sequential(torch.nn.Flatten(), layer).state_dict(), weights)
    built = ModelFile(f"{build_linear.__module__}:{build_linear.__name__}+{weights}")
    tables = []
    for file in (model, built):
        tables.append(ask(Ask(ModelId("target", 0, 0), QUERY, file=file), []))
    assert tables[0]["confidence"].to_pylist() == tables[1]["confidence"].to_pylist()


def test_label_beyond_the_outputs_is_refused(tmp_path: Path) -> None:
    _, file = linear(tmp_path / "theirs.pt", classes=5)
    with pytest.raises(ValueError, match="has 5 outputs; expected more than 9, a label of the query set") as caught:
        ask(Ask(ModelId("target", 0, 0), QUERY, file=file), [])
    assert "\n" not in str(caught.value)


def test_confidences_near_1_are_1_in_float32(tmp_path: Path) -> None:
    layer, file = linear(tmp_path / "theirs.pt")
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.0, 20.0, *[0.0] * 8]))  # 1 - p is 2e-8
    torch.jit.script(torch.nn.Sequential(torch.nn.Flatten(), layer)).save(file.path)
    answers = np.array(ask(Ask(ModelId("target", 0, 0), QUERY, file=file), [])["confidence"].to_pylist())
    assert set(answers[LABELS == 1].tolist()) == {1.0}


def test_table_is_read_at_its_precision(tmp_path: Path) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(10), 30).round(3)
    p[:, 0] += 1 - p.sum(axis=1)
    p = p.round(3)
    lines = [",".join(f"{value:.3f}" for value in row) for row in p]
    file = csv(tmp_path / "said.csv", ",".join(["image", *(f"p{label}" for label in range(10))]), lines)
    table = ask(Ask(ModelId("target", 1, 0), QUERY, outputs=file), [])
    assert table["confidence"].to_pylist() == pytest.approx(p[np.arange(30), LABELS].tolist())
    assert set(table["resolution"].to_pylist()) == {0.001}
    assert list(ROWS) == table["row"].to_pylist()


def test_own_column_follows_the_interface(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = -rng.random(30)
    file = csv(tmp_path / "said.csv", "image,theirs", [f"{value:.17g}" for value in values])
    about = Ask(ModelId("target", 0, 0), QUERY, outputs=file, columns=("theirs",))
    table = ask(replace(about, interface=Interface(gives="log-probabilities")), [])
    assert table["confidence"].to_pylist() == pytest.approx(np.exp(values).tolist(), rel=1e-6)


def test_table_is_read_by_handed_out_names(tmp_path: Path) -> None:
    probes = ProbeSet(Remainder(Part(DIGITS, 10, 40), 0.25, 3), seed=5)
    order = handout_order(probes)
    assert 44 == len(order.order) == len({*order.ids, *order.repeats.values()})
    rng = np.random.default_rng(0)
    answers = rng.random(40)
    repeated_answers = rng.random(40)
    lines = []
    for name, value in zip(order.ids, answers, strict=True):
        lines.append(f"{name},{value:.17g}")
    lines += [f"{name},{repeated_answers[image]:.17g}" for image, name in order.repeats.items()]
    path = tmp_path / "said.csv"
    path.write_text("\n".join(["image,confidence", *sorted(lines), ""]))
    table = ask(Ask(ModelId("target", 0, 0), probes, outputs=File(str(path))), [])
    assert table["set"].to_pylist() == ["query"] * 30 + ["control"] * 10
    assert list(range(10, 50)) == sorted(table["row"].to_pylist())
    assert answers.astype(np.float32).tolist() == table["confidence"].to_pylist()
    repeats = table["again"].to_pylist()
    assert {image: float(np.float32(repeated_answers[image])) for image in order.repeats} == {
        image: value for image, value in enumerate(repeats) if value is not None
    }
    assert table["right"].null_count == 40  # confidences alone do not show the class


def test_images_of_a_patient_share_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    published_data.acdc(tmp_path / "acdc")
    hearts = pin(Dataset("acdc-3t"))
    patients = load(hearts).train_groups
    assert patients is not None
    file = csv(tmp_path / "said.csv", "image,confidence", ["0.25"] * 5)
    table = ask(Ask(ModelId("target", 0, 0), ProbeSet(Part(hearts, 3, 5)), outputs=file), [])
    assert patients[3:8].tolist() == table["group"].to_pylist()
    assert list(range(3, 8)) == table["row"].to_pylist()
    assert len(set(table["group"].to_pylist())) == 2
    assert pa.int64() == table["group"].type


SECRET = with_settings(SMOKE, secret="b1946ac92492d2347c62")
RETURNED = Given(tables=ReturnedTables((File("said.csv", "c" * 64),)))


def test_certificate_names_the_promised_key(golden: Golden) -> None:
    key = split(SECRET)
    assert key is not None
    table = commitment(SECRET.probes, ())
    (row,) = table.to_pylist()
    digest = hashlib.sha256(csv_of(key.key)).hexdigest()
    assert marks(commitment).version == 1
    assert table.schema == COMMITMENT
    assert row == {"pictures": 220, "key": digest}
    assert COMMITMENT_MEASURE.rows is not None
    rows = [*target("theirs", *CLEARED), *COMMITMENT_MEASURE.rows(Tables([table]), None)]
    result = AUDIT.certify("Has it?", with_settings(SECRET, audited=RETURNED), pa.Table.from_pylist(rows, SUMMARY))
    assert result is not None
    golden([result.beyond, *[condition.text for condition in result.conditions]])


@pytest.mark.parametrize(
    ("changes", "is_planned"),
    [
        ({"audited": RETURNED}, True),
        ({"audited": RETURNED, "query": SMOKE.query}, False),  # the order can be guessed, so no key was promised
        ({"audited": RETURNED, "query.control": None}, False),
        ({}, False),
    ],
)
def test_commitment_is_planned_if_a_key_was_promised(changes: dict[str, Any], is_planned: bool) -> None:
    config = with_settings(SECRET, changes)
    roots = plan(config)
    assert is_planned == ("commitment" in roots)
    names = {marks(job.function).name for job in Plan.from_roots(roots).jobs.values()}
    assert is_planned == ("forgetting.commitment" in names)
    summary = roots["summary"]
    assert isinstance(summary, Job)
    assert is_planned == (commitment in {job.function for job in summary.inputs})
