"""Measure all speed goals that this machine's CPU can measure, each against a rival and the ceiling from the same run.

    python -m bench.training [--tiny] [--seconds N] [--only SECTION ...] [--out FILE]

Measures training of mlp1 (bench/perceptron.py), training of the autoencoder and estimates of log p
(bench/generation.py), nearest neighbours (bench/neighbours.py), rho and its interval (bench/forgetting.py), and shadow
models (bench/shadow_models.py). Each module describes its rivals. A section without enough remaining time is skipped
with a note, and `--out` is written after every row. For a GPU, see bench/gpu_visit.py.

If ENGRAM_DATA has no MNIST, random images of the same shape are used; the speed is the same.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from functools import partial

import torch

from bench import forgetting, generation, neighbours, perceptron, shadow_models
from bench.engine import BATCH, VAE_BATCH, first
from bench.measuring import Row, bench_parser
from bench.sections import Section, Sitting
from measurement.images import images
from measurement.report import measurement_facts
from tasks.datasets.images import Images

CPU = torch.device("cpu")


def cpu_sections(data: Images, tiny: bool) -> list[Section]:
    """Return the CPU sections. Durations are for two busy cores."""
    if tiny:
        rounds = 1
        wall_rounds = 1
        points = 2
        minibatches = 1
    else:
        rounds = 9
        wall_rounds = 27
        points = 64
        minibatches = 60
    mlp_rows = first(data, minibatches * BATCH)
    autoencoder_rows = first(data, minibatches * VAE_BATCH)
    return [
        Section("mlp1 on one thread", partial(perceptron.one_thread, mlp_rows, rounds), 20),
        Section("mlp1 on all cores", partial(perceptron.all_cores, minibatches * BATCH, wall_rounds), 60),
        Section("autoencoder on one thread", partial(generation.training, autoencoder_rows, rounds), 40),
        Section("log p on one thread", partial(generation.estimation, autoencoder_rows, rounds, points), 60),
        Section("neighbours on one thread", partial(nearest, tiny), 300),
        Section("rho on one thread", partial(forgetting.rows, tiny), 20),
        Section("shadow models", partial(shadow_models.rows, tiny), 120),
    ]


def nearest(tiny: bool) -> Iterator[Row]:
    """Measure every size."""
    rounds = 1 if tiny else 5
    for size in neighbours.sizes(CPU, tiny):
        yield from neighbours.rows(size, CPU, rounds)


def options() -> argparse.Namespace:
    parser = bench_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time (default: never)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="SECTION", help="sections whose names begin with one of these"
    )
    return parser.parse_args()


def main() -> None:
    arguments = options()
    name, data = images(4 * BATCH if arguments.tiny else 60_000)
    sections = cpu_sections(data, arguments.tiny)
    if arguments.only:
        sections = [section for section in sections if section.name.startswith(tuple(arguments.only))]
    setting = measurement_facts(name, CPU)
    if neighbours.absent():
        setting["left out"] = f"{' and '.join(neighbours.absent())}, not installed here"
    Sitting("Training, estimating and finding", setting, arguments.out, arguments.seconds).measure(sections)


if __name__ == "__main__":
    main()
