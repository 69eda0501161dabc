"""Speed of a training step of convolutional networks by memory order.

    python -m bench.convolutions [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Compares channels last, which a CPU uses for single models, with channels first. On a CPU, all code uses one thread, and
the ratio compares median CPU times from the same run. For all strategies on a GPU, see bench/gpu_visit.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from unittest import mock

import torch

from bench.engine import CONVOLUTIONAL, classifiers, random_images, seated, steps
from bench.measuring import Row, Run, clock_for, in_turn, parse_options
from bench.sections import Section, Sitting
from measurement.report import measurement_facts
from tasks.models.layers import Layers
from tasks.training.strategies import Strategy
from tasks.worker import hardware

BATCHES = {"cnn1": 128, "cnn2": 128, "resnet18": 8, "airbench": 32}


def rows(network: str, device: torch.device, tiny: bool) -> Iterator[Row]:
    """Measure a step of one model in both orders."""
    shape, _ = CONVOLUTIONAL[network]
    batch = 2 if tiny else BATCHES[network]
    data = random_images((16, 16, shape[2]) if tiny else shape)
    kind, clock = clock_for(device)
    runs: dict[str, Run] = {}
    with hardware.exactly(device):
        workload = classifiers(data, device, network, batch=batch)
        for order in ("first", "last"):
            strategy = Strategy("stack", channels_last=order == "last")
            run = steps(workload, seated(workload, strategy), 1)
            runs[order] = partial(in_order, run, order)
        seconds = in_turn(runs, 1 if tiny else 3, clock)
    yield Row(
        f"{network}, batch {batch}: step with channels last, {kind}",
        f"{seconds['last'] * 1e3:.1f} ms",
        f"{seconds['first'] * 1e3:.1f} ms, channels first",
        seconds["first"] / seconds["last"],
    )


def in_order(run: Run, order: str) -> None:
    """Take a step in this memory order, also where the order is not a choice of the strategy."""
    with mock.patch.object(Layers, "_is_channels_last", return_value=order == "last"):
        run()


def main() -> None:
    arguments = parse_options(__doc__)
    device = torch.device(arguments.device)
    setting = measurement_facts("random images", device)
    sections = [Section(network, partial(rows, network, device, arguments.tiny)) for network in CONVOLUTIONAL]
    Sitting("Convolutions by memory order", setting, arguments.out).measure(sections)


if __name__ == "__main__":
    main()
