"""Speed of the exact nearest-neighbour search, compared with scikit-learn, faiss and matrix products alone.

    python -m bench.neighbours [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

The rivals, timed from arrays to distances and rows, are listed below. The result names those that are not installed.

- scikit-learn: NearestNeighbors(algorithm="brute");
- faiss: IndexFlatL2, which keeps its float32 distances.

On a CPU, all code uses one thread, and every ratio compares median CPU times from the same run. On a GPU, the goals are
in seconds: with rows already on the device, as a model returns them, and with arrays that are copied to the device.
Rows are normal noise, whose distances are nearly equal. This is the hardest case for proving candidates correct. The
ceiling is the fastest float32 matrix product (1024 x 1024) in the run, and a search's share of the ceiling counts 2 q n
d operations. Engram measures the k candidates again in float64, which costs about as much as the product with 100 k
points. Rivals that do not do this are therefore faster with few points and many neighbours.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.measuring import Row, Run, clock_for, in_turn, parse_options, publish
from measurement.machine import ceilings, rate
from measurement.report import measurement_facts
from tasks.numerics.nearest_neighbours import nearest

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Size:
    queries: int
    points: int
    columns: int
    k: int

    def __str__(self) -> str:
        return f"{self.queries:,} x {self.points:,} x {self.columns:,}, k = {self.k}"

    @property
    def gigaflops(self) -> float:
        return 2 * self.queries * self.points * self.columns / 1e9


# Images as in the density audit, and the numbers of neighbours in deja_vu, for pixels and for embeddings. Embeddings
# also include few points, for which rivals without a second measurement are faster.
CPU_SIZES = (
    Size(2000, 20_000, 784, 1),
    Size(2000, 50_000, 784, 100),
    Size(500, 50_000, 8192, 100),
    Size(500, 10_000, 8192, 100),
)
CUDA_SIZES = (Size(20_000, 50_000, 8192, 100),)
TINY_SIZES = (Size(30, 400, 16, 5),)


def sizes(device: torch.device, tiny: bool) -> tuple[Size, ...]:
    if tiny:
        return TINY_SIZES
    return CPU_SIZES if device.type == "cpu" else CUDA_SIZES


def by_scikit_learn(queries: Array, points: Array, k: int) -> object:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points).kneighbors(queries)


def by_faiss(queries: Array, points: Array, k: int) -> object:
    import faiss

    index: Any = faiss.IndexFlatL2(points.shape[1])
    index.add(points)
    return index.search(queries, k)


@dataclass(frozen=True)
class Rival:
    """A third-party search, its package, and Engram's required and target speed relative to it."""

    package: str
    search: Callable[[Array, Array, int], object]
    required: float
    target: float


RIVALS = {
    "scikit-learn": Rival("sklearn", by_scikit_learn, 2.0, 2.4),
    "faiss": Rival("faiss", by_faiss, 0.9, 1.0),
}


def absent() -> list[str]:
    """Return the rivals that are not installed on this machine."""
    return [name for name, rival in RIVALS.items() if not importable(rival.package)]


def importable(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def rows(size: Size, device: torch.device, rounds: int, gpu: bool | None = None) -> list[Row]:
    """Measure one size: compared with the installed rivals on a CPU, or in seconds on a GPU."""
    stream = np.random.default_rng(0)
    queries = stream.standard_normal((size.queries, size.columns), dtype=np.float32)
    points = stream.standard_normal((size.points, size.columns), dtype=np.float32)
    if gpu is None:
        gpu = device.type == "cuda"
    measure = on_gpu if gpu else on_cpu
    return list(measure(size, queries, points, device, rounds))


def on_cpu(size: Size, queries: Array, points: Array, device: torch.device, rounds: int) -> Iterator[Row]:
    kind, clock = clock_for(device)
    rivals = {name: rival for name, rival in RIVALS.items() if importable(rival.package)}
    runs: dict[str, Run] = {"engram": partial(nearest, queries, points, size.k, target_device=device)}
    runs |= {name: partial(rival.search, queries, points, size.k) for name, rival in rivals.items()}
    runs |= (products := ceilings(device))
    torch.set_num_threads(1)
    with one_thread_each(rivals):
        seconds = in_turn(runs, rounds, clock)
    engram_seconds = seconds["engram"]
    for name, rival in rivals.items():
        rival_text = f"{seconds[name]:.3f} s, {name}"
        yield Row(
            f"neighbours, {size}, {kind}",
            f"{engram_seconds:.3f} s",
            rival_text,
            seconds[name] / engram_seconds,
            rival.required,
            rival.target,
        )
    yield share(size, engram_seconds, {name: rate(seconds[name]) for name in products})


@contextmanager
def one_thread_each(rivals: Iterable[str]) -> Iterator[None]:
    """Limit the rivals' thread pools to one thread inside the context."""
    with ExitStack() as stack:
        if "faiss" in rivals:
            import faiss

            stack.callback(faiss.omp_set_num_threads, faiss.omp_get_max_threads())
            faiss.omp_set_num_threads(1)
        if "scikit-learn" in rivals:
            from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

            stack.enter_context(threadpool_limits(1))
        yield


def on_gpu(size: Size, queries: Array, points: Array, device: torch.device, rounds: int) -> Iterator[Row]:
    kind, clock = clock_for(device)
    device_queries = torch.from_numpy(queries).to(device)
    device_points = torch.from_numpy(points).to(device)
    from_device = "rows on the device"
    from_arrays = "rows from arrays"
    runs: dict[str, Run] = {
        from_device: partial(nearest, device_queries, device_points, size.k),
        from_arrays: partial(nearest, queries, points, size.k, target_device=device),
    }
    runs |= (products := ceilings(device))
    seconds = in_turn(runs, rounds, clock)
    for name in (from_device, from_arrays):
        yield Row(
            f"neighbours, {size}, {name}, {kind}", f"{seconds[name]:.3f} s", "", seconds[name], 2.0, 0.5, unit="s"
        )
    yield share(size, seconds[from_device], {name: rate(seconds[name]) for name in products})


def share(size: Size, seconds: float, rates: dict[str, float]) -> Row:
    """Return the share of the ceiling that a search reaches."""
    best = max(rates, key=lambda name: rates[name])
    gigaflops = size.gigaflops / seconds
    subject = f"neighbours, {size}: share of {best}'s products (the ceiling)"
    return Row(subject, f"{gigaflops:.0f} GF/s", f"{rates[best]:.0f} GF/s", gigaflops / rates[best])


def main() -> None:
    arguments = parse_options(__doc__)
    device = torch.device(arguments.device)
    rounds = 2 if arguments.tiny else 5
    result = []
    for size in sizes(device, arguments.tiny):
        result.extend(rows(size, device, rounds))
    setting = measurement_facts("normal noise", device)
    if device.type == "cpu" and absent():
        setting["left out"] = f"{' and '.join(absent())}, not installed here"
    publish("Exact nearest neighbours", setting, result, arguments.out)


if __name__ == "__main__":
    main()
