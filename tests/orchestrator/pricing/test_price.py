"""The price of a plan: from timings in this store, otherwise from reference timings and this machine's speed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import toys

from orchestrator.planning.plan import Plan, plan_of
from orchestrator.pricing import reference as reference_timings
from orchestrator.pricing.price import (
    Price,
    describe_price,
    highest_price,
    predict_seconds,
    price_plan,
    prices_by_group,
)
from orchestrator.pricing.reference import Reference, Span, Speed, load_reference
from orchestrator.run_folder import other_runs
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.contract.job import Job
from tasks.contract.quantities import Duration
from tasks.contract.resources import Resources
from tests.orchestrator.scheduling.test_schedule import Number, score, train

HERE = Speed(2e-3, 4e-3)


def a_plan(parts: int) -> tuple[Plan, str, str]:
    """A plan of parts below one sum, and the groups of both kinds of job."""
    plan = Plan.from_roots(toys.plan(toys.Config(parts=parts)))
    part = plan.groups[plan.roots["parts"][0]]
    total = plan.groups[plan.roots["summary"][0]]
    return plan, part, total


def plan_preset(audit: str, preset: str, **settings: object) -> Plan:
    (cell,) = pin_cells(resolve_cells(Spec(audit, preset, settings)), {})
    return plan_of(cell)


def test_slots_share_the_work_and_startup_is_added() -> None:
    plan, part, total = a_plan(8)
    seconds = {part: 3.0, total: 1.0, other_runs.startup_group("local"): 5.0}
    assert price_plan(plan, list(plan.jobs), seconds, 2).here.expected == 5.0 + (8 * 3.0 + 1.0) / 2
    alone = price_plan(plan, list(plan.jobs), seconds, 1, "none")
    assert (alone.here.expected, alone.ran_here, alone.unknown) == (8 * 3.0 + 1.0, True, ())
    assert alone.here.low < alone.here.expected < alone.here.high


def test_gpu_jobs_share_the_gpus() -> None:
    plan = Plan.from_roots({"trained": tuple(Job(train, Number(i)) for i in range(6)), "sums": Job(score, Number(0))})
    tasks = {"schedule.train": 3.0, "schedule.score": 4.0}
    seconds = {plan.groups[key]: tasks[plan.task(key)] for key in plan.jobs}
    assert price_plan(plan, plan.jobs, seconds, 16, "none", gpus=2).here.expected == 6 * 3.0 / 2
    assert price_plan(plan, plan.jobs, seconds, 2, "none").here.expected == (6 * 3.0 + 4.0) / 2


def test_dependent_jobs_add_their_times() -> None:
    plan, part, total = a_plan(8)
    assert price_plan(plan, list(plan.jobs), {part: 3.0, total: 1.0}, 100).here.expected == 4.0


def test_stored_jobs_are_free_and_untimed_ones_unknown() -> None:
    plan, _part, total = a_plan(8)
    assert Price(Span(0.0, 0.0, 0.0), ran_here=True) == price_plan(plan, [], {}, 2)
    partial_price = price_plan(plan, list(plan.jobs), {total: 8.0}, 2, "none")
    assert partial_price.unknown == ("toys.part",)
    assert partial_price.bounds == (partial_price.here.low, None)
    assert describe_price(partial_price, 2) == "at least 6 s on 2 workers: nothing is known about the time of toys.part"
    assert "the time of toys.part, toys.total" in describe_price(price_plan(plan, list(plan.jobs), {}, 2), 2)


def test_reference_timings_are_scaled_by_machine_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_preset("unique_feature", "quickstart")
    reference = load_reference()
    monkeypatch.setattr(reference_timings, "machine_speed", lambda speed_folder: reference.speed)
    same = price_plan(plan, list(plan.jobs), {}, 2, "none")
    slow = Speed(3 * reference.speed.product, 3 * reference.speed.convolution)
    monkeypatch.setattr(reference_timings, "machine_speed", lambda speed_folder: slow)
    slower = price_plan(plan, list(plan.jobs), {}, 2, "none")
    assert same.unknown == ()
    assert not same.ran_here
    assert slower.here.expected == pytest.approx(3 * same.here.expected)
    one = price_plan(plan, list(plan.jobs), {}, 1, "none")
    assert one.here.expected == pytest.approx(2 * slower.here.expected, rel=0.1)
    assert same.here.low < same.here.expected < same.here.high
    # Timings of this store replace the reference if they exist, and are more precise.
    group = plan.groups[plan.roots["summary"][0]]
    assert price_plan(plan, list(plan.jobs), {group: 1000.0}, 2, "none").here.expected > 500


@pytest.mark.parametrize(
    "spec",
    [
        Spec("unique_feature", "ladder"),
        Spec("unique_feature", "ladder", {"network": "cnn1"}),
        Spec("density", "ladder"),
        Spec("density", "mitigation", {"data": "digits"}),
        Spec("relational", "private"),
    ],
    ids=lambda spec: f"{spec.audit} {spec.preset}",
)
def test_private_trainings_have_a_higher_price(monkeypatch: pytest.MonkeyPatch, spec: Spec) -> None:
    monkeypatch.setattr(reference_timings, "machine_speed", lambda speed_folder: load_reference().speed)
    for cell in pin_cells(resolve_cells(spec), {}):
        plan = plan_of(cell)
        price = price_plan(plan, list(plan.jobs), {}, 2, "none")
        assert price.unknown == ()
        assert price.here.low < price.here.expected < price.here.high
    units = load_reference().units
    privately = {}
    for unit, seconds in units.items():
        if unit.startswith("privately "):
            privately[unit] = seconds
    assert all(seconds > units[unit.removeprefix("privately ")] for unit, seconds in privately.items())


def test_unmeasurable_machine_widens_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_preset("unique_feature", "smoke")
    monkeypatch.setattr(reference_timings, "machine_speed", lambda speed_folder: load_reference().speed)
    sure = price_plan(plan, list(plan.jobs), {}, 2, "none").here
    monkeypatch.setattr(reference_timings, "machine_speed", lambda speed_folder: None)
    unsure = price_plan(plan, list(plan.jobs), {}, 2, "none").here
    assert (sure.expected, 2 * sure.high) == pytest.approx((unsure.expected, unsure.high), rel=0.1)


def test_untimed_task_is_bounded_by_its_audit() -> None:
    reference = load_reference()
    bounds = reference.bounds_of_family("density.never_timed", 3)
    spans = []
    for task in reference.tasks:
        if task.startswith("density."):
            spans.append(reference.estimate_task(task, 3))
    assert bounds == (min(span.low for span in spans if span), max(span.high for span in spans if span))
    assert reference.bounds_of_family("somebody.elses", 3) is None


def test_other_image_sizes_are_scaled() -> None:
    reference = Reference(HERE, {"train cnn1 on 28x28x1": 1e-3, "train mlp1 on 28x28x1": 1e-4}, {}, {})
    larger = reference.estimate_work({"train cnn1 on 56x56x1": 100.0})
    assert larger is not None
    assert larger.expected == pytest.approx(0.4)
    assert larger.high / larger.expected > 2
    assert reference.estimate_work({"train mine.net:build on 28x28x1": 100.0}) is None
    assert pytest.approx(reference.bounds("train mine.net:build on 28x28x1", 100.0)) == (1e-2, 1e-1)


def test_task_time_follows_power_law_in_tables() -> None:
    reference = Reference(HERE, {}, {"sums": [(10, 1.0), (40, 16.0)]}, {})
    assert pytest.approx([reference.estimate_task("sums", n).expected for n in (10, 20, 40)]) == [1.0, 4.0, 16.0]  # type: ignore[union-attr]
    assert pytest.approx(reference.estimate_task("sums", 80).expected) == 32.0  # type: ignore[union-attr]
    assert reference.estimate_task("others", 10) is None


def test_price_has_bounds_in_one_unit() -> None:
    for span, bounds in (
        (Span(2520.0, 1800.0, 3600.0), "42 min here, 30 to 60"),
        (Span(40.0, 20.0, 80.0), "40 s here, 20 to 80"),
        (Span(9000.0, 4320.0, 18000.0), "2.5 h here, 1.2 to 5.0"),
    ):
        assert describe_price(Price(span), 1) == f"{bounds}, on 1 worker"
    between_both = Price(Span(60.0, 30.0, 90.0), ("mine.train",), (30.0, 3510.0))
    assert describe_price(between_both, 2).startswith(
        "from 1 min to 1 h on 2 workers: nothing is known about the time of mine.train"
    )


def test_machine_speed_is_measured_once_and_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference_timings._measure_apart.cache_clear()
    stores = [tmp_path / name for name in ("one", "other")]
    for store in stores:
        store.mkdir()
    first = reference_timings.machine_speed(stores[0])
    assert first is not None
    assert 0 < first.product < 1
    monkeypatch.setattr(
        reference_timings.subprocess, "run", lambda *arguments, **settings: pytest.fail("measured again")
    )
    assert first == reference_timings.machine_speed(stores[1])
    (file,) = stores[0].glob("*.json")
    file.write_text('{"product": 1.0, "convolution": 2.0}')
    assert Speed(1.0, 2.0) == reference_timings.machine_speed(stores[0])


@pytest.mark.parametrize("text", ["[]", "3", "half", '{"product": 1.0}', '{"product": -1.0, "convolution": 1.0}'])
def test_invalid_stored_speed_is_measured_again(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kept.json"
    file.write_text(text)
    assert reference_timings._read_speed(file) is None


def test_disagreeing_measurements_report_their_ratio() -> None:
    assert pytest.approx(Speed(4e-3, 4e-3).against(Speed(1e-3, 4e-3))) == (2.0, 2.0)


def test_every_group_of_first_run_has_a_price() -> None:
    plan = plan_preset("deja_vu", "quickstart")
    assert set(prices_by_group(plan, plan.jobs)) == set(plan.groups.values())


def test_stated_resources_count_towards_the_price() -> None:
    plan = Plan.from_roots(toys.plan(toys.Config(parts=6, resources=Resources(gpus=2, cpus=3))))
    seconds = {plan.groups[key]: 0.0 if plan.task(key) == "toys.total" else 10.0 for key in plan.jobs}
    expected_seconds = {(4, 0): 60.0, (6, 0): 30.0, (32, 4): 30.0, (64, 1): 60.0}
    for (slots, gpus), expected in expected_seconds.items():
        assert price_plan(plan, plan.jobs, seconds, slots, "none", gpus).here.expected == expected


@pytest.mark.parametrize(("resources", "high"), [(Resources(), 2 * 6), (Resources(cpus=2), 4 * 6)])
def test_stated_time_is_the_upper_bound(resources: Resources, high: float) -> None:
    resources = replace(resources, time=Duration(12.0))
    plan = Plan.from_roots({"parts": toys.plan(toys.Config(parts=2, resources=resources))["parts"]})
    price = price_plan(plan, plan.jobs, {}, 2, "none")
    assert price.between == (price.between and price.between[0], high)
    assert predict_seconds(plan, plan.jobs, {}, 2) == high
    assert highest_price(plan, next(iter(plan.groups.values()))) == 12.0
