"""Every preset plans what the paper trained, at its full size, and the numbers that it prints stand beside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.audits.forgetting import AUDIT, PRESETS
from tasks.audits.forgetting.audited import Given
from tasks.audits.forgetting.config import Examples, Forgetting
from tasks.audits.forgetting.presets import (
    NULL,
    TABLE1,
    TABLE2,
    numbers_by_name,
    numbers_by_target,
    printed_cell,
)
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import Target
from tasks.contract.job import Job, Roots
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tests.support import plans
from tests.support.plans import calls, pinned
from tests.support.published_data import acdc, cifar10, mnist, svhn
from tests.support.settings import with_settings


def write(root: Path) -> Path:
    """All data of the presets, in pixels of pure chance.

    What the audit looks at before it trains is whether there are images enough and whether two sets share any, so MNIST
    and CIFAR-10 are as long as the presets need, and no image is there twice. SVHN and ACDC are asked for whole.
    """
    chance = np.random.default_rng(0)

    def noise(*shape: int) -> NDArray[np.uint8]:
        return chance.integers(0, 256, shape, np.uint8)

    mnist(root / "mnist", noise(60_000, 28, 28), noise(50, 28, 28))
    cifar10(root / "cifar-10-batches-py", noise(30_000, 3072), noise(50, 3072))
    svhn(root / "svhn", noise(32, 32, 3, 50))
    acdc(root / "acdc")
    return root


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Roots]]:
    """The roots of each preset's cells; all of them together, since the data takes longer than the plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "_loaded", {})
        patch.setenv("ENGRAM_DATA", str(write(tmp_path_factory.mktemp("published"))))
        return {name: plans.planned("forgetting", AUDIT.cells(name)) for name in PRESETS}


@pytest.mark.parametrize(
    ("preset", "models", "replicates"),
    [
        ("table1", 2 + 8, 5),  # query and calibration models, and the paper's eight columns
        ("table1-without-svhn", 2 + 8 + 2 + 1, 5),  # with shares below the paper's, and a known one of 25 %
        ("table2", 2 + 7, 5),
        ("quickstart", 2 + 4 + 2, 5),
        ("plain-digits", 2 + 4 + 2, 5),
        ("null", 2 + 1 + 3, 5),
        ("smoke", 2 + 2 + 3, 2),
    ],
)
def test_every_model_is_trained_as_often_as_there_are_replicates(
    planned: dict[str, list[Roots]], preset: str, models: int, replicates: int
) -> None:
    found = calls(planned[preset])
    assert models * replicates == found["mixed.train"] == found["forgetting.ask"] == found["forgetting.fit"]
    assert 1 == found["forgetting.ratios"] == found["forgetting.distances"] == found["forgetting.summary"]


def test_unlearning_starts_from_models_that_are_audited_beside_it(planned: dict[str, list[Roots]]) -> None:
    found = calls(planned["unlearning"])
    # Query, calibration and retrained models, three known shares, and those that hold D_Q: four methods make others.
    assert (found["mixed.train"], found["unlearning.unlearn"]) == (7 * 5, 4 * 5)
    assert 11 * 5 == found["forgetting.ask"] == found["forgetting.fit"]


def test_the_figure_trains_nothing(planned: dict[str, list[Roots]]) -> None:
    assert calls(planned["figure2"]) == {"forgetting.examples": 1, "forgetting.summary": 1}


def test_sizes_of_the_query_set_share_the_models_that_never_see_it(planned: dict[str, list[Roots]]) -> None:
    sizes = planned["sensitivity"]
    assert [calls([each])["mixed.train"] for each in sizes] == [(2 + 8) * 5] * 3
    # Calibration models and the targets trained like these are the same for all three.
    assert calls(sizes)["mixed.train"] == (3 * 8 + 2) * 5


def test_all_of_mnist_is_one_query_set_however_it_is_written(planned: dict[str, list[Roots]]) -> None:
    largest = planned["sensitivity"][-1]
    # It adds the four shares that the paper has not to the table's models.
    assert calls([*planned["table1"], largest])["mixed.train"] == (2 + 8 + 4) * 5


def test_the_null_is_a_part_of_the_quickstart(planned: dict[str, list[Roots]]) -> None:
    both = calls([*planned["quickstart"], *planned["null"]])
    # But for the tenth of D_Q, which the quickstart has as a target.
    assert calls(planned["quickstart"])["mixed.train"] + 5 == both["mixed.train"]


def test_power_is_told_where_there_is_a_control_set(
    planned: dict[str, list[Roots]],
) -> None:
    told = {name for name, roots in planned.items() if any("power" in each for each in roots)}
    assert {"quickstart", "plain-digits", "unlearning", "smoke", "null", "table1-without-svhn"} == told


def test_the_papers_numbers_stand_beside_its_tables_alone(planned: dict[str, list[Roots]]) -> None:
    def table(roots: Roots) -> Any:
        summary = roots["summary"]
        assert isinstance(summary, Job)
        return summary.config.published

    found = {name: [table(each) for each in roots] for name, roots in planned.items()}
    beside = {"table1": ["table 1"], "table2": ["table 2"], "sensitivity": ["", "", "table 1"]}
    assert {name: beside.get(name, [""]) for name in PRESETS} == found


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_keeps_its_shape_at_tiny_scale(name: str, planned: dict[str, list[Roots]]) -> None:
    for config, roots in zip(AUDIT.cells(name), planned[name], strict=True):
        (small,) = pinned("forgetting", [AUDIT.tiny(config)])
        assert set(roots) == set(AUDIT.plan(small))
        assert getattr(config.audited, "targets", ()) == getattr(small.audited, "targets", ())


@pytest.mark.parametrize(("cell", "count"), [("table 1", 8), ("table 2", 7)])
def test_every_printed_rho_follows_from_the_printed_distances(cell: str, count: int) -> None:
    printed = numbers_by_target(cell)
    assert count == len(printed)
    assert [each.rho for each in printed.values()] == [
        round(each.ks / printed[NULL].ks, 3) for each in printed.values()
    ]


def test_numbers_are_known_by_the_names_of_targets() -> None:
    assert numbers_by_name("table 2")[str(Target(query=0.1, calibration=1.0))] == (0.579, 0.750)
    assert numbers_by_name("") == {}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TABLE1, "table 1"),
        (with_settings(TABLE1, targets=(NULL,), replicates=2, seed=3, decimals=5, link=5), "table 1"),
        (replace(TABLE1, query=QuerySet(Dataset("mnist", "0f"), control=None)), "table 1"),
        (TABLE2, "table 2"),
        (replace(TABLE1, question=Examples()), ""),
        (with_settings(TABLE1, epochs=3), ""),
        (with_settings(TABLE1, calibration_share=0.5), ""),
        (with_settings(TABLE1, audited=Given()), ""),
        (replace(TABLE1, query=QuerySet(Dataset("mnist"))), ""),
        (replace(TABLE1, query=QuerySet(Dataset("mnist"), 0, 1000, control=None)), ""),
        (with_settings(TABLE1, outside=Part(Dataset("photos"))), ""),
        (Forgetting(query=QuerySet(Dataset("digits"))), ""),
    ],
)
def test_table_of_a_run_is_that_with_its_data_and_training(config: Forgetting, expected: str) -> None:
    assert printed_cell(config.question, config) == expected
