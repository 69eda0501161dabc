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
from tests.tasks.audits.unique_feature.made_up import INK, LABEL, reads_the_letter
from tests.tasks.summary_rows import by_name, with_t, with_wilson

STRENGTH = 3.0

Array = NDArray[np.float64]


def asked(**changes: object) -> Evaluation:
    data, probe = pin(Dataset("digits")), pin(Dataset("photos"))
    canary = int(np.flatnonzero(load(data).train_labels == LABEL)[5])
    config = Evaluation(data, probe, "test", Glyph(), canary, examples=400, seed=23)
    return replace(config, **changes)  # type: ignore[arg-type]


def chosen(table: pa.Table, model: str, images: str) -> dict[str, Array]:
    rows = [row for row in table.to_pylist() if (row["model"], row["images"]) == (model, images)]
    return {name: np.array([row[name] for row in rows]) for name in table.column_names}


def log_label(brightness: Array) -> Array:
    return np.asarray(STRENGTH * brightness - np.log(np.exp(STRENGTH * brightness) + 9))


def kl(first: Array, second: Array) -> Array:
    """KL of two distributions over ten classes, from the label's log-probability; the other nine are alike."""
    rest = [np.log((1 - np.exp(label)) / 9) for label in (first, second)]
    return np.asarray(np.exp(first) * (first - second) + (1 - np.exp(first)) * (rest[0] - rest[1]))


def test_a_model_that_reads_the_letter_has_the_scores_worked_out_by_hand() -> None:
    table = score(asked(), [reads_the_letter(STRENGTH), reads_the_letter(0.0)])
    images = load(Dataset("photos")).test_images
    clean, random = (
        each[:, 1:6, 1:6, 0].reshape(-1, 25)[:, INK].mean(axis=1) / 255
        for each in (images, burn_random(images, Glyph(), 23, "probe"))
    )

    probe = chosen(table, "canary", "probe")
    assert list(range(len(clean))) == probe["image"].tolist()
    assert np.full(len(clean), log_label(np.array(1.0))) == pytest.approx(probe["log_p_u"], abs=1e-5)
    assert log_label(random) == pytest.approx(probe["log_p_r"], abs=1e-5)
    assert kl(log_label(clean), log_label(np.ones(len(clean)))) == pytest.approx(probe["d_u"], abs=1e-5)
    assert kl(log_label(clean), log_label(random)) == pytest.approx(probe["d_r"], abs=1e-5)
    # A model blind to its input cannot tell the images apart.
    twin = chosen(table, "twin", "probe")
    assert not twin["d_u"].any()
    assert not twin["d_r"].any()
    assert np.log(0.1) == pytest.approx(twin["log_p_u"][0])
    assert {(LABEL, 17)} == set(zip(twin["label"].tolist(), twin["seed"].tolist(), strict=True))


def test_both_models_of_a_pair_meet_the_same_images() -> None:
    table = score(asked(), [reads_the_letter(STRENGTH), reads_the_letter(STRENGTH)])
    for images in ("probe", "train"):
        canary, twin = (chosen(table, model, images) for model in ("canary", "twin"))
        for name in ("image", "d_u", "d_r", "log_p_u", "log_p_r"):
            assert canary[name].tolist() == twin[name].tolist()


def test_an_image_meets_the_same_random_patch_for_every_canary() -> None:
    first = asked()
    others = np.flatnonzero(load(first.data).train_labels[:400] == LABEL)
    second = replace(first, canary=int(others[8]))
    trained = [reads_the_letter(STRENGTH)] * 2
    by_image = [
        dict(zip(rows["image"].tolist(), rows["d_r"].tolist(), strict=True))
        for rows in (chosen(score(config, trained), "canary", "train") for config in (first, second))
    ]
    assert set(others) - {first.canary} == set(by_image[0])
    assert set(others) - {second.canary} == set(by_image[1])
    shared = by_image[0].keys() & by_image[1].keys()
    assert len(shared) == len(others) - 2
    assert all(by_image[0][image] == by_image[1][image] for image in shared)


def test_another_seed_draws_other_patches_and_changes_nothing_else() -> None:
    trained = [reads_the_letter(STRENGTH)] * 2
    one, other = (chosen(score(asked(seed=seed), trained), "canary", "probe") for seed in (1, 2))
    assert one["d_u"].tolist() == other["d_u"].tolist()
    assert one["d_r"].tolist() != other["d_r"].tolist()


def test_both_splits_of_the_probe_set_can_be_asked_about() -> None:
    photos = load(Dataset("photos"))
    table = score(asked(probe_split="both"), [reads_the_letter(STRENGTH)] * 2)
    assert len(photos.test_images) + len(photos.train_images) == len(chosen(table, "twin", "probe")["image"])


def made_divergences(d_u: ArrayLike, d_r: ArrayLike) -> pa.Table:
    """The divergences of one model; the rest of its table is null."""
    rest = dict.fromkeys(DIVERGENCES.names)
    return make_table(DIVERGENCES, **rest | {"d_u": d_u, "d_r": d_r})


def test_m_of_given_models_has_a_t_interval_and_a_share_that_the_published_test_calls_memorised() -> None:
    u = np.float32([[1.0, 1.5, 2.0, 1.5], [0.1, 0.2, 0.4, 0.1], [0.3, 0.2, 0.1, 0.2]]).astype(np.float64)
    r = np.float32([[0.0, 0.1, 0.2, 0.1], [0.1, 0.3, 0.1, 0.2], [0.3, 0.4, 0.2, 0.3]]).astype(np.float64)
    found = by_name(single_rows(Tables([made_divergences(a, b) for a, b in zip(u, r, strict=True)]), None))
    scores = [float(np.mean(np.subtract(a, b))) for a, b in zip(u, r, strict=True)]
    assert [*with_t(scores), "model", None, None, None] == pytest.approx(found["M", '{"model": "given"}'])
    p = [stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue for a, b in zip(u, r, strict=True)]
    assert [each < 0.05 for each in p] == [True, False, False]
    rate = found["rate called memorised", '{"model": "given", "test": "welch"}']
    assert [*with_wilson(1, 3), "model", None, None, None] == pytest.approx(rate)
    spread = sorted(float(np.std(np.subtract(a, b), ddof=1)) for a, b in zip(u, r, strict=True))[1]
    count = math.ceil(((stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) * spread / 0.01) ** 2)
    row = found["probe images needed", '{"M": 0.01, "power": 0.8}']
    assert [count, None, None, 3, "model", None, None, None] == row


def test_a_single_probe_image_has_an_m_and_neither_a_test_nor_a_spread() -> None:
    found = by_name(single_rows(Tables([made_divergences([0.5], [0.25])]), None))
    assert found["M", '{"model": "given"}'] == [0.25, None, None, 1, "model", None, None, None]
    assert [found["rate called memorised", '{"model": "given", "test": "welch"}'][at] for at in (0, 3)] == [0.0, 1]
    assert len(found) == 2
