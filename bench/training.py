"""Every goal of speed that this machine can be asked about, each beside its rival and the ceiling of the same run.

    python -m bench.training [--tiny] [--gpu [--device cpu]] [--seconds N] [--only SECTION ...] [--out FILE]

On a CPU: training of mlp1 (bench/perceptron.py), of the autoencoder and estimates of log p (bench/generation.py),
nearest neighbours (bench/neighbours.py), rho with its interval (bench/forgetting.py) and shadow models
(bench/shadow_models.py); each module says what its rivals are. `--gpu` puts a GPU's rows before these: what the device
does at most, stacks of models eager and as recorded CUDA graphs, a whole audit, agreement of the ways of training,
memory (bench/stacks.py, bench/audit.py, bench/agreement.py). It is made for one visit of ten minutes: the sections come
by their worth, one is left out with a word where too little time is left for it, and `--out` is written anew after
every row. `--gpu --device cpu --tiny` runs the code of a GPU's rows without one; nothing is recorded then, and the
figures mean nothing.

MNIST is read from ENGRAM_DATA where it is; random images of its shape take its place, and the speed is the same.
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

VISIT = 540.0  # seconds: ten minutes less what begins and ends them
CPU = torch.device("cpu")


def cpu_sections(data: Images, tiny: bool) -> list[Section]:
    """What a CPU is asked. The seconds are those of two busy cores."""
    rounds, together, points, small = (1, 1, 2, 1) if tiny else (9, 27, 64, 60)
    ours, theirs = first(data, small * BATCH), first(data, small * VAE_BATCH)
    return [
        Section("mlp1 on one thread", partial(perceptron.one_thread, ours, rounds), 20),
        Section("mlp1 on all cores", partial(perceptron.all_cores, small * BATCH, together), 60),
        Section("autoencoder on one thread", partial(generation.training, theirs, rounds), 40),
        Section("log p on one thread", partial(generation.estimation, theirs, rounds, points), 60),
        Section("neighbours on one thread", partial(nearest, CPU, tiny), 300),
        Section("rho on one thread", partial(forgetting.rows, tiny), 20),
        Section("shadow models", partial(shadow_models.rows, tiny), 120),
    ]


def gpu_sections(data: Images, place: torch.device, tiny: bool) -> list[Section]:
    """What a GPU is asked, by worth. The seconds are guesses for one of NVIDIA's large ones, on the safe side."""
    some = first(data, 4 * BATCH if tiny else 100 * BATCH)
    sizes, many = ((2, 1), 2) if tiny else (stacks.STACKS, 64)
    autoencoders = (
        partial(generation.stacked, data, place, 1, 2, (2, 1), FEW_STEPS)
        if tiny
        else partial(generation.stacked, data, place, 3, 1024)
    )
    races = [
        Section(f"{name} raced", partial(race, name, data, place, tiny), seconds)
        for name, seconds in (("cnn1", 60), ("cnn2", 60), ("resnet18", 90))
        if not (tiny and name == "resnet18")  # which shows nothing more of whether it runs, for a fifth of the time
    ]
    return [
        Section("ceilings", partial(stacks.device, place, tiny), 10),
        Section("mlp1 stacked", partial(stacks.perceptrons, data, place, tiny, sizes), 60),
        Section("audit", partial(audit.canaries, tiny), 60),
        Section("agreement", partial(agreement, some, place, *((2, 1) if tiny else (16, 4))), 40),
        Section("autoencoders stacked", autoencoders, 60),
        Section("neighbours", partial(nearest, place, tiny, gpu=True), 60),
        Section("mlp1 in whole epochs", partial(stacks.whole_epochs, some if tiny else data, place, many, tiny), 20),
        Section("memory", partial(stacks.room, some, place, many), 20),
        *races,
    ]


def race(name: str, data: Images, place: torch.device, tiny: bool) -> Iterator[Row]:
    """On one minibatch of images, of which a tiny one has corners: how many there are bears on no step."""
    few = first(data, 4 * BATCH)
    if tiny:
        return stacks.race(name, corner(few, 16), place, 2, 2)
    return stacks.race(name, few, place)


def nearest(place: torch.device, tiny: bool, gpu: bool = False) -> Iterator[Row]:
    """Neighbours of every size. On a GPU the search itself is judged, on a CPU it and its rivals."""
    for size in neighbours.sizes(place, tiny):
        yield from neighbours.rows(size, place, 1 if tiny else 3 if gpu else 5, gpu)


def options() -> argparse.Namespace:
    given = bench_parser(__doc__)
    given.add_argument("--gpu", action="store_true", help="a GPU's rows first")
    given.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="of the GPU's rows")
    given.add_argument("--seconds", type=float, help=f"stop after these (default: {VISIT:.0f} with --gpu, else never)")
    given.add_argument("--only", nargs="+", default=[], metavar="SECTION", help="sections whose names begin so")
    return given.parse_args()


def main() -> None:
    asked = options()
    place = torch.device(asked.device if asked.gpu else "cpu")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--gpu: torch sees no GPU here; --device cpu --tiny runs the same code without one")
    name, data = images(4 * BATCH if asked.tiny else 60_000)
    sections = gpu_sections(data, place, asked.tiny) if asked.gpu else []
    sections += cpu_sections(data, asked.tiny)
    if asked.only:
        sections = [section for section in sections if section.name.startswith(tuple(asked.only))]
    setting = measurement_facts(name, place)
    if neighbours.absent():
        setting["left out"] = f"{' and '.join(neighbours.absent())}, not installed here"
    limit = asked.seconds if asked.seconds is not None else VISIT if asked.gpu else math.inf
    Sitting("Training, estimating and finding", setting, asked.out, limit).hold(sections)


if __name__ == "__main__":
    main()
