"""Exact nearest neighbours by Euclidean distance, in bounded memory.

A float32 matrix product over all pairs yields candidates, but its rounding errors are largest for nearly equal rows.
The distances of candidates are therefore recomputed as differences in float64, and a bound on the rounding errors of
the product proves that no other point is among the nearest. If the bound does not suffice (many points at the same
distance), more candidates are used, up to all points. The result equals a float64 search of all pairs, for every
library.

The bound: rows are shifted by a common centre and scaled by a power of two, which does not change any neighbour. With u
= 2^-24 and gamma = d u / (1 - d u), a computed dot product of d terms is within gamma |x| |y| of the true one, for any
order of summation (Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 3.1).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from tasks.numerics.matmul import onednn_is_faster, single_products
from tasks.worker.hardware import device, full_float32, threads

By = Literal["auto", "faiss", "torch"]
Rows = NDArray[Any] | Tensor

# Types that float32 represents without loss.
EXACT = (torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16)
UNIT = 2.0**-24
# Candidates in addition to k. They suffice to prove nearly every query in one pass, even for noise. More are used if d
# widens the bound.
SPARE = 32
COLUMNS_PER_SPARE = 128
WIDER = 8  # factor on the number of candidates if there were too few
GROUP = 16  # points represented by their smallest score
FAISS_GPU_MOST = 2048  # maximum number of neighbours of a faiss GPU index
# Which library is faster depends on the processor and on the number of columns (bench/results/neighbours-faiss-cpu.md),
# so a large search tries both on a sample of its rows, which takes 2 % of its time at most.
TRIED_PAIRS = 10**9
TRIED_QUERIES = 512
TRIED_POINTS = 2**14
ON_GPU = 8  # factor on both numbers on a GPU, which needs more rows to be busy


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Each query's k nearest points, nearest first: distances (q, k) float64 and rows (q, k) int64."""

    distances: NDArray[np.float64]
    rows: NDArray[np.int64]

    @classmethod
    def empty(cls, queries: int, k: int) -> Neighbours:
        return cls(np.empty((queries, k)), np.empty((queries, k), dtype=np.int64))


@dataclass(frozen=True)
class Sizes:
    """The amounts that are computed at a time. On a CPU, a tile of scores fits into the cache."""

    queries: int  # bytes of queries and candidates that are compared with all points at a time
    points: int  # bytes of points shifted at a time
    most_points: int
    scores: int  # scores at a time: queries x points
    pairs: int  # bytes of float64 differences


CPU = Sizes(queries=2**28, points=2**24, most_points=2**12, scores=2**21, pairs=2**20)


def nearest(
    queries: Rows, points: Rows, k: int, by: By = "auto", target_device: torch.device | None = None
) -> Neighbours:
    """Return the k nearest of `points` (n, d) to each of `queries` (q, d). If distances tie, the lower row comes first.

    Rows are float32, or of a type that float32 can hold without loss. They are arrays, or tensors that may already be
    on a GPU. A distance is the square root of the float64 sum of squared differences, so a point's distance to itself
    is 0 and near duplicates keep their digits: the relative error is at most (d + 3) 2^-53. Distances are equal, and
    rows tied, if these float64 numbers are equal. Neither the library nor the size of the tiles affects the result. A
    GPU sums in a different order than a CPU, so its distances may differ within that error, and with them the order of
    such close rows.

    `by` names the library for candidates; auto chooses as `choose_library` does. The default `target_device` is that of
    the points if they are a tensor, otherwise a GPU if there is one. A CPU search uses one thread.

    Memory in addition to the rows: `Sizes`, plus a copy of the points for faiss, and on a GPU if it fits; never q x n.

    Raises ValueError for rows that are not finite, not (n, d) with the same d, empty, or of a type that float32 would
    round, and for k below 1 or above n. Raises ImportError if faiss is requested but not installed.
    """
    query_rows = _as_rows("queries", queries)
    point_rows = _as_rows("points", points)
    (q, d), n = query_rows.shape, len(point_rows)
    if d != point_rows.shape[1]:
        raise ValueError(f"queries have {d} columns but points {point_rows.shape[1]}; they must have equally many")
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}; it must be from 1 to the number of points, {n}")
    if by not in get_args(By):
        raise ValueError(f"by is {by!r}; it must be one of {', '.join(get_args(By))}")
    target_device = target_device or (points.device if isinstance(points, Tensor) else device())
    m = min(k + SPARE + d // COLUMNS_PER_SPARE, n)
    with torch.inference_mode(), threads(1) if target_device.type == "cpu" else nullcontext(), full_float32():
        if target_device.type == "cpu":
            sizes = CPU
        else:
            sizes = _sizes_on_gpu(target_device)
        if target_device.type == "cuda" and point_rows.nbytes < sizes.queries:
            point_rows = point_rows.to(target_device)
        search = Search(
            query_rows, point_rows, Frame.centre_on(query_rows, point_rows, target_device), target_device, sizes
        )
        candidates = choose_library(by, search, m)
        answer = Neighbours.empty(q, k)
        search.fill(answer, torch.arange(q), m, candidates)
    return answer


def _as_rows(name: str, rows: Rows) -> Tensor:
    """Return the rows as a tensor on their device, without copying. Raises ValueError for invalid rows."""
    if isinstance(rows, np.ndarray) and np.can_cast(rows.dtype, np.float32) and rows.dtype != np.bool_:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable")  # nothing here writes to it
            rows = torch.from_numpy(np.ascontiguousarray(rows))
    if not isinstance(rows, Tensor) or rows.dtype not in EXACT:
        raise ValueError(f"{name} are of type {rows.dtype}; give float32, or a type that it holds without loss")
    if rows.ndim != 2 or rows.numel() == 0:
        shape = tuple(rows.shape)
        raise ValueError(f"{name} have shape {shape}; they must be (rows, columns), with at least one of each")
    return rows.detach()


def choose_library(by: By, search: Search, m: int) -> Candidates:
    """Choose the library that finds m candidates for every query of this search.

    Auto chooses torch on a GPU and on a CPU where it multiplies with oneDNN, otherwise faiss if it is installed. If
    faiss can be used, a large search tries both instead.
    """
    if by != "auto":
        return FINDERS[by]
    gpus = faiss_gpus()
    on_gpu = search.device.type == "cuda"
    if gpus is None or (on_gpu and (not gpus or m > FAISS_GPU_MOST)) or search.device.type not in ("cpu", "cuda"):
        return _torch_finder
    if len(search.queries) * len(search.points) >= TRIED_PAIRS:
        expected = {name: expected_seconds(finder, search, m) for name, finder in FINDERS.items()}
        return FINDERS[min(expected, key=lambda name: expected[name])]
    return _torch_finder if on_gpu or onednn_is_faster() else _faiss_finder


def expected_seconds(candidates: Candidates, search: Search, m: int) -> float:
    """Predict the time of a search from one with a sample of its rows. Infinite if the library fails."""
    scale = ON_GPU if search.device.type == "cuda" else 1
    queries = search.queries[: TRIED_QUERIES * scale].to(search.device)
    points = search.points[: TRIED_POINTS * scale]
    sample = replace(search, queries=queries, points=points)
    try:
        candidates(replace(sample, points=points[:m]), m)(search.frame.transform(queries[:1]))  # loads the library
        start = clock(search.device)
        find = candidates(sample, min(m, len(points)))
        prepared = clock(search.device)
        find(search.frame.transform(queries))
        end = clock(search.device)
    except RuntimeError:  # a build of faiss for other GPUs, for example
        return float("inf")
    growth = len(search.points) / len(points)
    return (prepared - start) * growth + (end - prepared) * growth * len(search.queries) / len(queries)


def clock(target_device: torch.device) -> float:
    """Return the time in seconds, after all work on the device."""
    if target_device.type == "cuda":
        torch.cuda.synchronize(target_device)
    return time.perf_counter()


def faiss_gpus() -> int | None:
    """Return the number of GPUs that faiss can use: 0 for its CPU build, None if it is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    return int(faiss.get_num_gpus())


def _sizes_on_gpu(target_device: torch.device) -> Sizes:
    """Return sizes as fractions of the free memory: a quarter for queries, and at most a sixteenth for each other part.

    The points stay on the GPU too if they fit into a quarter.
    """
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(target_device)[0]
    part = max(free // 16, 2**20)
    return Sizes(4 * part, min(part, 2**28), 2**16, min(part // 16, 2**28), min(part, 2**30))


@dataclass(frozen=True, eq=False)
class Frame:
    """The coordinates in which candidates are scored: relative to a centre of the points, scaled to at most about 1."""

    centre: Tensor  # (d,) float32, scaled
    scale: float  # a power of two

    @classmethod
    def centre_on(cls, queries: Tensor, points: Tensor, target_device: torch.device) -> Frame:
        """Return a frame at the centre of a sample of points. Raises ValueError for rows that are not finite."""
        largest = max(_largest_of("queries", queries), _largest_of("points", points))
        # The exponent is one larger, since the difference of two numbers below 1 is below 2.
        scale = 2.0 ** -(np.frexp(largest)[1] + 1) if largest else 1.0
        sample = points[:: -(-len(points) // 1024)]  # any centre is valid
        return cls((sample.to(target_device, torch.float64).mean(0) * scale).float(), float(scale))

    def transform(self, rows: Tensor, destination: Tensor | None = None) -> Tensor:
        """Convert rows to float32 in this frame, with one rounding per coordinate, into `destination` if given."""
        rows = rows.to(self.centre.device, torch.float32)
        return torch.mul(rows, self.scale, out=destination).sub_(self.centre)


def _largest_of(name: str, rows: Tensor) -> float:
    """Return the largest absolute value. Raises ValueError if a value is not finite."""
    low, high = (float(value) for value in torch.aminmax(rows))
    if not np.isfinite(low) or not np.isfinite(high):
        bad = sum(int(torch.isfinite(part).all(1).logical_not().sum()) for part in torch.split(rows, 4096))
        raise ValueError(f"{name} must be finite; {bad} of {len(rows)} rows have a value that is not")
    return max(-low, high)


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Candidates for some queries. Every point that is left out has at least the last score.

    Scores (q, m) are ascending, and each is within `error` (q,) of a quantity that orders the points as their distances
    do.
    """

    scores: Tensor
    rows: Tensor
    error: Tensor


@dataclass(frozen=True, eq=False)
class Search:
    """The data of one call to `nearest`."""

    queries: Tensor  # (q, d), on their original device
    points: Tensor  # (n, d)
    frame: Frame
    device: torch.device
    sizes: Sizes

    def fill(self, answer: Neighbours, indices_of_queries: Tensor, m: int, candidates: Candidates) -> None:
        """Write the neighbours of these queries into the answer, starting with m candidates each."""
        unsettled_parts = []
        find = candidates(self, m)
        together = max(1, self.sizes.queries // (4 * self.points.shape[1] + 24 * m))
        for batch in torch.split(indices_of_queries, together):
            if len(batch) < len(self.queries):
                queries = self.queries[batch.to(self.queries.device)]
            else:
                queries = self.queries
            queries = queries.to(self.device)
            shortlist = find(self.frame.transform(queries))
            settled, neighbours = self.settle(queries, shortlist, answer.rows.shape[1])
            indices = batch[settled].numpy()
            answer.distances[indices], answer.rows[indices] = neighbours.distances, neighbours.rows
            unsettled_parts.append(batch[~settled])
        unsettled = torch.cat(unsettled_parts)
        if len(unsettled):
            self.fill(answer, unsettled, min(WIDER * m, len(self.points)), _torch_finder)

    def settle(self, queries: Tensor, shortlist: Shortlist, k: int) -> tuple[Tensor, Neighbours]:
        """Return a mask of the queries (q,) whose nearest points are provably among their candidates, and these points.

        The k best by score are at most the error further away than their scores, and no omitted point is nearer than
        the last score minus the error.
        """
        scores, m = shortlist.scores.double(), shortlist.scores.shape[1]
        enough = scores[:, k - 1] + 2 * shortlist.error
        settled = (scores[:, -1] > enough) | (m == len(self.points))
        candidate_counts = (scores <= enough[:, None]).sum(1)
        settled_indices = torch.nonzero(settled).flatten()
        neighbours = Neighbours.empty(len(settled_indices), k)
        done = 0
        for batch in torch.split(settled_indices, max(1, self.sizes.scores // m)) if len(settled_indices) else ():
            near = (
                shortlist.rows[batch, : int(candidate_counts[batch].max())].sort(1).values
            )  # so that a stable sort breaks ties
            best = self.exact_distances(queries, batch, near).sort(dim=1, stable=True)
            positions = slice(done, done := done + len(batch))
            neighbours.distances[positions] = best.values[:, :k].cpu().numpy()
            neighbours.rows[positions] = near.gather(1, best.indices[:, :k]).cpu().numpy()
        return settled.cpu(), neighbours

    def exact_distances(self, queries: Tensor, batch: Tensor, near: Tensor) -> Tensor:
        """Return the distances (s, c) from a batch of queries (s,) to points (s, c), as float64 differences."""
        d = self.points.shape[1]
        points_device = self.points.device
        distances = torch.empty(near.shape, dtype=torch.float64, device=self.device)
        pair_limit = max(1, self.sizes.pairs // (8 * d))
        block_columns = min(near.shape[1], pair_limit)
        block_rows = min(len(batch), max(1, pair_limit // block_columns))
        # Reused for every block, since allocating memory takes a CPU longer than the arithmetic.
        ends = torch.empty(block_rows * block_columns, d, dtype=self.points.dtype, device=points_device)
        differences = torch.empty(block_rows * block_columns, d, dtype=torch.float64, device=self.device)
        for first_row in range(0, len(batch), block_rows):
            starts = queries[batch[first_row : first_row + block_rows], None].double()
            for first_column in range(0, near.shape[1], block_columns):
                block = near[first_row : first_row + block_rows, first_column : first_column + block_columns]
                n = block.numel()
                torch.index_select(self.points, 0, block.flatten().to(points_device), out=ends[:n])
                block_differences = differences[:n].copy_(ends[:n]).view(*block.shape, d).sub_(starts)
                distances[first_row : first_row + block_rows, first_column : first_column + block_columns] = (
                    torch.linalg.vector_norm(block_differences, dim=2)
                )
        return distances

    def tiles(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the points in the frame, one tile at a time, with the tile's first row. Tiles share memory."""
        d = self.points.shape[1]
        rows_per_tile = min(len(self.points), self.sizes.most_points, max(GROUP, self.sizes.points // (4 * d)))
        tile = torch.empty(rows_per_tile, d, device=self.device)
        for number, part in enumerate(torch.split(self.points, rows_per_tile)):
            yield number * rows_per_tile, self.frame.transform(part, tile[: len(part)])


Find = Callable[[Tensor], Shortlist]
Candidates = Callable[[Search, int], Find]


def norms(rows: Tensor) -> Tensor:
    """Return the norms of rows in float64, computed in parts whose float64 copy fits into a CPU's cache."""
    if rows.device.type == "cpu":
        several = max(1, 2**17 // rows.shape[1])
    else:
        several = len(rows)
    parts = torch.split(rows, several)
    return torch.cat([torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in parts])


def gamma(d: int) -> float:
    """Return the error bound of a float32 sum of d products, relative to |x| |y|.

    It is infinite outside its valid range.
    """
    return d * UNIT / (1 - d * UNIT) if d * UNIT < 0.5 else float("inf")


def _below_rounding(d: int, query_norms: Tensor) -> Tensor:
    """Bound the error of a score that is due to float64 rounding and to numbers too small for float32."""
    return d * (2.0**-50 * query_norms**2 + 2.0**-100)


def _torch_finder(search: Search, m: int) -> Find:
    """Score points y by |y|^2 / 2 - x.y, one tile at a time.

    This orders the points in the same way as their distances |x - y|.
    """
    affine = single_products(search.device, torch.float32).affine

    def find(queries: Tensor) -> Shortlist:
        best = Best.none(len(queries), m, search.device)
        opposite = -queries
        widest = torch.zeros((), dtype=torch.float64, device=search.device)
        for first, tile in search.tiles():
            lengths = norms(tile)
            widest = torch.maximum(widest, lengths.max())
            half = (lengths**2 / 2).float()
            # Fill the last group with points at an infinite distance.
            padding = -len(tile) % GROUP
            if padding:
                tile = pad(tile, (0, 0, 0, padding))
                half = pad(half, (0, padding), value=float("inf"))
            rows_at_once = max(1, search.sizes.scores // max(len(tile), m))
            for begin in range(0, len(queries), rows_at_once):
                batch = slice(begin, begin + rows_at_once)
                best.take(batch, affine(opposite[batch], tile, half, False), first)
        query_norms = norms(queries)
        d = queries.shape[1]
        # Rounding of the dot product, of both rows' coordinates, of |y|^2 / 2 and of the sum.
        error = (gamma(d) + 8 * UNIT) * query_norms * widest + 8 * UNIT * widest**2 + _below_rounding(d, query_norms)
        return Shortlist(*best.sort(), error)

    return find


@dataclass(frozen=True, eq=False)
class Best:
    """The smallest scores so far and their rows, (q, m), unordered, and the largest of these scores (q,)."""

    scores: Tensor
    rows: Tensor
    worst: Tensor

    @classmethod
    def none(cls, queries: int, m: int, target_device: torch.device) -> Best:
        infinite = torch.full((queries, m), float("inf"), device=target_device)
        return cls(infinite, torch.zeros((queries, m), dtype=torch.int64, device=target_device), infinite[:, 0].clone())

    def take(self, batch: slice, scores: Tensor, first: int) -> None:
        """Merge the scores (s, t) of some queries with the points that start at row `first`.

        Every score below the worst is in a group whose smallest score is below the worst, and the m smallest scores are
        in the m groups with the smallest minima. Only these groups are searched.
        """
        m, (count, t) = self.scores.shape[1], scores.shape
        grouped = scores.view(count, GROUP, t // GROUP)
        minima = grouped.amin(1)
        promising = int((minima < self.worst[batch, None]).sum(1).max())
        if not promising:
            return
        groups = smallest(minima, min(m, promising))[:, None, :].expand(-1, GROUP, -1)
        starts = torch.arange(0, t, t // GROUP, device=scores.device)[:, None] + first
        pool = torch.cat([self.scores[batch], grouped.gather(2, groups).flatten(1)], 1)
        rows = torch.cat([self.rows[batch], (groups + starts).flatten(1)], 1)
        best_indices = smallest(pool, m)
        self.scores[batch] = pool.gather(1, best_indices)
        self.rows[batch] = rows.gather(1, best_indices)
        self.worst[batch] = self.scores[batch].amax(1)

    def sort(self) -> tuple[Tensor, Tensor]:
        scores, order = self.scores.sort(1)
        return scores, self.rows.gather(1, order)


def smallest(values: Tensor, count: int) -> Tensor:
    """Return the positions (q, count) of the smallest values in each row, unordered."""
    if values.device.type != "cpu":
        return values.topk(count, largest=False, sorted=False).indices
    # NumPy partitions with vector instructions, 2 to 8 times as fast as topk.
    return torch.from_numpy(np.argpartition(values.numpy(), count - 1, axis=1)[:, :count])


def _faiss_finder(search: Search, m: int) -> Find:
    """Score points by |x|^2 + |y|^2 - 2 x.y.

    This runs on the GPU if the search is on one that faiss supports.
    """
    import faiss

    on_gpu = search.device.type == "cuda" and bool(faiss_gpus())
    if on_gpu and m > FAISS_GPU_MOST:
        return _torch_finder(search, m)
    index: Any = faiss.IndexFlatL2(search.points.shape[1])
    widest = 0.0
    if on_gpu:  # checked first, because faiss silently ignores a missing GPU
        resources = faiss.StandardGpuResources()
        resources.setTempMemory(search.sizes.points)
        index = faiss.index_cpu_to_gpu(resources, search.device.index or 0, index)
    for _, tile in search.tiles():
        widest = max(widest, float(norms(tile).max()))
        index.add(tile.cpu().numpy())

    def find(queries: Tensor) -> Shortlist:
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            squares, rows = index.search(queries.cpu().numpy(), m)
        finally:
            faiss.omp_set_num_threads(before)
        query_norms = norms(queries)
        d = queries.shape[1]
        error = (gamma(d) + 16 * UNIT) * (query_norms + widest) ** 2 + _below_rounding(d, query_norms)
        return Shortlist(torch.from_numpy(squares).to(search.device), torch.from_numpy(rows).to(search.device), error)

    return find


FINDERS: dict[str, Candidates] = {"torch": _torch_finder, "faiss": _faiss_finder}
