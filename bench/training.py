"""Measure all speed goals that this machine can measure, each against a rival and the ceiling from the same run.

    python -m bench.training [--tiny] [--gpu [--device cpu]] [--seconds N] [--only SECTION ...] [--out FILE]

On a CPU, it measures training of mlp1 (bench/perceptron.py), training of the autoencoder and estimates of log p
(bench/generation.py), nearest neighbours (bench/neighbours.py), rho and its interval (bench/forgetting.py), and shadow
models (bench/shadow_models.py). Each module describes its rivals. `--gpu` first adds GPU measurements: the device's
limits, stacks of models, both eager and as captured CUDA graphs, an entire audit, agreement of the training strategies,
and memory (bench/stacks.py, bench/audit.py, bench/agreement.py). These fit into ten minutes: sections run in order of
importance, a section without enough remaining time is skipped with a note, and `--out` is written after every row.
`--gpu --device cpu --tiny` tests the code for GPU measurements without a GPU; its times are meaningless.

If ENGRAM_DATA has no MNIST, random images of the same shape are used; the speed is the same.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from functools import partial

import torch

from bench import audit, forgetting, generation, neighbours, perceptron, shadow_models, stacks
from bench.agreement import agreement
from bench.engine import BATCH, FEW_STEPS, VAE_BATCH, corner, first
from bench.measuring import Row, bench_parser
from bench.sections import Section, Sitting
from measurement.images import images
from measurement.report import measurement_facts
from tasks.datasets.images import Images

VISIT = 540.0  # seconds: ten minutes minus the time to start and end
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
        Section("neighbours on one thread", partial(nearest, CPU, tiny), 300),
        Section("rho on one thread", partial(forgetting.rows, tiny), 20),
        Section("shadow models", partial(shadow_models.rows, tiny), 120),
    ]


def gpu_sections(data: Images, device: torch.device, tiny: bool) -> list[Section]:
    """Return the GPU sections in order of importance, with generous durations for a large NVIDIA GPU."""
    part = first(data, 4 * BATCH if tiny else 100 * BATCH)
    if tiny:
        sizes = (2, 1)
        model_count = 2
        autoencoders = partial(generation.stacked, data, device, 1, 2, (2, 1), FEW_STEPS)
    else:
        sizes = stacks.STACKS
        model_count = 64
        autoencoders = partial(generation.stacked, data, device, 3, 1024)
    races = [
        Section(f"{name} raced", partial(race, name, data, device, tiny), seconds)
        for name, seconds in (("cnn1", 60), ("cnn2", 60), ("resnet18", 90))
        if not (tiny and name == "resnet18")  # takes a fifth of the time and tests no additional code
    ]
    return [
        Section("ceilings", partial(stacks.ceiling_rows, device, tiny), 10),
        Section("mlp1 stacked", partial(stacks.perceptron_rows, data, device, tiny, sizes), 60),
        Section("audit", partial(audit.canaries, tiny), 60),
        Section("agreement", partial(agreement, part, device, *((2, 1) if tiny else (16, 4))), 40),
        Section("autoencoders stacked", autoencoders, 60),
        Section("neighbours", partial(nearest, device, tiny, gpu=True), 60),
        Section(
            "mlp1 in whole epochs", partial(stacks.epoch_rows, part if tiny else data, device, model_count, tiny), 20
        ),
        Section("memory", partial(stacks.memory_rows, part, device, model_count), 20),
        *races,
    ]


def race(name: str, data: Images, device: torch.device, tiny: bool) -> Iterator[Row]:
    """Compare strategies on few images, since their number does not affect a step.

    `tiny` uses corners of the images.
    """
    few = first(data, 4 * BATCH)
    if tiny:
        return stacks.strategy_rows(name, corner(few, 16), device, 2, 2)
    return stacks.strategy_rows(name, few, device)


def nearest(device: torch.device, tiny: bool, gpu: bool = False) -> Iterator[Row]:
    """Measure every size: seconds on a GPU, comparisons with rivals on a CPU."""
    rounds = 3 if gpu else 5
    if tiny:
        rounds = 1
    for size in neighbours.sizes(device, tiny):
        yield from neighbours.rows(size, device, rounds, gpu)


def options() -> argparse.Namespace:
    parser = bench_parser(__doc__)
    parser.add_argument("--gpu", action="store_true", help="measure the GPU's rows first")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="device of the GPU's rows")
    parser.add_argument(
        "--seconds", type=float, help=f"stop after this time (default: {VISIT:.0f} with --gpu, else never)"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="SECTION", help="sections whose names begin with one of these"
    )
    return parser.parse_args()


def main() -> None:
    arguments = options()
    device = torch.device(arguments.device if arguments.gpu else "cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--gpu: torch sees no GPU here; --device cpu --tiny runs the same code without one")
    name, data = images(4 * BATCH if arguments.tiny else 60_000)
    sections = []
    if arguments.gpu:
        sections = gpu_sections(data, device, arguments.tiny)
    sections += cpu_sections(data, arguments.tiny)
    if arguments.only:
        sections = [section for section in sections if section.name.startswith(tuple(arguments.only))]
    setting = measurement_facts(name, device)
    if neighbours.absent():
        setting["left out"] = f"{' and '.join(neighbours.absent())}, not installed here"
    limit = arguments.seconds
    if limit is None:
        limit = VISIT if arguments.gpu else math.inf
    Sitting("Training, estimating and finding", setting, arguments.out, limit).measure(sections)


if __name__ == "__main__":
    main()
