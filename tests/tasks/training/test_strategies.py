"""The choice of a strategy: memory of a step, candidates of a device, benchmark, and the stored choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tasks.datasets.images import Images
from tasks.models.networks import Architecture
from tasks.training import memory, strategies
from tasks.training.cross_entropy import CrossEntropy
from tasks.training.device_data import resident
from tasks.training.members import Member, Spec
from tasks.training.memory import Need
from tasks.training.recipe import Recipe
from tasks.training.strategies import (
    Strategy,
    UnsupportedStrategy,
    Workload,
    benchmark,
    candidates,
    choose_strategy,
    sizes,
)
from tasks.worker.compute_context import ComputeContext

CPU = torch.device("cpu")


def test_peak_memory_counts_each_kept_tensor_once() -> None:
    def work(times: int, together: bool) -> int:
        weight = torch.ones(1000, dtype=torch.float64, requires_grad=True)
        losses = []
        for _ in range(times):
            losses.append((weight.exp() * 2).exp().sum())  # keeps both exponentials: 16,000 bytes
            if not together:
                torch.autograd.grad(losses.pop(), weight)
        return 7

    assert memory.peak_memory(lambda: work(1, together=False), CPU) == 16_000 + 7
    assert memory.peak_memory(lambda: work(3, together=False), CPU) == 16_000 + 7
    assert memory.peak_memory(lambda: work(3, together=True), CPU) == 48_000 + 7


@pytest.fixture(scope="module")
def workload() -> Workload:
    stream = np.random.default_rng(0)
    noise = stream.integers(0, 256, (64, 8, 8, 1), dtype=np.uint8), stream.integers(0, 10, 64)
    images = Images(*noise, *noise, 10)
    spec = Spec(CrossEntropy(Architecture("mlp1", images.shape, 10)), Recipe(1, 16, 1e-3), images)
    return Workload(spec, resident(images, CPU), [Member(seed, np.arange(64)) for seed in range(5)], [{}] * 5)


def test_processor_loops_without_trying_strategies(workload: Workload) -> None:
    def never(_name: str, _choose: object) -> dict[str, Any]:
        raise AssertionError("a strategy was chosen without need")

    assert choose_strategy(workload, ComputeContext(settle=never), 512) == (Strategy("loop"), None)


def test_stack_size_follows_request_need_and_memory(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_strategy(workload, ComputeContext(way="stack"), 512)[0].places == 5
    assert choose_strategy(workload, ComputeContext(way="stack", members=3), 512)[0].places == 3
    assert choose_strategy(workload, ComputeContext(way="stack"), 2)[0].places == 2
    need = choose_strategy(workload, ComputeContext(way="stack"), 512)[1]
    assert need is not None
    monkeypatch.setattr(memory, "free", lambda device: round((need.fixed + 4.5 * need.per_model) / (1 - memory.SPARED)))
    assert choose_strategy(workload, ComputeContext(way="stack"), 512)[0].places == 4
    assert choose_strategy(workload, ComputeContext(way="stack", sharers=2), 512)[0].places == 2
    monkeypatch.setattr(memory, "free", lambda device: 0)
    assert choose_strategy(workload, ComputeContext(way="stack"), 512)[0].places == 1


def test_unavailable_strategy_is_refused(workload: Workload) -> None:
    with pytest.raises(
        UnsupportedStrategy, match="way is graph; for mlp1 on cpu it must be auto or one of loop, stack"
    ):
        choose_strategy(workload, ComputeContext(way="graph"), 512)


def test_network_that_cannot_stack_is_looped(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrossEntropy, "stackable", False)
    assert [Strategy("loop")] == candidates(workload, 512)
    with pytest.raises(UnsupportedStrategy, match=r"it must be auto or one of loop$"):
        choose_strategy(workload, ComputeContext(way="stack"), 512)


def test_benchmark_measures_all_and_names_fastest(workload: Workload) -> None:
    choice = benchmark(workload, [Strategy("loop"), Strategy("stack", places=2)])
    assert set(choice["rates"]) == {"loop 1", "stack 2"}
    assert all(rate > 0 for rate in choice["rates"].values())
    label = max(choice["rates"], key=choice["rates"].__getitem__)
    assert label == f"{choice['way']} {choice['places'] * choice['stacks']}"


def test_members_below_one_minibatch_are_measured(workload: Workload) -> None:
    few = Workload(workload.spec, workload.data, [Member(0, np.arange(7))], [{}])
    assert choose_strategy(few, ComputeContext(way="stack"), 512)[0] == Strategy("stack")
    assert set(benchmark(few, [Strategy("loop"), Strategy("stack", places=2)])["rates"]) == {"loop 1", "stack 2"}


def test_failing_strategy_leaves_the_benchmark(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    rate = strategies.rate

    def refused(workload: Workload, strategy: Strategy) -> float:
        if strategy.name == "stack":
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return rate(workload, strategy)

    monkeypatch.setattr(strategies, "rate", refused)
    choice = benchmark(workload, [Strategy("loop"), Strategy("stack", places=2)])
    assert choice["way"] == "loop"
    assert choice["rates"]["stack 2"] == 0.0


def test_broken_device_ends_the_benchmark(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_workload: Workload, _strategy: Strategy) -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(strategies, "rate", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        benchmark(workload, [Strategy("loop")])


def test_sizes_are_limited_to_the_maximum() -> None:
    assert sizes((64, 256), 512) == [64, 256]
    assert sizes((64, 256), 100) == [64, 100]
    assert sizes((64, 256), 30) == [30]
    assert sizes((64, 256), 1) == [1]


def with_recipe(workload: Workload, **changes: Any) -> Workload:
    return replace(workload, spec=replace(workload.spec, recipe=replace(workload.spec.recipe, **changes)))


def test_workload_name_contains_what_affects_speed(workload: Workload) -> None:
    # The name is unchanged since Adam was the only optimiser: stored choices stay valid.
    assert workload.name.endswith(", mlp1 on 8x8x1, batch 16, adam, float32")
    assert with_recipe(workload, schedule=((1, 0.5),), learning_rate=1.0).name == workload.name
    variants = [{"optimiser": "rmsprop"}, *({"accumulate": parts} for parts in (2, 4)), {"batch": 32}]
    names = [workload.name, *(with_recipe(workload, **changes).name for changes in variants)]
    assert len(names) == len(set(names))
    assert with_recipe(workload, epsilon=0.5).name == workload.name


def test_fitting_leaves_a_tenth_of_memory_free() -> None:
    assert Need(0, 10).fitting(100) == 9
    assert Need(10, 10).fitting(100) == 8
    assert Need(95, 10).fitting(100) == 0
    assert Need(0, 10).fitting(0) == 0


def test_step_memory_covers_models_and_gradients(workload: Workload) -> None:
    need = memory.need(lambda models: strategies.rehearse(workload, models), CPU)
    weights = sum(int(np.prod(weight.shape)) for weight in workload.spec.learning.weights.values())
    assert 4 * 4 * weights < need.per_model < 4 * 6 * weights


def test_minibatch_in_parts_needs_memory_of_one_part() -> None:
    stream = np.random.default_rng(0)
    noise = stream.integers(0, 256, (64, 12, 12, 1), dtype=np.uint8), stream.integers(0, 10, 64)
    images = Images(*noise, *noise, 10)
    spec = Spec(CrossEntropy(Architecture("cnn1", images.shape, 10)), Recipe(1, 64, 1e-3), images)
    full_workload = Workload(spec, resident(images, CPU), [Member(0, np.arange(64))], [{}])

    def peak(parts: int, models: int) -> int:
        return memory.peak_memory(
            lambda: strategies.rehearse(with_recipe(full_workload, accumulate=parts), models), CPU
        )

    per_model = {parts: peak(parts, 3) - peak(parts, 2) for parts in (1, 4)}
    weights = 4 * sum(int(np.prod(weight.shape)) for weight in spec.learning.weights.values())
    # Weights, moments, gradients and autograd's copies of the weights keep their size; parts add a sum of gradients.
    # Only the activations are divided.
    activations = {1: per_model[1] - 5 * weights, 4: per_model[4] - 6 * weights}
    assert activations[4] == pytest.approx(activations[1] / 4, rel=0.1)
