"""The presets of every audit: their settings, and the jobs and tables that they plan at full size and at tiny scale.

The published data are replaced by images of the same number and shape; presets whose data or models cannot be replaced
are planned at tiny scale only. Groups of presets show which jobs they share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.spec import audits
from orchestrator.spec.config_parts import flatten, plain
from tasks.contract.job import Job, Roots, marks
from tasks.datasets import catalog
from tests.support import plans, published_data
from tests.support.golden import Golden
from tests.support.published_data import acdc, black, celeba, cifar10, mnist, svhn

AUDITS = ("deja_vu", "density", "forgetting", "membership", "relational", "text", "unique_feature")
# Jobs of all these presets together; an index selects one cell of a preset.
GROUPS = {
    "deja_vu": ["quickstart null"],
    "density": [
        "mnist3 mnist4 cifar10 celeba",
        "mnist3 mnist4 cifar10 celeba figure1 figure2 figure3 figure4 figure5 figure6 figure7 figure8 figure9 figure10 "
        "figure11 figure12 figure13",
    ],
    "forgetting": ["sensitivity[0]", "sensitivity[1]", "sensitivity[2]", "table1 sensitivity[2]", "quickstart null"],
    "relational": ["quickstart null", "figure1 figure5", "private[1] private[2] private[3]"],
    "unique_feature": [
        # Hartley & Tsaftaris: 100 canaries by 5 seeds on two data sets serve Table 1 and Figures 3a, 4, 5 and 6.
        "table1 figure3a figure4 figure5 figure6",
        # 18 cells of 30 canaries, ranked on a canary-free network each.
        "table2 table3",
        # Section 3.3 adds two trainings, of MNIST; here each of its three cells has them.
        "table2",
        "table2 section33",
        # The estimators use the trainings of the letter A from Table 1.
        "table1 estimators",
    ],
}
PUBLISHED = re.compile(r"(mnist|cifar10|imagenet|drop|squad|purchase100|texas100)\b|hub:")


def write_few_images(root: Path) -> None:
    """Black images: the plans of `density` depend on the number of images only if all are audited."""
    mnist(root / "mnist", black(200, 28, 28), black(100, 28, 28))
    cifar10(root / "cifar-10-batches-py", black(200, 3072), black(100, 3072))
    celeba(root / "celeba", 200, 100)


def write_noise(root: Path) -> None:
    """Images of noise in the number that the presets of `forgetting` draw: the audit looks for equal images before it
    trains.
    """
    generator = np.random.default_rng(0)

    def noise(*shape: int) -> Any:
        return generator.integers(0, 256, shape, np.uint8)

    mnist(root / "mnist", noise(60_000, 28, 28), noise(50, 28, 28))
    cifar10(root / "cifar-10-batches-py", noise(30_000, 3072), noise(50, 3072))
    svhn(root / "svhn", noise(32, 32, 3, 50))
    acdc(root / "acdc")


def write_black_images(root: Path) -> None:
    for folder in ("mnist", "fashion-mnist"):
        mnist(root / folder, black(60_000, 28, 28), black(10_000, 28, 28))
    cifar10(root / "cifar-10-batches-py", black(50_000, 3072), black(10_000, 3072))


WRITERS: dict[str, Callable[[Path], None]] = {
    "density": write_few_images,
    "forgetting": write_noise,
    "unique_feature": write_black_images,
}


@pytest.fixture(scope="module", params=AUDITS)
def audit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An audit; ENGRAM_DATA is a folder with the published data."""
    name = str(request.param)
    root = tmp_path_factory.mktemp(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published_data, "numbered", 0)  # the same images in any order of tests
        if name in WRITERS:
            WRITERS[name](root)
        patch.setattr(catalog, "_loaded", {})
        patch.setattr(plans, "DIGESTS", {})
        patch.setenv("ENGRAM_DATA", str(root))
        yield name
        plan_preset.cache_clear()


@cache
def plan_preset(audit: str, preset: str) -> list[Roots]:
    return plans.planned(audit, audits.find(audit).audit.cells(preset))


def has_data(audit: str, config: Any) -> bool:
    """Whether the data and models of a config are embedded or were replaced."""
    return audit in WRITERS or not any(PUBLISHED.match(str(value)) for _, value in flatten(plain(config)))


def count_jobs(roots: list[Roots]) -> dict[str, int]:
    """The number of jobs of each task; the trainings of `unique_feature` by purpose."""
    counts: Counter[str] = Counter()
    for job in plans.union(roots).jobs.values():
        name = marks(job.function).name
        if name == "classifier.train" and hasattr(job.config, "burnt"):
            name += " (canary)" if job.config.burnt else " (twin)"
        if name == "unique_feature.influence":
            name += " (base)" if job.config.canary is None else " (traced again)"
        counts[name] += 1
    return dict(sorted(counts.items()))


def list_settings(config: Any) -> dict[str, Any]:
    """The settings that differ from the defaults."""
    defaults = dict(flatten(plain(type(config)())))
    settings = {}
    for name, value in flatten(plain(config)):
        if name not in defaults or value != defaults[name] or type(value) is not type(defaults[name]):
            settings[name] = value
    return settings


def describe_plan(roots: list[Roots]) -> dict[str, Any]:
    summaries = []
    for tables_of_cell in roots:
        summary = tables_of_cell["summary"]
        assert isinstance(summary, Job)
        settings = flatten(plain(summary.config))
        summaries.append({name: value for name, value in settings if not isinstance(value, list)})
    tables = [" ".join(sorted(tables_of_cell)) for tables_of_cell in roots]
    return {"jobs": count_jobs(roots), "tables": merge(tables), "summary": merge(summaries)}


def merge(values: list[Any]) -> Any:
    """The values of all cells, once if they are equal."""
    return values[0] if all(value == values[0] for value in values) else values


def test_presets_have_their_settings_and_plans(golden: Golden, audit: str) -> None:
    definition = audits.find(audit).audit
    for preset in definition.presets:
        cells = definition.cells(preset)
        described: dict[str, Any] = {"settings": [list_settings(cell) for cell in cells]}
        tiny = plans.planned(audit, [definition.tiny(cell) for cell in cells])
        if all(has_data(audit, cell) for cell in cells):
            full = plan_preset(audit, preset)
            described["plan"] = describe_plan(full)
            assert [set(roots) for roots in full] == [set(roots) for roots in tiny]
        else:
            described["plan at tiny scale"] = describe_plan(tiny)
        golden.compare(f"presets/{audit}.yaml", preset, described)


def test_presets_share_jobs(golden: Golden, audit: str) -> None:
    for group in GROUPS.get(audit, []):
        roots: list[Roots] = []
        for preset, index in re.findall(r"([\w-]+)(?:\[(\d+)\])?", group):
            cells = plan_preset(audit, preset)
            roots += [cells[int(index)]] if index else cells
        golden.compare(f"presets/{audit}.yaml", f"jobs of {group}", count_jobs(roots))
