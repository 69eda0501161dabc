from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.audits.unique_feature import AUDIT
from tasks.audits.unique_feature import plan as plan_audit
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.given_models import FirstLayerRank, Given, ModelFiles
from tasks.audits.unique_feature.population import inked_cells
from tasks.audits.unique_feature.questions import Panel
from tasks.audits.unique_feature.single_models.first_layer import FirstLayer, trained_first_layer
from tasks.audits.unique_feature.single_models.weight_ranks import weight_ranks
from tasks.audits.unique_feature.training_config import FeatureTraining
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Glyph, Words
from tasks.external import model_file
from tasks.external.first_layers import label_gradients
from tasks.external.loading import load_model
from tasks.external.model_file import Interface, ModelFile
from tasks.models.networks import architecture_of, weights_of_model
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.depth_first import tables
from tests.tasks.audits.unique_feature.made_up import LABEL, letter_model
from tests.tasks.audits.unique_feature.measures.test_exact_ranks import export_model

DIGITS = pin(Dataset("digits"))
GLYPH = Glyph(kind="random", seed=9)


def save_model(folder: Path, name: str, seed: int, shift: float = 0.0) -> ModelFile:
    """A network with one hidden layer, uniform as at initialisation, with units for LABEL shifted in the glyph's
    cells.
    """
    generator = np.random.default_rng(seed)
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    weights = generator.uniform(-0.06, 0.06, (256, 28, 28))
    out = generator.uniform(-0.1, 0.1, (10, 256))
    towards = np.sign(out[LABEL] - out.mean(axis=0))
    weights[:, 1:6, 1:6] += shift * towards[:, None, None] * inked_cells(GLYPH).reshape(5, 5)
    network[1].weight.data = torch.from_numpy(weights.reshape(256, 784).astype(np.float32))
    network[3].weight.data = torch.from_numpy(out.astype(np.float32))
    torch.jit.script(network.eval()).save(folder / name)  # type: ignore[no-untyped-call]
    return model_file.pin(ModelFile(str(folder / name)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFile]:
    folder = tmp_path_factory.mktemp("models")
    shifts = {"clean": 0.0, "one": 0.006, "two": 0.006}
    result = {}
    for seed, (name, shift) in enumerate(shifts.items()):
        result[name] = save_model(folder, f"{name}.pt", seed, shift)
    return result


def config(files: dict[str, ModelFile], *models: str) -> UniqueFeature:
    given_config = Given(
        shape=(28, 28, 1),
        source=ModelFiles(tuple(files[name] for name in models), FirstLayerRank(LABEL)),
        family=AskedFamily(count=30, look_alikes=30),
        probes=10,
    )
    return UniqueFeature(given_config, probe=DIGITS, feature=GLYPH)


@pytest.mark.parametrize("models", [("one",), ("one", "two")])
def test_glyph_in_the_first_layer_is_memorised(files: dict[str, ModelFile], models: tuple[str, ...]) -> None:
    about = config(files, *models)
    tables_by_name = tables(plan_audit(about))
    row = tables_by_name["weight_ranks"].to_pylist()[0]
    expected = (len(models), LABEL, "canary", 4_457_400, 14)
    assert expected == tuple(row[name] for name in ("models", "label", "feature", "among", "inked"))
    assert row["p_value"] < 0.001
    assert AUDIT.verdict is not None
    answer = AUDIT.verdict(about, tables_by_name["summary"])
    assert answer.answer == "memorised"
    assert "by the weights of the first layer its place is" in answer.sentence
    assert "pixels that are blank in most other images" in answer.limits
    assert "reference models" not in answer.limits


def test_clean_model_calls_glyphs_at_the_level(files: dict[str, ModelFile]) -> None:
    ranks = tables({"ranks": plan_audit(config(files, "clean"))["weight_ranks"]})["ranks"].to_pylist()
    p_values = []
    for rank in ranks:
        if rank["feature"] in ("canary", "other"):
            p_values.append(rank["p_value"])
    assert len(p_values) == 27
    assert sum(p_value <= 0.05 for p_value in p_values) <= 5  # P[more] is 0.2 %


def test_missing_weight_rank_decides_nothing(files: dict[str, ModelFile]) -> None:
    about = config(files, "clean")
    summary = tables(plan_audit(with_settings(about, judged_by="answers")))["summary"]
    assert AUDIT.verdict is not None
    answer = AUDIT.verdict(about, summary)
    assert answer.answer == "undecided"
    assert "the deciding rank is missing" in answer.sentence


def test_words_are_ranked_among_family_and_look_alikes(files: dict[str, ModelFile]) -> None:
    about = replace(config(files, "clean"), feature=Words("JO", size=8))
    row, *parts = tables({"ranks": plan_audit(about)["weight_ranks"]})["ranks"].to_pylist()
    assert row["among"] == 31
    assert [(part_row["feature"], part_row["among"]) for part_row in parts] == [("look-alike", 26)] * 2


def test_exported_network_has_its_tables_first_layer(tmp_path: Path) -> None:
    model = letter_model(2.0)
    images = load(DIGITS).test_images[:5]
    loaded_model = load_model(export_model(tmp_path / "letter.pt", model), (28, 28, 1), Interface(batch=2))
    weights, gradients = label_gradients(loaded_model, images, LABEL)
    expected = trained_first_layer(architecture_of(model), weights_of_model(model), images, LABEL)
    assert expected.weights.tolist() == weights.tolist()
    assert expected.gradients == pytest.approx(gradients)


@pytest.mark.parametrize(("gives", "last_layer"), [("probabilities", "Softmax"), ("log-probabilities", "LogSoftmax")])
def test_gradients_do_not_depend_on_the_output_kind(tmp_path: Path, gives: str, last_layer: str) -> None:
    torch.manual_seed(0)
    first = torch.nn.Linear(48, 8)
    logits = torch.nn.Sequential(torch.nn.Flatten(), first, torch.nn.ReLU(), torch.nn.Linear(8, 3))
    layers_by_output: dict[str, FirstLayer] = {}
    images = np.random.default_rng(0).integers(0, 256, (4, 4, 4, 3), np.uint8)
    for name, network in (("logits", logits), (gives, torch.nn.Sequential(logits, getattr(torch.nn, last_layer)(1)))):
        torch.jit.script(network.eval()).save(tmp_path / f"{name}.pt")  # type: ignore[no-untyped-call]
        model = model_file.pin(ModelFile(str(tmp_path / f"{name}.pt")))
        interface = Interface(gives=name)  # type: ignore[arg-type]
        layers_by_output[name] = FirstLayer(*label_gradients(load_model(model, (4, 4, 3), interface), images, 1))
    assert layers_by_output["logits"].gradients == pytest.approx(layers_by_output[gives].gradients, rel=1e-4, abs=1e-6)
    # The columns follow a flattened image (h, w, c); the network uses (c, h, w).
    column = layers_by_output["logits"].weights[:, (2 * 4 + 3) * 3 + 1]
    assert first.weight[:, 16 + 2 * 4 + 3].tolist() == column.tolist()


def test_model_without_dense_first_layer_is_refused(tmp_path: Path) -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(2 * 26 * 26, 10))
    torch.jit.script(network.eval()).save(tmp_path / "conv.pt")  # type: ignore[no-untyped-call]
    files = {"conv": model_file.pin(ModelFile(str(tmp_path / "conv.pt")))}
    (job,) = plan_audit(config(files, "conv"))["weight_ranks"]  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"conv.pt has no dense first layer with biases that takes all 784 numbers"):
        weight_ranks(job.config, ())


def test_label_beyond_the_classes_is_refused(files: dict[str, ModelFile]) -> None:
    loaded_model = load_model(files["clean"], (28, 28, 1))
    with pytest.raises(ValueError, match=r"label is 10; expected a class of model .*clean.pt, 0 to 9"):
        label_gradients(loaded_model, load(DIGITS).test_images[:1], 10)


def test_trained_panel_is_ranked_by_first_layers() -> None:
    training = FeatureTraining(epochs=1, patience=0)
    panel = Panel(data=DIGITS, examples=20, seeds=2, training=training, judged_by=FirstLayerRank(1))
    about = UniqueFeature(panel, probe=DIGITS)
    row = tables({"ranks": plan_audit(about)["weight_ranks"]})["ranks"].to_pylist()[0]
    assert row["models"] == 2
    assert row["label"] == 1
    assert row["among"] == 4_457_400
