"""All measurements of a GPU, in one command of at most ten minutes that can be killed and started again.

    python -m bench.gpu_visit [--tiny] [--device cpu] [--seconds N] [--only SECTION ...] [--out FILE]

Measures the device's limits, models trained in stacks (bench/stacks.py), log p in all precisions (bench/generation.py),
convolutional networks by strategy, memory order and precision, nearest neighbours compared with faiss
(bench/neighbours.py), training of airbench (bench/airbench.py), an entire audit (bench/audit.py), agreement of the
strategies (bench/agreement.py) and memory. Sections run in order of importance. One without enough remaining time is
left out with a note.

The result is written after every row, to bench/results/gpu-visit-DEVICE.md unless `--out` names another file. The same
command then measures only what is missing: rows in this file that this code measured on this hardware stay. Everything
runs without ray, mlflow, pydantic and faiss. Rows of faiss need faiss-gpu. To take its wheel to a machine without
network, see docs/benchmarks.md.

`--device cpu --tiny` tests this code without a GPU. Its times are meaningless, and it writes a file only with `--out`.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from bench import airbench, audit, generation, neighbours, stacks
from bench.agreement import agreement
from bench.engine import BATCH, CONVOLUTIONAL, FEW_STEPS, PRECISIONS, first, random_images
from bench.measuring import Row, bench_parser
from bench.sections import Section, Sitting
from measurement.images import images
from measurement.report import measurement_facts
from orchestrator.store.provenance import commit
from tasks.datasets.images import Images
from tasks.training.recipe import Precision

VISIT = 540.0  # seconds: ten minutes minus the time to start and end
ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("bench", "measurement", "orchestrator", "tasks")
FEW_MODELS = 2  # in a stack of a tiny visit


def gpu_sections(data: Images, device: torch.device, tiny: bool) -> list[Section]:
    """Return the sections in order of importance, with generous durations for a large NVIDIA GPU."""
    part = first(data, 4 * BATCH if tiny else 100 * BATCH)
    if tiny:
        sizes = (FEW_MODELS, 1)
        model_count = FEW_MODELS
        autoencoders = partial(generation.stacked, data, device, 1, 2, (FEW_MODELS, 1), FEW_STEPS)
    else:
        sizes = stacks.STACKS
        model_count = 64
        autoencoders = partial(generation.stacked, data, device, 3, 1024)
    return [
        Section("ceilings", partial(stacks.ceiling_rows, device, tiny), 10),
        *(Section(f"mlp1 in stacks of {size}", stack_of(size, data, device, tiny), 15) for size in sizes[:2]),
        Section("log p", autoencoders, 60),
        *races(PRECISIONS[:1], device, tiny),
        *neighbour_sections(device, tiny),
        Section("trained airbench", partial(airbench.rows, device, tiny), 120),
        Section("audit", partial(audit.canaries, tiny), 60),
        *races(PRECISIONS[1:], device, tiny),
        Section("agreement", partial(agreement, part, device, *((2, 1) if tiny else (16, 4))), 40),
        Section(
            "mlp1 in whole epochs", partial(stacks.epoch_rows, part if tiny else data, device, model_count, tiny), 20
        ),
        Section("memory", partial(stacks.memory_rows, part, device, model_count), 20),
        *(Section(f"mlp1 in stacks of {size}", stack_of(size, data, device, tiny), 15) for size in sizes[2:]),
    ]


def stack_of(size: int, data: Images, device: torch.device, tiny: bool) -> partial[Iterator[Row]]:
    return partial(stacks.perceptron_rows, data, device, tiny, (size,))


def neighbour_sections(device: torch.device, tiny: bool) -> Iterator[Section]:
    """Yield two sections per size: Engram's search alone, and compared with faiss."""
    rounds = 1 if tiny else 2
    for size in neighbours.gpu_sizes(tiny):
        yield Section(f"neighbours, {size.columns:,} columns", partial(searches, size, device, rounds), 40)
        yield Section(f"faiss, {size.columns:,} columns", partial(faiss_searches, size, device, rounds), 60)


def searches(size: neighbours.Size, device: torch.device, rounds: int) -> Iterator[Row]:
    yield from neighbours.rows(size, device, rounds, gpu=True)


def faiss_searches(size: neighbours.Size, device: torch.device, rounds: int) -> Iterator[Row]:
    yield from neighbours.faiss_rows(size, device, rounds)


def races(precisions: Sequence[Precision], device: torch.device, tiny: bool) -> Iterator[Section]:
    """Yield a section per convolutional network and precision."""
    for precision in precisions:
        for network, (shape, seconds) in CONVOLUTIONAL.items():
            if tiny and network == "resnet18":  # takes a fifth of the time and tests no additional code
                continue
            yield Section(f"{network} in {precision}", partial(race, network, shape, precision, device, tiny), seconds)


def race(
    network: str, shape: tuple[int, int, int], precision: Precision, device: torch.device, tiny: bool
) -> Iterator[Row]:
    """Compare strategies on few random images, since neither their number nor their values affect a step."""
    if not tiny:
        return stacks.strategy_rows(network, random_images(shape), device, precision=precision)
    small = (16, 16, shape[2])
    return stacks.strategy_rows(network, random_images(small), device, FEW_MODELS, batch=2, precision=precision)


def code_digest() -> str:
    """Return a digest of the code that a visit runs, which may differ from the commit."""
    digest = hashlib.sha256()
    for path in sorted(path for package in MEASURED for path in (ROOT / package).rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def visit_facts(data: str, device: torch.device, tiny: bool) -> dict[str, str]:
    """Return the facts of the machine and the code."""
    facts = measurement_facts(data, device) | {
        "commit": commit() or "not recorded",
        "code": code_digest(),
        "size": "tiny" if tiny else "full",
    }
    if neighbours.faiss_version():
        facts["faiss"] = neighbours.faiss_version()
    return facts


def default_out(device: torch.device) -> Path:
    """Return the file of this device in bench/results: gpu-visit-h200.md for an NVIDIA H200."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    words = re.findall(r"[a-z0-9]+", name.lower().replace("nvidia", ""))
    return ROOT / "bench" / "results" / f"gpu-visit-{'-'.join(words)}.md"


def options() -> argparse.Namespace:
    parser = bench_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="device of the rows")
    parser.add_argument("--seconds", type=float, default=VISIT, help="stop after this time (default: %(default).0f)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="SECTION", help="sections whose names begin with one of these"
    )
    return parser.parse_args()


def main() -> None:
    arguments = options()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; --device cpu --tiny runs the same code without one")
    name, data = images(4 * BATCH if arguments.tiny else 60_000)
    sections = gpu_sections(data, device, arguments.tiny)
    if arguments.only:
        sections = [section for section in sections if section.name.startswith(tuple(arguments.only))]
    out = arguments.out
    if out is None and not arguments.tiny:
        out = default_out(device)
    sitting = Sitting("A GPU, measured", visit_facts(name, device, arguments.tiny), out, arguments.seconds)
    sitting.take_over()
    sitting.measure(sections)


if __name__ == "__main__":
    main()
