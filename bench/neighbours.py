"""Speed of the exact nearest-neighbour search, compared with scikit-learn, faiss and matrix products alone.

    python -m bench.neighbours [--tiny] [--device cpu|cuda] [--faiss] [--out bench/results/NAME.md]

The rivals, timed from arrays to distances and rows, are listed below. The result names those that are not installed.

- scikit-learn: NearestNeighbors(algorithm="brute");
- faiss: IndexFlatL2, which keeps its float32 distances.

On a CPU, all code uses one thread, and every ratio compares median CPU times from the same run. On a GPU, the goals are
in seconds: with rows already on the device, as a model returns them, and with arrays that are copied to the device.
Rows are normal noise, whose distances are nearly equal. This is the hardest case for proving candidates correct. The
ceiling is the fastest float32 matrix product (1024 x 1024) in the run, and a search's share of the ceiling counts 2 q n
d operations. Engram measures the k candidates again in float64, which costs about as much as the product with 100 k
points. Rivals that do not do this are therefore faster with few points and many neighbours.

`--faiss` compares Engram's search, with the candidates of either library, with faiss's own exact indexes IndexFlatL2
(on a CPU) and GpuIndexFlat (on a GPU), at the numbers of columns in audits: 8,192 (projectors), 2,048 and 256
(backbones) and 196 (halved images of 28 x 28). It also states how many queries have the same neighbours as in Engram's
search: faiss ranks points by distances rounded to float32.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.measuring import Row, Run, bench_parser, clock_for, in_turn, publish
from measurement.machine import ceilings, rate
from measurement.report import measurement_facts
from tasks.numerics.nearest_neighbours import Neighbours, faiss_gpus, nearest

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Size:
    queries: int
    points: int
    columns: int
    k: int
    required: float = math.nan  # seconds on a GPU
    target: float = math.nan

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
CUDA_SIZES = (
    Size(20_000, 50_000, 8192, 100, required=2.0, target=0.5),
    Size(20_000, 100_000, 2048, 100),
    Size(20_000, 500_000, 256, 100),
    Size(60_000, 60_000, 196, 2),
)
FAISS_CPU_SIZES = (
    Size(500, 50_000, 8192, 100),
    Size(1000, 50_000, 2048, 100),
    Size(2000, 50_000, 256, 100),
    Size(2000, 60_000, 196, 2),
)
TINY_SIZES = (Size(30, 400, 16, 5, required=2.0, target=0.5),)
FEWER = 10  # faiss's CPU index answers this part of a GPU's queries


def sizes(device: torch.device, tiny: bool, with_faiss: bool = False) -> tuple[Size, ...]:
    if tiny:
        return TINY_SIZES
    if device.type == "cuda":
        return CUDA_SIZES
    return FAISS_CPU_SIZES if with_faiss else CPU_SIZES


def gpu_sizes(tiny: bool) -> tuple[Size, ...]:
    return TINY_SIZES if tiny else CUDA_SIZES


def by_scikit_learn(queries: Array, points: Array, k: int) -> object:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points).kneighbors(queries)


def by_faiss(queries: Array, points: Array, k: int) -> tuple[Any, Any]:
    import faiss

    index: Any = faiss.IndexFlatL2(points.shape[1])
    index.add(points)
    distances, found = index.search(queries, k)
    return distances, found


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


def faiss_version() -> str:
    """Return the version of faiss and its number of GPUs, or an empty string if it is not installed."""
    if not importable("faiss"):
        return ""
    import faiss

    return f"{faiss.__version__}, GPUs it can use: {faiss_gpus()}"


@lru_cache(1)
def noise(size: Size) -> tuple[Array, Array]:
    """Return the queries and points of a size."""
    stream = np.random.default_rng(0)
    queries = stream.standard_normal((size.queries, size.columns), dtype=np.float32)
    return queries, stream.standard_normal((size.points, size.columns), dtype=np.float32)


def rows(size: Size, device: torch.device, rounds: int, gpu: bool | None = None) -> list[Row]:
    """Measure one size: compared with the installed rivals on a CPU, or in seconds on a GPU."""
    queries, points = noise(size)
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
        subject = f"neighbours, {size}, {name}, {kind}"
        yield Row(subject, f"{seconds[name]:.3f} s", "", seconds[name], size.required, size.target, unit="s")
    yield share(size, seconds[from_device], {name: rate(seconds[name]) for name in products})


def faiss_rows(size: Size, device: torch.device, rounds: int) -> Iterator[Row]:
    """Compare Engram's search with either library's candidates, and with faiss's own indexes, from arrays to results.

    faiss's CPU index uses one thread if Engram searches on a CPU, else all cores.
    """
    if not importable("faiss"):
        yield Row(f"neighbours, {size}, faiss", "not measured: faiss is not installed here")
        return
    kind, clock = clock_for(device)
    queries, points = noise(size)
    answer = nearest(queries, points, size.k, "torch", device)
    few = queries if device.type == "cpu" else queries[: max(1, len(queries) // FEWER)]
    scales = dict.fromkeys((CANDIDATES, "GpuIndexFlat"), 1.0) | {"IndexFlatL2": len(queries) / len(few)}
    runs: dict[str, Run] = {
        "engram": partial(nearest, queries, points, size.k, "torch", device),
        CANDIDATES: partial(nearest, queries, points, size.k, "faiss", device),
        "IndexFlatL2": partial(by_faiss, few, points, size.k),
    }
    equal = {"IndexFlatL2": same_rows(by_faiss(few, points, size.k), answer)}
    if device.type == "cuda" and faiss_gpus():
        runs["GpuIndexFlat"] = partial(by_faiss_on_gpu, queries, points, size.k)
        equal["GpuIndexFlat"] = same_rows(by_faiss_on_gpu(queries, points, size.k), answer)
    with one_thread_each(["faiss"]) if device.type == "cpu" else nullcontext():
        seconds = in_turn(runs, rounds, clock)
    for name in (name for name in runs if name != "engram"):
        rival = seconds[name] * scales[name]
        notes = "" if scales[name] == 1 else f", from {len(few):,} queries"
        if name in equal:
            notes += f"; same neighbours for {equal[name]:.1%} of queries"
        yield Row(
            f"neighbours, {size}, from arrays, {kind}, faiss: {name}",
            f"{seconds['engram']:.3f} s",
            f"{rival:.3f} s, {name}{notes}",
            rival / seconds["engram"],
        )
    if "GpuIndexFlat" not in runs:
        yield Row(f"neighbours, {size}, faiss: GpuIndexFlat", "not measured: faiss or torch sees no GPU here")


CANDIDATES = "Engram with faiss's candidates"


def by_faiss_on_gpu(queries: Array, points: Array, k: int) -> tuple[Any, Any]:
    import faiss

    resources = faiss.StandardGpuResources()
    index: Any = faiss.GpuIndexFlatL2(resources, points.shape[1])
    index.add(points)
    distances, found = index.search(queries, k)
    return distances, found


def same_rows(result: tuple[Any, Any], answer: Neighbours) -> float:
    """Return the share of queries for which faiss returns the same neighbours, in any order."""
    _, found = result
    return float((np.sort(found, 1) == np.sort(answer.rows[: len(found)], 1)).all(1).mean())


def share(size: Size, seconds: float, rates: dict[str, float]) -> Row:
    """Return the share of the ceiling that a search reaches."""
    best = max(rates, key=lambda name: rates[name])
    gigaflops = size.gigaflops / seconds
    subject = f"neighbours, {size}: share of {best}'s products (the ceiling)"
    return Row(subject, f"{gigaflops:.0f} GF/s", f"{rates[best]:.0f} GF/s", gigaflops / rates[best])


def options() -> argparse.Namespace:
    parser = bench_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--faiss", action="store_true", help="compare with faiss's indexes at the columns of audits")
    return parser.parse_args()


def main() -> None:
    arguments = options()
    device = torch.device(arguments.device)
    rounds = 2 if arguments.tiny else 5
    setting = measurement_facts("normal noise", device)
    result = []
    for size in sizes(device, arguments.tiny, arguments.faiss):
        result.extend(faiss_rows(size, device, rounds) if arguments.faiss else rows(size, device, rounds))
    if arguments.faiss:
        setting["faiss"] = faiss_version() or "not installed"
    elif device.type == "cpu" and absent():
        setting["left out"] = f"{' and '.join(absent())}, not installed here"
    publish("Exact nearest neighbours", setting, result, arguments.out)


if __name__ == "__main__":
    main()
