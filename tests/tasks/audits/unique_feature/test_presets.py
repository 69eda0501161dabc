"""Every preset plans what the paper trained, and twins beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from orchestrator.planning.identity import run_id
from tasks.audits.unique_feature import AUDIT, PRESETS
from tasks.audits.unique_feature.presets import PRINTED, PUBLISHED, printed_cell, published_numbers
from tasks.contract.job import Job, marks
from tests.support.plans import planned, preset_plan
from tests.support.published_data import black, cifar10, mnist
from tests.support.settings import with_settings
from tests.support.shell import ROOT

PUBLISHED_PRESETS = [name for name in PRESETS if name.startswith(("table", "figure", "section", "estimators"))]


@pytest.fixture(scope="module", autouse=True)
def _published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MNIST, Fashion-MNIST and CIFAR-10 of black images with numbers, as ENGRAM_DATA."""
    root = tmp_path_factory.mktemp("published")
    for folder in ("mnist", "fashion-mnist"):
        mnist(root / folder, black(60_000, 28, 28), black(10_000, 28, 28))
    cifar10(root / "cifar-10-batches-py", black(50_000, 3072), black(10_000, 3072))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGRAM_DATA", str(root))
        yield


@cache
def networks(preset: str) -> dict[str, str]:
    """What each training of the preset is for, by its key."""
    found: dict[str, str] = {}
    for key, job in preset_plan("unique_feature", preset).jobs.items():
        match marks(job.function).name:
            case "classifier.train":
                found[key] = "canary" if job.config.burnt else "twin"
            case "unique_feature.train_ranked":
                found[key] = "canary"
            case "unique_feature.train_twin":
                found[key] = "twin"
            case "unique_feature.influence":
                found[key] = "base" if job.config.canary is None else "traced again"
            case "unique_feature.course":
                found[key] = "course"
    return found


def trainings(*presets: str) -> Counter[str]:
    """Networks to train for these presets together, by what they are for."""
    return Counter({key: role for preset in presets for key, role in networks(preset).items()}.values())


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("table1", {"canary": 200, "twin": 200}),
        ("table1-mnist", {"canary": 100, "twin": 100}),
        ("table2", {"canary": 180, "twin": 180, "base": 6}),
        ("table2-mnist", {"canary": 30, "twin": 30, "base": 1}),
        ("table3", {"canary": 450, "twin": 450, "base": 15}),  # with the three plain cells of Table 2
        ("figure2", {}),
        ("figure3a", {"canary": 150, "twin": 150}),
        ("figure3b", {"canary": 100, "twin": 100}),
        ("figure3c", {"course": 2}),
        ("figure4", {"canary": 200, "twin": 200}),
        ("figure5", {"canary": 500, "twin": 500}),
        ("figure6", {"canary": 500, "twin": 500}),
        ("section33", {"canary": 90, "twin": 90, "base": 3, "traced again": 6}),
        ("estimators", {"canary": 200, "twin": 200}),
    ],
)
def test_a_preset_plans_its_trainings(preset: str, expected: dict[str, int]) -> None:
    assert expected == trainings(preset)


def test_every_published_preset_is_counted() -> None:
    counted = {
        mark.args[1][at][0] for mark in test_a_preset_plans_its_trainings.pytestmark for at in range(len(mark.args[1]))
    }
    assert set(PUBLISHED_PRESETS) == counted


def test_together_they_are_the_papers_trainings_and_equal_ones_are_shared() -> None:
    # Hartley & Tsaftaris: 100 canaries by 5 seeds on two data sets serve Table 1 and Figures 3a, 4, 5 and 6.
    random = trainings("table1", "figure3a", "figure4", "figure5", "figure6")
    assert random == {"canary": 1000, "twin": 1000}
    # 18 cells of 30 canaries, ranked on a canary-free network each.
    ranked = trainings("table2", "table3")
    assert ranked == {"canary": 540, "twin": 540, "base": 18}
    # Section 3.3 adds two, of MNIST; here each of its three cells has them.
    more = trainings("table2", "section33") - trainings("table2")
    assert more == {"traced again": 6}
    # The letter A's trainings of the estimators are those of Table 1.
    both = trainings("table1", "estimators")
    assert both == {"canary": 300, "twin": 300}


def test_every_printed_number_stands_beside_the_cell_that_repeats_it() -> None:
    for name, config in PRINTED.items():
        assert name == printed_cell(config)
    for preset in ("table1", "table2", "table3"):
        assert all(printed_cell(config).startswith(preset.replace("table", "table ")) for config in AUDIT.cells(preset))
    assert 20 == len(PRINTED) == len(PUBLISHED)
    assert published_numbers(printed_cell(AUDIT.cells("table3")[-1])).m_where_positive == 1.7
    assert printed_cell(*AUDIT.cells("quickstart")) == ""


def test_a_cell_whose_trainings_are_in_links_repeats_the_printed_one() -> None:
    (roots,) = planned("unique_feature", [with_settings(AUDIT.cells("table1")[0], link=100)])
    summary = roots["summary"]
    assert isinstance(summary, Job)
    assert printed_cell(AUDIT.cells("table1")[0]) == summary.config.cell != ""


def test_the_quickstart_is_the_run_that_the_docs_show() -> None:
    (config,) = AUDIT.cells("quickstart")
    run = run_id("unique_feature", list(preset_plan("unique_feature", "quickstart").jobs), config)
    assert f"\n{run}: 63 jobs" in (ROOT / "docs" / "unique_feature.md").read_text()
