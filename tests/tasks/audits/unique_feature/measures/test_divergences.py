from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from tasks.audits.unique_feature.evaluation import Evaluation
from tasks.audits.unique_feature.measures.divergences import DIVERGENCES, score, single_rows
from tasks.contract.measure import Tables
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, burn_random
from tests.tasks.audits.unique_feature.made_up import INK, LABEL, letter_model
from tests.tasks.summary_rows import by_name, with_t, with_wilson

STRENGTH = 3.0

Array = NDArray[np.float64]


def evaluation_with(**changes: object) -> Evaluation:
    data = pin(Dataset("digits"))
    probe = pin(Dataset("photos"))
    canary = int(np.flatnonzero(load(data).train_labels == LABEL)[5])
    config = Evaluation(data, probe, "test", Glyph(), canary, examples=400, seed=23)
    return replace(config, **changes)  # type: ignore[arg-type]


def columns_of(table: pa.Table, model: str, images: str) -> dict[str, Array]:
    rows = []
    for row in table.to_pylist():
        if (row["model"], row["images"]) == (model, images):
            rows.append(row)
    return {name: np.array([row[name] for row in rows]) for name in table.column_names}


def log_label(brightness: Array) -> Array:
    return np.asarray(STRENGTH * brightness - np.log(np.exp(STRENGTH * brightness) + 9))


def kl(first: Array, second: Array) -> Array:
    """KL of two distributions over ten classes, from the label's log-probability; the other nine are equal."""
    other_log_p = [np.log((1 - np.exp(label)) / 9) for label in (first, second)]
    return np.asarray(np.exp(first) * (first - second) + (1 - np.exp(first)) * (other_log_p[0] - other_log_p[1]))


def test_letter_models_scores_agree_with_hand_calculation() -> None:
    table = score(evaluation_with(), [letter_model(STRENGTH), letter_model(0.0)])
    images = load(Dataset("photos")).test_images
    clean = images[:, 1:6, 1:6, 0].reshape(-1, 25)[:, INK].mean(axis=1) / 255
    random = burn_random(images, Glyph(), 23, "probe")[:, 1:6, 1:6, 0].reshape(-1, 25)[:, INK].mean(axis=1) / 255

    probe = columns_of(table, "canary", "probe")
    assert list(range(len(clean))) == probe["image"].tolist()
    assert np.full(len(clean), log_label(np.array(1.0))) == pytest.approx(probe["log_p_u"], abs=1e-5)
    assert log_label(random) == pytest.approx(probe["log_p_r"], abs=1e-5)
    assert kl(log_label(clean), log_label(np.ones(len(clean)))) == pytest.approx(probe["d_u"], abs=1e-5)
    assert kl(log_label(clean), log_label(random)) == pytest.approx(probe["d_r"], abs=1e-5)
    # A model blind to its input cannot distinguish the images.
    control = columns_of(table, "twin", "probe")
    assert not control["d_u"].any()
    assert not control["d_r"].any()
    assert np.log(0.1) == pytest.approx(control["log_p_u"][0])
    assert set(zip(control["label"].tolist(), control["seed"].tolist(), strict=True)) == {(LABEL, 17)}


def test_models_of_a_pair_see_equal_images() -> None:
    table = score(evaluation_with(), [letter_model(STRENGTH), letter_model(STRENGTH)])
    for images in ("probe", "train"):
        canary = columns_of(table, "canary", images)
        control = columns_of(table, "twin", images)
        for name in ("image", "d_u", "d_r", "log_p_u", "log_p_r"):
            assert canary[name].tolist() == control[name].tolist()


def test_random_patch_of_an_image_is_fixed() -> None:
    first = evaluation_with()
    label_rows = np.flatnonzero(load(first.data).train_labels[:400] == LABEL)
    second = replace(first, canary=int(label_rows[8]))
    models = [letter_model(STRENGTH)] * 2
    by_image = []
    for rows in (columns_of(score(config, models), "canary", "train") for config in (first, second)):
        by_image.append(dict(zip(rows["image"].tolist(), rows["d_r"].tolist(), strict=True)))
    assert set(label_rows) - {first.canary} == set(by_image[0])
    assert set(label_rows) - {second.canary} == set(by_image[1])
    shared = by_image[0].keys() & by_image[1].keys()
    assert len(shared) == len(label_rows) - 2
    assert all(by_image[0][image] == by_image[1][image] for image in shared)


def test_another_seed_changes_only_the_patches() -> None:
    models = [letter_model(STRENGTH)] * 2
    first_seed = columns_of(score(evaluation_with(seed=1), models), "canary", "probe")
    second_seed = columns_of(score(evaluation_with(seed=2), models), "canary", "probe")
    assert first_seed["d_u"].tolist() == second_seed["d_u"].tolist()
    assert first_seed["d_r"].tolist() != second_seed["d_r"].tolist()


def test_both_probe_splits_can_be_evaluated() -> None:
    photos = load(Dataset("photos"))
    table = score(evaluation_with(probe_split="both"), [letter_model(STRENGTH)] * 2)
    assert len(photos.test_images) + len(photos.train_images) == len(columns_of(table, "twin", "probe")["image"])


def divergence_table(d_u: ArrayLike, d_r: ArrayLike) -> pa.Table:
    """The divergences of one model; all other columns are null."""
    null_columns = dict.fromkeys(DIVERGENCES.names)
    return make_table(DIVERGENCES, **null_columns | {"d_u": d_u, "d_r": d_r})


def test_given_models_have_m_and_a_memorised_share() -> None:
    u = np.float32([[1.0, 1.5, 2.0, 1.5], [0.1, 0.2, 0.4, 0.1], [0.3, 0.2, 0.1, 0.2]]).astype(np.float64)
    r = np.float32([[0.0, 0.1, 0.2, 0.1], [0.1, 0.3, 0.1, 0.2], [0.3, 0.4, 0.2, 0.3]]).astype(np.float64)
    summary_rows = by_name(single_rows(Tables([divergence_table(a, b) for a, b in zip(u, r, strict=True)]), None))
    scores = [float(np.mean(np.subtract(a, b))) for a, b in zip(u, r, strict=True)]
    assert summary_rows["M", '{"model": "given"}'] == pytest.approx([*with_t(scores), "model", None, None, None])
    p = []
    for a, b in zip(u, r, strict=True):
        p.append(stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue)
    assert [p_value < 0.05 for p_value in p] == [True, False, False]
    rate = summary_rows["rate called memorised", '{"model": "given", "test": "welch"}']
    assert rate == pytest.approx([*with_wilson(1, 3), "model", None, None, None])
    spread = sorted(float(np.std(np.subtract(a, b), ddof=1)) for a, b in zip(u, r, strict=True))[1]
    count = math.ceil(((stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) * spread / 0.01) ** 2)
    row = summary_rows["probe images needed", '{"M": 0.01, "power": 0.8}']
    assert row == [count, None, None, 3, "model", None, None, None]


def test_single_probe_image_has_no_test() -> None:
    summary_rows = by_name(single_rows(Tables([divergence_table([0.5], [0.25])]), None))
    assert summary_rows["M", '{"model": "given"}'] == [0.25, None, None, 1, "model", None, None, None]
    assert summary_rows["rate called memorised", '{"model": "given", "test": "welch"}'][0] == 0.0
    assert summary_rows["rate called memorised", '{"model": "given", "test": "welch"}'][3] == 1
    assert len(summary_rows) == 2
