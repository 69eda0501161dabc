"""Speed of a training step of convolutional networks by memory order and number of models in a step.

    python -m bench.convolutions [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Compares channels last, which a CPU uses for single models, with channels first, and a stack of models with the same
models in turn. On a CPU, all code uses one thread, and the ratio compares median CPU times from the same run. For all
strategies on a GPU, see bench/gpu_visit.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from unittest import mock

import torch

from bench.engine import classifiers, seated, steps
from bench.gpu_visit import CONVOLUTIONAL, noise
from bench.measuring import Row, Run, clock_for, in_turn, parse_options, publish
from measurement.report import measurement_facts
from tasks.models.layers import Layers
from tasks.training.strategies import Strategy
from tasks.worker import hardware

STACKED = 4  # models in a step
BATCHES = {"cnn1": 128, "cnn2": 128, "resnet18": 16, "airbench": 64}


def rows(network: str, device: torch.device, tiny: bool) -> Iterator[Row]:
    """Measure a step of one model in both orders, and of a stack in both orders."""
    shape, _ = CONVOLUTIONAL[network]
    batch = 2 if tiny else BATCHES[network]
    data = noise((16, 16, shape[2]) if tiny else shape)
    kind, clock = clock_for(device)
    runs: dict[str, Run] = {}
    with hardware.exactly(device):
        workload = classifiers(data, device, network, batch=batch)
        for places in (1, STACKED):
            for order in ("first", "last"):
                strategy = Strategy("stack", places=places, channels_last=order == "last")
                run = steps(workload, seated(workload, strategy), 1)
                runs[f"{places} {order}"] = partial(in_order, run, order)
        seconds = in_turn(runs, 1 if tiny else 5, clock)
    for places in (1, STACKED):
        first, last = (seconds[f"{places} {order}"] / places for order in ("first", "last"))
        yield Row(
            f"{network}, batch {batch}, {places} in a step: model-step with channels last, {kind}",
            f"{last * 1e3:.1f} ms",
            f"{first * 1e3:.1f} ms, channels first",
            first / last,
        )
    alone, stacked = (min(seconds[f"{places} {order}"] for order in ("first", "last")) for places in (1, STACKED))
    yield Row(
        f"{network}, batch {batch}: model-step alone, in the faster order, {kind}",
        f"{alone * 1e3:.1f} ms",
        f"{stacked / STACKED * 1e3:.1f} ms, {STACKED} in a step",
        stacked / STACKED / alone,
    )


def in_order(run: Run, order: str) -> None:
    """Take a step in this memory order, also where the order is not a choice of the strategy."""
    with mock.patch.object(Layers, "_is_channels_last", return_value=order == "last"):
        run()


def main() -> None:
    arguments = parse_options(__doc__)
    device = torch.device(arguments.device)
    setting = measurement_facts("random images", device)
    result = []
    for network in CONVOLUTIONAL:
        result.extend(rows(network, device, arguments.tiny))
    publish("Convolutions by memory order", setting, result, arguments.out)


if __name__ == "__main__":
    main()
