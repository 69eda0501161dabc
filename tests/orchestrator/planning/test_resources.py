"""Resources say only how jobs run: they change no key, no run and no comparison, but they are planned and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import toys

from orchestrator.errors import SpecError
from orchestrator.inspection.compare import compare
from orchestrator.inspection.preview import preview
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell, resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import Store
from tasks.contract.job import Inputs, Job, resources_of, task
from tasks.contract.quantities import ByteCount, Duration
from tasks.contract.resources import NO_RESOURCES, Resources
from tests.support.golden import Golden

HERE = Execution(address="none", mlflow="off", report=False)
STATED = Resources(4, 16, ByteCount(64 * 10**9), Duration(21600))


@pytest.mark.parametrize(
    "settings",
    [
        {"gpus": "4", "resources.cpus": "16", "memory": "64GB", "time": "6h"},
        {"resources": {"gpus": 4, "cpus": 16, "memory": 64_000_000_000, "time": 21600}},
        {"resources": "{gpus: 4, cpus: 16, memory: 64GB, time: 360m}"},
        {"resources": STATED},
    ],
)
def test_resources_change_neither_keys_nor_warnings(settings: dict[str, Any], tmp_path: Path) -> None:
    (cell,) = resolve_cells(Spec("toys", None, settings))
    plan = plan_of(cell)
    assert cell.config.resources == STATED
    assert list(plan.jobs) == list(plan_of(Cell("toys", toys.Config())).jobs)
    assert plan.resources == dict.fromkeys(plan.roots["parts"], STATED)
    previewed = preview(Spec("toys", None, settings, store=str(tmp_path / "none")))
    without = preview(Spec("toys", None, {}, store=str(tmp_path / "none")))
    assert previewed["cells"] == without["cells"]
    assert previewed["warnings"] == []
    assert [entry["line"] for entry in previewed["resources"]] == [
        "toys.part: 6 jobs, each with 4 GPUs, 16 processors, 64GB of memory, at most 6h"
    ]


def test_invalid_resources_name_their_field(golden: Golden) -> None:
    lines = []
    for settings in ({"memory": "64 gigs"}, {"time": "soon"}, {"gpus": "-1"}, {"cpus": "many"}):
        with pytest.raises(SpecError) as refused:
            resolve_cells(Spec("toys", None, settings))
        lines.append(str(refused.value))
    golden(lines)


def test_reopened_run_uses_and_records_new_resources(store: Store, tmp_path: Path) -> None:
    first = start([Cell("toys", toys.Config(at=2, trouble="raise", folder=str(tmp_path)))], store, HERE)
    assert first.state == "failed"
    (tmp_path / "mended").touch()
    config = toys.Config(at=2, trouble="raise", folder=str(tmp_path), resources=Resources(cpus=2))
    second = start([Cell("toys", config)], store, HERE)
    assert (second.run, second.state, second.jobs["done"]) == (first.run, "finished", 2)
    journal = Journal(store.folder("runs", second.run))
    assert journal.about()["config"]["resources"]["cpus"] == 2
    other = Journal(store.folder("runs", start([Cell("toys", toys.Config())], store, HERE).run))
    assert {field.name for field in compare(store, journal, other).fields} == {"at", "trouble", "folder"}


@dataclass(frozen=True)
class Shape:
    rows: int = 1


@task(version=1, gpus=2, cpus=3, memory=lambda config: 10**9 * config.rows)
def large(config: Shape, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, gpus=1, memory="2GB")
def shared(config: Shape, inputs: Inputs) -> pa.Table:
    return pa.table({})


@pytest.mark.parametrize(
    ("function", "stated", "expected"),
    [
        (large, NO_RESOURCES, Resources(2, 3, ByteCount(5 * 10**9))),
        (large, Resources(gpus=8, time=Duration(60)), Resources(8, 3, ByteCount(5 * 10**9), Duration(60))),
        (shared, NO_RESOURCES, Resources(memory=ByteCount(2 * 10**9))),
        (shared, STATED, STATED),
    ],
)
def test_job_overrides_resources_of_its_task(function: Any, stated: Resources, expected: Resources) -> None:
    assert resources_of(Job(function, Shape(5), resources=stated)) == expected


def test_only_jobs_with_equal_resources_share_a_group() -> None:
    stated = (NO_RESOURCES, Resources(cpus=2), Resources(cpus=2, time=Duration(60)), Resources(cpus=3))
    jobs = tuple(Job(shared, Shape(i), resources=resources) for i, resources in enumerate(stated))
    first, second, limited, third = Plan.from_roots({"all": jobs}).groups.values()
    assert second == limited
    assert len({first, second, third}) == 3


def test_fraction_of_several_gpus_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gpus is 1.5; above 1, it must be a whole number"):
        task(version=1, gpus=1.5)
