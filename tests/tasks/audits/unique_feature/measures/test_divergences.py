from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tasks.audits.unique_feature.evaluation import Evaluation
from tasks.audits.unique_feature.measures.divergences import score
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, random_patches
from tests.tasks.audits.unique_feature.made_up import INK, LABEL, reads_the_letter

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
    clean = load(Dataset("photos")).test_images[:, 1:6, 1:6, 0].reshape(-1, 25)[:, INK].mean(axis=1) / 255
    patches = random_patches(len(clean), 1, Glyph(), 23, "probe")
    random = patches.reshape(-1, 25)[:, INK].mean(axis=1) / 255

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
