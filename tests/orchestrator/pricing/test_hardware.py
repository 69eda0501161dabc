"""Prices on named hardware: its rates, the counts of operations, and what a plan prints."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.inspection import preview
from orchestrator.pricing import counting
from orchestrator.pricing.hardware import CORES, load_rates, parse_hardware, rates_of_model
from orchestrator.pricing.price import price_on, price_plan
from tasks.contract.job import marks
from tasks.contract.operations import BYTES, KINDS, LAUNCHES, PRODUCT, Step
from tasks.counting.traced_steps import trace
from tasks.self_supervised.described_steps import EncoderStep
from tasks.self_supervised.pretraining_config import EncoderConfig, VICReg
from tasks.training.described_steps import ClassifierStep, CodesStep
from tests.orchestrator.pricing.test_price import a_plan, plan_preset

MLP1 = ClassifierStep("mlp1", (28, 28, 1), 10)


@pytest.mark.parametrize(
    ("text", "name", "gpus", "processors"),
    [("8xH100", "8xH100", 8, 8 * CORES), ("l4", "1xL4", 1, CORES), ("cpu", "6xcpu", 0, 6), ("64xcpu", "64xcpu", 0, 64)],
)
def test_hardware_is_count_and_device(text: str, name: str, gpus: int, processors: int) -> None:
    hardware = parse_hardware(text, 6)
    assert (str(hardware), hardware.gpus, hardware.processors) == (name, gpus, processors)


@pytest.mark.parametrize("text", ["8xB100", "0xH100", "H100x8", ""])
def test_unknown_hardware_is_refused_with_names(text: str) -> None:
    with pytest.raises(SpecError, match="must be one of cpu, H200, H100, A100, L4, or a number of them"):
        parse_hardware(text, 1)


def test_every_device_has_a_rate_of_every_kind() -> None:
    for device in load_rates().values():
        assert set(KINDS) <= set(device.rates), device.name
        assert all(rate > 0 for rate in device.rates.values()), device.name
        assert device.source, device.name


@pytest.mark.parametrize(
    ("model", "name"),
    [("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA L40S", None), ("", None)],
)
def test_gpu_of_this_machine_is_known_by_its_model(model: str, name: str | None) -> None:
    rates = rates_of_model(model)
    assert (rates and rates.name) == name


def test_known_gpu_of_this_machine_has_narrow_price() -> None:
    plan = plan_preset("relational", "quickstart")
    known, unknown = (
        price_plan(plan, list(plan.jobs), {}, 2, "none", gpus=1, gpu=gpu).here for gpu in (load_rates()["L4"], None)
    )
    assert known.expected < unknown.expected
    assert unknown.expected / unknown.low > 50


def test_link_of_a_chain_has_the_work_of_its_own_epochs() -> None:
    plan = plan_preset("deja_vu", "quickstart")
    assert plan.after
    for key, previous_link in plan.after.items():
        count = marks(plan.jobs[key].function).work
        assert count is not None
        own, whole = plan.work(key), count(plan.jobs[key].config)
        assert own is not None
        for unit, amount in count(plan.jobs[previous_link].config).trained.items():
            assert own.trained[unit] == pytest.approx(whole.trained[unit] - amount)


def test_launches_are_shared_by_stacked_models() -> None:
    device = load_rates()["H200"]
    step = {PRODUCT: device.rates[PRODUCT], LAUNCHES: 4 * device.rates[LAUNCHES]}
    assert device.seconds(step) == pytest.approx(5.0)
    assert device.seconds(step, together=4) == pytest.approx(2.0)


def test_step_of_perceptron_has_known_operations() -> None:
    weights = 784 * 512 + 512 * 256 + 256 * 128 + 128 * 10
    products = 3 * weights - 784 * 512  # the gradient of the pixels is not computed
    counted = trace(MLP1).operations
    assert counted[PRODUCT] == 2 * products
    assert counted[BYTES] > 7 * 4 * weights / 128


def test_counts_are_stored_and_failures_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_counted", {})
    monkeypatch.setattr(counting, "subprocess", subprocess)  # in a process of its own, as for users
    codes = CodesStep("vae", (8, 8, 1))
    broken = ClassifierStep("no_such_network", (28, 28, 1), 10)
    counted = counting.count_steps([codes, broken], tmp_path)
    assert counted[codes] == trace(codes)
    assert counted[broken] is None
    assert len(json.loads((tmp_path / counting.FILE_NAME).read_text())) == 1
    monkeypatch.setattr(counting, "_counted", {})
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("counted again"))
    assert counting.count_steps([codes], tmp_path)[codes] == counted[codes]


def test_gpus_divide_the_work_and_price_is_narrow() -> None:
    plan = plan_preset("relational", "quickstart")
    one, eight = (price_on(plan, list(plan.jobs), {}, parse_hardware(name, 1)) for name in ("L4", "8xL4"))
    assert one.gpu_hours.expected == pytest.approx(eight.gpu_hours.expected)
    assert eight.here.expected < one.here.expected
    assert one.gpu_hours.high <= 3 * one.gpu_hours.expected
    assert one.unknown == ()


def test_several_gpus_train_one_model_faster() -> None:
    plan = plan_preset("deja_vu", "smoke")
    alone, together = (
        price_on(plan, list(plan.jobs), {}, parse_hardware("8xH100", 1), gpus_per_job=count) for count in (1, 4)
    )
    assert together.here.expected < alone.here.expected
    assert alone.gpu_hours.expected < together.gpu_hours.expected < 4 * alone.gpu_hours.expected


def test_timings_of_this_store_are_not_those_of_another_gpu() -> None:
    plan = plan_preset("relational", "quickstart")
    seconds = dict.fromkeys(plan.groups.values(), 1000.0)
    hardware = parse_hardware("H100", 1)
    trained = price_on(plan, list(plan.jobs), {}, hardware).gpu_hours
    assert price_on(plan, list(plan.jobs), seconds, hardware).gpu_hours == trained
    assert price_plan(plan, list(plan.jobs), seconds, 1, "none").here.expected >= 1000


def test_unknown_tasks_have_no_interval_of_others() -> None:
    plan, part, _total = a_plan(4)
    price = price_on(plan, list(plan.jobs), {part: 2.0}, parse_hardware("2xcpu", 1))
    assert price.unknown == ("toys.total",)
    assert price.here.low > 0
    assert price_plan(plan, list(plan.jobs), {part: 2.0}, 2, "none").bounds[1] is None


def test_unlearning_has_the_operations_of_its_input() -> None:
    plan = plan_preset("forgetting", "unlearning", replicates=1, permutations=239)
    price = price_on(plan, list(plan.jobs), {}, parse_hardware("H100", 1))
    assert price.unknown == ()
    assert 0 < price.gpu_hours.low < price.gpu_hours.high


@pytest.mark.parametrize(
    ("step", "gigabytes"),
    [
        (MLP1, 0.0234),  # measured on an H200: bench/results/training-h200.md
        (EncoderStep(VICReg(), EncoderConfig(), 1000, 1024, 1, "lars", "float32"), 260),
    ],
    ids=["mlp1", "resnet101"],
)
def test_memory_of_a_training_is_estimated_without_a_device(step: Step, gigabytes: float) -> None:
    assert trace(step).device_bytes == pytest.approx(gigabytes * 1e9, rel=0.2)


def test_parts_and_bfloat16_need_less_memory() -> None:
    whole = EncoderStep(VICReg(), EncoderConfig("small-resnet", (64, 64), 64), 10, 64, 1, "lars", "float32")
    needed = trace(whole).device_bytes
    assert trace(replace(whole, accumulate=4)).device_bytes < 0.5 * needed
    assert trace(replace(whole, precision="bfloat16")).device_bytes < 0.9 * needed


def test_plan_warns_of_too_little_device_memory() -> None:
    large = {"encoder.train": 264e9, "classifier.train": 2e7}
    first, second = preview.describe_device_memory(large, load_rates()["H100"], 1)
    assert "about 264 GB of GPU memory for one model, more than the 80 GB that one H100 has: lower" in first["line"]
    assert second["line"] == "classifier.train: about 20 MB of GPU memory for one model"
    on_four, _ = preview.describe_device_memory(large, load_rates()["H100"], 4)
    assert on_four["line"] == "encoder.train: about 264 GB of GPU memory for one model"
