"""Which way is taken: what a step takes, what can be tried on a device, what is fastest, and what is settled once."""

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


def test_what_autograd_keeps_counts_once_and_as_long_as_it_is_kept() -> None:
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


def test_a_processor_takes_models_one_after_another_without_trying(workload: Workload) -> None:
    def never(_name: str, _choose: object) -> dict[str, Any]:
        raise AssertionError("nothing is to be chosen here")

    assert (Strategy("loop"), None) == choose_strategy(workload, ComputeContext(settle=never), 512)


def test_a_stack_has_as_many_places_as_are_asked_for_needed_and_fit(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_way_that_is_not_here_is_refused_by_name(workload: Workload) -> None:
    with pytest.raises(
        UnsupportedStrategy, match="way is graph; for mlp1 on cpu it must be auto or one of loop, stack"
    ):
        choose_strategy(workload, ComputeContext(way="graph"), 512)


def test_a_network_that_cannot_be_stacked_is_looped(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrossEntropy, "stackable", False)
    assert [Strategy("loop")] == candidates(workload, 512)
    with pytest.raises(UnsupportedStrategy, match=r"it must be auto or one of loop$"):
        choose_strategy(workload, ComputeContext(way="stack"), 512)


def test_a_race_measures_every_candidate_and_names_the_fastest(workload: Workload) -> None:
    choice = benchmark(workload, [Strategy("loop"), Strategy("stack", places=2)])
    assert {"loop 1", "stack 2"} == set(choice["rates"])
    assert all(rate > 0 for rate in choice["rates"].values())
    label = max(choice["rates"], key=choice["rates"].__getitem__)
    assert label == f"{choice['way']} {choice['places'] * choice['stacks']}"


def test_members_with_less_than_a_minibatch_are_measured_too(workload: Workload) -> None:
    few = Workload(workload.spec, workload.data, [Member(0, np.arange(7))], [{}])
    assert choose_strategy(few, ComputeContext(way="stack"), 512)[0] == Strategy("stack")
    assert set(benchmark(few, [Strategy("loop"), Strategy("stack", places=2)])["rates"]) == {"loop 1", "stack 2"}


def test_a_candidate_that_does_not_run_is_out_of_the_race(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    rate = strategies.rate

    def refused(workload: Workload, way: Strategy) -> float:
        if way.name == "stack":
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return rate(workload, way)

    monkeypatch.setattr(strategies, "rate", refused)
    choice = benchmark(workload, [Strategy("loop"), Strategy("stack", places=2)])
    assert (choice["way"], choice["rates"]["stack 2"]) == ("loop", 0.0)


def test_a_device_that_is_broken_ends_the_race(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_ground: Workload, _way: Strategy) -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(strategies, "rate", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        benchmark(workload, [Strategy("loop")])


def test_sizes_are_cut_to_what_there_is() -> None:
    assert [sizes((64, 256), limit) for limit in (512, 100, 30, 1)] == [[64, 256], [64, 100], [30], [1]]


def with_recipe(workload: Workload, **changes: Any) -> Workload:
    return replace(workload, spec=replace(workload.spec, recipe=replace(workload.spec.recipe, **changes)))


def test_choices_are_kept_under_what_speed_depends_on(workload: Workload) -> None:
    # As before there were other optimisers: what is stored stays valid.
    assert workload.name.endswith(", mlp1 on 8x8x1, batch 16, adam, float32")
    assert with_recipe(workload, schedule=((1, 0.5),), learning_rate=1.0).name == workload.name
    others = [{"optimiser": "rmsprop"}, *({"accumulate": parts} for parts in (2, 4)), {"batch": 32}]
    names = [workload.name, *(with_recipe(workload, **other).name for other in others)]
    assert len(names) == len(set(names))
    assert with_recipe(workload, epsilon=0.5).name == workload.name


def test_what_fits_leaves_a_tenth_free() -> None:
    assert [Need(fixed, 10).fitting(free) for fixed, free in ((0, 100), (10, 100), (95, 100), (0, 0))] == [9, 8, 0, 0]


def test_the_memory_of_a_step_is_that_of_its_models_and_what_their_slopes_need(workload: Workload) -> None:
    need = memory.need(lambda models: strategies.rehearse(workload, models), CPU)
    weights = sum(int(np.prod(weight.shape)) for weight in workload.spec.learning.weights.values())
    assert 4 * 4 * weights < need.per_model < 4 * 6 * weights


def test_a_minibatch_in_parts_takes_the_memory_of_a_part() -> None:
    stream = np.random.default_rng(0)
    noise = stream.integers(0, 256, (64, 12, 12, 1), dtype=np.uint8), stream.integers(0, 10, 64)
    images = Images(*noise, *noise, 10)
    spec = Spec(CrossEntropy(Architecture("cnn1", images.shape, 10)), Recipe(1, 64, 1e-3), images)
    whole = Workload(spec, resident(images, CPU), [Member(0, np.arange(64))], [{}])

    def taken(parts: int, models: int) -> int:
        return memory.peak_memory(lambda: strategies.rehearse(with_recipe(whole, accumulate=parts), models), CPU)

    each = {parts: taken(parts, 3) - taken(parts, 2) for parts in (1, 4)}
    weights = 4 * sum(int(np.prod(weight.shape)) for weight in spec.learning.weights.values())
    # Weights, moments, gradients and what autograd keeps of the weights are whole, and parts have a sum of gradients
    # more: what is divided is the activations.
    activations = {1: each[1] - 5 * weights, 4: each[4] - 6 * weights}
    assert activations[4] == pytest.approx(activations[1] / 4, rel=0.1)
