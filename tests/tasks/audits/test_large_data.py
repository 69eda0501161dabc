"""Every audit of images gives the same tables whether its images are in memory or read by rows."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, is_dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from PIL import Image
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tasks.audits.density.presets import PRESETS as DENSITY
from tasks.audits.forgetting.presets import PRESETS as FORGETTING
from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.audits.membership.loss_config import LossAttack, ModelAndSets, TrainedExample
from tasks.audits.membership.presets import SMALL as SMALL_RECIPE
from tasks.audits.unique_feature.presets import PRESETS as UNIQUE_FEATURE
from tasks.datasets import catalog, images, picture_rows
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.datasets.large_images import LargeImages
from tasks.external import split_audit
from tasks.external.audit_inputs import read_sets
from tasks.external.model_file import ModelFile
from tasks.external.model_file import pin as pin_model
from tests.support.plans import compute_roots, planned

Tables = dict[str, dict[str, pa.Table]]  # by audit and name
SMALL = replace(SMALL_RECIPE, epochs=2)
CONFIGS = {
    "membership halves": Membership(Halves(Dataset("digits"), 80, models=4, shift_pixels=1), SMALL),
    "membership canaries": Membership(
        Canaries(Dataset("digits"), models=2, canaries=20, mislabelled=True, canary_images="glyph"), SMALL
    ),
    "membership loss": Membership(LossAttack(TrainedExample(examples=40), references=4), SMALL),
    "density": replace(DENSITY["smoke"], question=replace(DENSITY["smoke"].question, examples=200, samples=2)),
    "forgetting": FORGETTING["smoke"],
    "unique_feature": UNIQUE_FEATURE["smoke"],
}


@pytest.fixture(scope="module")
def both_routes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, Tables]:
    """The tables of all audits, computed from images in memory and, in another process, from images by rows."""
    folder = tmp_path_factory.mktemp("digits")
    digits = catalog.load(Dataset("digits"))
    for name, split in (("train", digits.train), ("test", digits.test)):
        for row, (pixels, label) in enumerate(zip(split.images, split.labels.tolist(), strict=True)):
            path = folder / "images" / name / str(label) / f"{row:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[..., 0]).save(path)
    data = pin(Dataset(f"folder:{folder / 'images'}#28x28#grey"))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        by_rows = pool.submit(tables_by_rows, data, folder / "cache")
        in_memory = compute_tables(data)
        assert isinstance(catalog.load(data), Images)
        return in_memory, by_rows.result()


def tables_by_rows(data: Dataset, cache: Path) -> Tables:
    """The tables if no set of images and no array derived from one fits into memory, and blocks have 100 rows."""
    os.environ["ENGRAM_CACHE"] = str(cache)
    catalog.LARGE = 0
    picture_rows.IN_MEMORY = 0
    images.BLOCK = 100 * 28 * 28
    tables = compute_tables(data)
    assert isinstance(catalog.load(data), LargeImages)
    return tables


def compute_tables(data: Dataset) -> Tables:
    tables = {}
    for name, config in CONFIGS.items():
        audit = name.partition(" ")[0]
        (roots,) = planned(audit, [with_data(config, data)])
        tables[name] = compute_roots(roots)
    return tables | compute_given_model(Path(data.name.removeprefix("folder:").partition("#")[0]))


def compute_given_model(folder: Path) -> Tables:
    """The tables of an audit of a model with its members and others, given as a file and as an object."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(28 * 28, 10)).eval()
    model = folder.parent / f"{os.getpid()}.pt"
    torch.jit.trace(network, torch.zeros(1, 1, 28, 28)).save(str(model))  # type: ignore[no-untyped-call]
    names = [f"folder:{folder / part}#28x28#grey" for part in ("train", "test")]
    source = ModelAndSets(pin_model(ModelFile(str(model))), *(pin(Dataset(name)) for name in names))
    # The processes of both routes may have other numbers of threads, which change rounding.
    with threadpool_limits(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_audit, "TREES", 2)
        (roots,) = planned("membership", [Membership(LossAttack(source, references=4), SMALL)])
        scores, _ = split_audit.score_sets(*read_sets(*names), network)
        return {"given file": compute_roots(roots), "given object": {"scores": scores}}


def with_data(part: Any, data: Dataset) -> Any:
    """The configuration with this data set in place of every other."""
    if isinstance(part, Dataset):
        return data
    if isinstance(part, tuple):
        return tuple(with_data(item, data) for item in part)
    if not is_dataclass(part):
        return part
    values = {field.name: with_data(getattr(part, field.name), data) for field in fields(part) if field.init}
    return replace(part, **{name: value for name, value in values.items() if value != getattr(part, name)})


@pytest.mark.parametrize("name", [*CONFIGS, "given file", "given object"])
def test_images_by_rows_give_identical_tables(name: str, both_routes: tuple[Tables, Tables]) -> None:
    in_memory, by_rows = (tables[name] for tables in both_routes)
    assert in_memory.keys() == by_rows.keys()
    for table_name, table in in_memory.items():
        assert table.equals(by_rows[table_name]), table_name
