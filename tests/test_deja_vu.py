"""The audit of self-supervised models from outside: a page, other criteria and crops, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboards.pages import words
from tests.support.shell import Here, refusals

RUN = ("run", "deja_vu", "--preset", "smoke", "scale=tiny", "--address", "none")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A folder with a store, in which models for several tests are trained once."""
    return Here(tmp_path_factory.mktemp("deja-vu"))


def test_smoke_preset_gives_an_answer_and_page(here: Here) -> None:
    ended = here.json(*RUN, "--report")
    assert ended["state"] == "finished"
    text = words(Path(ended["report"]))
    assert "models trained on the image name its object" in text
    assert any(answer in text for answer in ("Undecided: ", "Not detected: "))


def test_tables_agree_on_every_image(here: Here) -> None:
    run = here.json(*RUN)["run"]
    crops = here.json("results", run, "crops")
    inferences = here.json("results", run, "inferences")
    assert len(crops) == 2 * 40  # four of each of ten classes, of either set
    image_ids = sorted(row["id"] for row in crops if row["left"] is not None)
    assert image_ids == sorted(row["id"] for row in inferences if row["epoch"] == 2)
    assert {row["epoch"] for row in inferences} == {1, 2}
    labels = {row["id"]: row["label"] for row in crops}
    assert all(labels[row["id"]] == row["label"] for row in inferences)
    scores = {}
    for row in here.json("results", run, "scores"):
        if row["epoch"] == 2:
            scores[(row["way"], row["percent"])] = row["score"]
    assert scores["both", 20] == pytest.approx((scores["A", 20] + scores["B", 20]) / 2, abs=1e-9)


def test_null_attacks_equal_images_with_other_models(here: Here) -> None:
    measured, null = (here.json(*RUN, f"training_sets={name}") for name in ("own", "other"))
    first = here.json("results", measured["run"], "inferences")
    second = here.json("results", null["run"], "inferences")
    assert [row["id"] for row in first] == [row["id"] for row in second]
    assert first != second
    assert measured["jobs"]["planned"] == null["jobs"]["planned"]


@pytest.mark.slow
def test_supervised_logits_are_a_separate_layer(here: Here) -> None:
    run = here.json(*RUN, "criterion=supervised")["run"]
    assert {row["layer"] for row in here.json("results", run, "inferences")} == {4}


@pytest.mark.slow
def test_layers_neighbours_crops_and_fine_tuning_are_configurable(here: Here) -> None:
    settings = ("layers=3,0", "k=5,9", "crop=corner", "fine_tuning=2", "confident_percent=50")
    ended = here.json(*RUN, *settings)
    rows = here.json("results", ended["run"], "scores")
    cells = {(row["epoch"], row["layer"], row["k"]) for row in rows}
    assert {(epoch, layer, k) for epoch in (1, 2, 3, 4) for layer in (3, 0) for k in (5, 9)} == cells
    assert {row["percent"] for row in rows if row["p_value"] is not None} == {50}
    assert {row["model"] for row in here.json("results", ended["run"], "probe")} == {"A", "B"}


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (("backbone=resnet19",), 2, "backbone is 'resnet19'; it must be one of "),
        (("accumulate=3",), 2, "accumulate is 3; it must divide batch, which is 20"),
        (("layers=7",), 2, "layers is (7,); it must be layers from 0, the backbone, to 3"),
        (("k=0",), 2, "k is (0,); it must be numbers of neighbours of at least 1"),
        (("confident_percent=0",), 2, "confident_percent is 0; it must be a percentage from 1 to 100"),
        (("criterion=barlow", "temperature=1"), 2, "temperature"),
        (("crop=corner", "smallest=9"), 2, "smallest"),
        (("public=99999",), 1, "X (public)"),
        (("smallest=99",), 2, "smallest is 99; none of the 40 images of A has a crop (periphery) with a shorter"),
        (("data=digits",), 1, "digits"),
        (("data=boxed:gone.csv",), 1, "gone.csv"),
        (("correlation=2",), 2, "correlation is 2.0; it must be a share from 0 to 1"),
        (("criterion=supervised", "fine_tuning=1"), 2, "fine_tuning is 1; it must be 0"),
        (("permutations=19",), 2, "permutations is 19; it must be at least 199"),
    ],
)
def test_invalid_settings_give_one_line_error(settings: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    message = Here(tmp_path)(*RUN, *settings, code=code).stderr
    assert says in message
    assert "Traceback" not in message
    assert len(refusals(message)) == 1
