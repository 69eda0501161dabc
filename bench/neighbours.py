"""How fast exact nearest neighbours are found here, beside scikit-learn, faiss and the matrix products alone.

    python -m bench.neighbours [--tiny] [--device cpu|cuda] [--out bench/results/NAME.md]

Rivals, each from arrays to distances and rows, a library that is not installed left out with a word:

- scikit-learn: NearestNeighbors(algorithm="brute");
- faiss: IndexFlatL2, whose float32 distances it does not measure again.

On a CPU everything has one thread, and every ratio is of two median CPU times of the same run. On a GPU the seconds
themselves are judged: once with the rows there already, as a model leaves them, and once with arrays that go there.
Rows are normal noise, whose distances lie so close together that candidates are hardest to prove right. The ceiling is
the fastest float32 matrix product (1024 x 1024) of the run; a search's share of it counts 2 q n d operations alone.
Measuring k neighbours again in float64 costs about as much as the product with 100 k points, whatever their number:
few points and many neighbours are where rivals that do not are ahead.
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

from bench.measuring import Row, Run, clock_of, in_turn, options, publish
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


# Images as density compares them, and as many neighbours as deja_vu asks for, of pixels and of embeddings; of these
# also few points, where rivals that measure nothing again are ahead.
CPU_SIZES = (
    Size(2000, 20_000, 784, 1),
    Size(2000, 50_000, 784, 100),
    Size(500, 50_000, 8192, 100),
    Size(500, 10_000, 8192, 100),
)
CUDA_SIZES = (Size(20_000, 50_000, 8192, 100),)
TINY_SIZES = (Size(30, 400, 16, 5),)


def sizes(place: torch.device, tiny: bool) -> tuple[Size, ...]:
    if tiny:
        return TINY_SIZES
    return CPU_SIZES if place.type == "cpu" else CUDA_SIZES


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
    """Somebody else's search, the package it is of, and how many times as fast ours must and should be."""

    package: str
    search: Callable[[Array, Array, int], object]
    must: float
    aim: float


RIVALS = {
    "scikit-learn": Rival("sklearn", by_scikit_learn, 2.0, 2.4),
    "faiss": Rival("faiss", by_faiss, 0.9, 1.0),
}


def absent() -> list[str]:
    """The rivals that are not installed here."""
    return [name for name, rival in RIVALS.items() if not importable(rival.package)]


def importable(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def rows(size: Size, place: torch.device, rounds: int, gpu: bool | None = None) -> list[Row]:
    """What one size answers on this device: against the rivals that are here, or as a GPU is asked."""
    stream = np.random.default_rng(0)
    queries, points = (stream.standard_normal((n, size.columns), dtype=np.float32) for n in (size.queries, size.points))
    judged = on_gpu if (place.type == "cuda" if gpu is None else gpu) else on_cpu
    return list(judged(size, queries, points, place, rounds))


def on_cpu(size: Size, queries: Array, points: Array, place: torch.device, rounds: int) -> Iterator[Row]:
    kind, clock = clock_of(place)
    rivals = {name: rival for name, rival in RIVALS.items() if importable(rival.package)}
    runs: dict[str, Run] = {"engram": partial(nearest, queries, points, size.k, target_device=place)}
    runs |= {name: partial(rival.search, queries, points, size.k) for name, rival in rivals.items()}
    runs |= (products := ceilings(place))
    torch.set_num_threads(1)
    with one_thread_each(rivals):
        seconds = in_turn(runs, rounds, clock)
    ours = seconds["engram"]
    for name, rival in rivals.items():
        beside = f"{seconds[name]:.3f} s, {name}"
        yield Row(f"neighbours, {size}, {kind}", f"{ours:.3f} s", beside, seconds[name] / ours, rival.must, rival.aim)
    yield share(size, ours, {name: rate(seconds[name]) for name in products})


@contextmanager
def one_thread_each(rivals: Iterable[str]) -> Iterator[None]:
    """Inside, the rivals' own pools have one thread too."""
    with ExitStack() as stack:
        if "faiss" in rivals:
            import faiss

            stack.callback(faiss.omp_set_num_threads, faiss.omp_get_max_threads())
            faiss.omp_set_num_threads(1)
        if "scikit-learn" in rivals:
            from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

            stack.enter_context(threadpool_limits(1))
        yield


def on_gpu(size: Size, queries: Array, points: Array, place: torch.device, rounds: int) -> Iterator[Row]:
    kind, clock = clock_of(place)
    asked, among = (torch.from_numpy(array).to(place) for array in (queries, points))
    resident, sent = "rows on the device", "rows from arrays"
    runs: dict[str, Run] = {
        resident: partial(nearest, asked, among, size.k),
        sent: partial(nearest, queries, points, size.k, target_device=place),
    }
    runs |= (products := ceilings(place))
    seconds = in_turn(runs, rounds, clock)
    for name in (resident, sent):
        yield Row(
            f"neighbours, {size}, {name}, {kind}", f"{seconds[name]:.3f} s", "", seconds[name], 2.0, 0.5, unit="s"
        )
    yield share(size, seconds[resident], {name: rate(seconds[name]) for name in products})


def share(size: Size, ours: float, rates: dict[str, float]) -> Row:
    """How much of the ceiling a search reaches."""
    best = max(rates, key=lambda name: rates[name])
    reached = size.gigaflops / ours
    what = f"neighbours, {size}: share of {best}'s products (the ceiling)"
    return Row(what, f"{reached:.0f} GF/s", f"{rates[best]:.0f} GF/s", reached / rates[best])


def main() -> None:
    asked = options(__doc__)
    place = torch.device(asked.device)
    rounds = 2 if asked.tiny else 5
    result = [row for size in sizes(place, asked.tiny) for row in rows(size, place, rounds)]
    setting = measurement_facts("normal noise", place)
    if place.type == "cpu" and absent():
        setting["left out"] = f"{' and '.join(absent())}, not installed here"
    publish("Exact nearest neighbours", setting, result, asked.out)


if __name__ == "__main__":
    main()
