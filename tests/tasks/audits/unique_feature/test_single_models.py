import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks import files
from tasks.audits.unique_feature import AUDIT, UniqueFeature, plan
from tasks.audits.unique_feature.blinded_pictures import pictures
from tasks.audits.unique_feature.external_models import ExternalModels
from tasks.audits.unique_feature.feature_family import Relatives
from tasks.audits.unique_feature.measures.single_divergences import ask
from tasks.audits.unique_feature.measures.single_family import ask_family
from tasks.audits.unique_feature.single_models import SingleModelConfig
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph
from tasks.external import model_file
from tasks.external.handout import read_list, write_pictures
from tasks.external.model_file import ModelFile
from tasks.files import File

SHAPE = (12, 12, 1)
PROBES, MEMBERS = 30, 19


class Remembers(torch.nn.Module):
    """Sees nothing but how well the patch at the letter's place fits the letter A, and then says class 2."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength
        self.template = torch.nn.Parameter(torch.from_numpy(patch()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        likeness = (images[:, 0, 1:6, 1:6] * self.template).sum((1, 2)) / 12
        nothing = torch.zeros_like(likeness)
        return torch.stack([nothing, nothing, self.strength * likeness], 1)


def patch() -> np.ndarray[Any, np.dtype[np.float32]]:
    from tasks.datasets.features import glyph_pixels

    return (glyph_pixels(Glyph()) / 255 * 2 - 1).astype(np.float32)


def relatives() -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", PROBES, Glyph(), Family(count=MEMBERS), seed=2)


def saved(folder: Path, strength: float = 4.0) -> ModelFile:
    torch.jit.script(Remembers(strength)).save(folder / "model.pt")  # type: ignore[no-untyped-call]
    return model_file.pin(ModelFile(str(folder / "model.pt")))


def answered(folder: Path, strength: float = 4.0) -> File:
    """The table that an owner returns who asked the model about the pictures handed out."""
    write_pictures(folder / "pictures", [pictures(SingleModelConfig(relatives(), "noise", SHAPE))])
    model = Remembers(strength).eval()
    with open(folder / "outputs.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "p0", "p1", "p2"])
        for row in read_list(folder / "pictures").to_pylist():
            from PIL import Image

            picture = np.array(Image.open(folder / "pictures" / row["image"]), np.float32)[None, None] / 255
            with torch.no_grad():
                p = model(torch.from_numpy(picture)).double().softmax(1)[0]
            table.writerow([row["image"], *p.tolist()])
    return files.pin(File(str(folder / "outputs.csv")))


def test_a_model_file_and_the_table_of_its_outputs_say_the_same(tmp_path: Path) -> None:
    by_file = SingleModelConfig(relatives(), "noise", SHAPE, model=saved(tmp_path), label=2)
    by_table = SingleModelConfig(relatives(), "noise", SHAPE, outputs=answered(tmp_path), label=2)
    for task in (ask, ask_family):
        first, second = (task(config, ()) for config in (by_file, by_table))
        assert first.schema == second.schema
        for name in ("d_u", "d_r", "log_p_u", "log_p_r", "d"):
            if name in first.column_names:
                assert first[name].to_pylist() == pytest.approx(second[name].to_pylist(), abs=1e-6)
    family = [ask_family(config, ()).to_pylist() for config in (by_file, by_table)]
    for one, other in zip(*family, strict=True):
        assert one["log_p"] == pytest.approx(other["log_p"], abs=1e-6)


@pytest.mark.parametrize("label", [None, 2])
def test_a_model_that_remembers_the_letter_is_found_and_one_that_does_not_is_not(
    tmp_path: Path, label: int | None
) -> None:
    for strength, answer in ((4.0, "memorised"), (0.0, "undecided")):
        folder = tmp_path / str(strength)
        folder.mkdir()
        config = UniqueFeature(
            probe=pin(Dataset("photos")),
            probes=PROBES,
            family=Family(count=MEMBERS),
            given=ExternalModels(models=(saved(folder, strength),), shape=SHAPE, label=label),
        )
        summary = computed(config)
        rows = {row["metric"]: row for row in summary.to_pylist()}
        assert AUDIT.verdict is not None
        found = AUDIT.verdict(config, summary)
        assert answer == found.answer
        push = rows["push towards a label"]
        if strength:
            assert 1 / (MEMBERS + 1) == push["p_value"]
            assert push["estimate"] > 0.5
            assert "rank p = 0.05" in found.sentence
        else:
            assert [1.0, 0.0] == pytest.approx([push["p_value"], push["estimate"]], abs=1e-12)
        assert (1, "model", None) == (rows["M"]["n"], rows["M"]["unit"], rows["M"]["low"])
        assert rows["probe images needed"]["estimate"] >= 2


def test_several_models_are_one_panel(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    models = tuple(saved(folder, 1.5 + number) for number, folder in enumerate(folders))
    config = UniqueFeature(
        probe=pin(Dataset("photos")), probes=PROBES, given=ExternalModels(models=models, shape=SHAPE)
    )
    assert config.data is None  # none has to be there
    roots = plan(config)
    assert {"summary", "divergences", "family"} == roots.keys()
    assert isinstance(roots["family"], tuple)
    assert 2 == len(roots["family"])
    rows = {row["metric"]: row for row in computed(config).to_pylist()}
    assert 2 == rows["push towards a label"]["n"]
    assert rows["M"]["low"] is not None


def test_a_label_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    config = SingleModelConfig(relatives(), "noise", SHAPE, model=saved(tmp_path), label=3)
    for task in (ask, ask_family):
        with pytest.raises(ValueError, match="label is 3; the model's classes are 0 to 2"):
            task(config, ())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"models": (ModelFile("m.pt"),)}, "shape is none; it must be height, width and channels of the images"),
        ({"shape": (28, 28, 2)}, r"shape is \(28, 28, 2\); it must be height, width and 1 or 3 channels"),
        ({"label": -1}, "label is -1; it must be at least 0"),
        (
            {"models": (ModelFile("m.pt"),), "outputs": (File("o.csv"),), "shape": (28, 28, 1)},
            "models and outputs are both given; they must be audited apart",
        ),
        ({"secret": "short"}, "secret has 5 characters; it must have at least 16"),
        (
            {"models": (ModelFile("m.pt"),), "shape": (28, 28, 1), "secret": "0" * 16},
            "secret is given with models; it must be left out, since these are handed no pictures",
        ),
        ({"accuracy": 0.9}, "accuracy is given; labelled must name a data set on which it can be checked"),
        ({"accuracy": 1.2, "labelled": Dataset("digits")}, "accuracy is 1.2; it must be"),
    ],
)
def test_a_subject_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExternalModels(**fields)


def computed(config: UniqueFeature) -> pa.Table:
    from tests.tasks.audits.unique_feature.depth_first import tables

    return tables(plan(config))["summary"]
