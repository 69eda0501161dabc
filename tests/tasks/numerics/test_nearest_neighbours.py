import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tasks.numerics import nearest_neighbours
from tasks.numerics.nearest_neighbours import Best, By, Candidates, Find, Frame, Neighbours, Search, nearest, smallest

ROOT = Path(__file__).resolve().parents[3]
CPU = torch.device("cpu")
LIBRARIES: tuple[By, ...] = ("torch", "faiss")
Array = NDArray[Any]

for_both_libraries = pytest.mark.parametrize("by", LIBRARIES)


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def brute(queries: Array, points: Array, k: int) -> Neighbours:
    """The exact neighbours: differences in float64, sorted by distance and then by row."""
    wide = points.astype(np.float64)
    distances = np.stack([np.sqrt(np.square(wide - query.astype(np.float64)).sum(1)) for query in queries])
    rows = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return Neighbours(np.take_along_axis(distances, rows, 1), rows)


def assert_same(expected: Neighbours, actual: Neighbours) -> None:
    np.testing.assert_array_equal(expected.rows, actual.rows)
    np.testing.assert_allclose(actual.distances, expected.distances, rtol=1e-12, atol=0)


@for_both_libraries
def test_nearest_points_on_a_line_are_known(by: By) -> None:
    points = np.array([[0], [1], [3], [7]], dtype=np.float32)
    neighbours = nearest(np.array([[2.75], [-1]], dtype=np.float32), points, 3, by, CPU)
    assert neighbours.rows.tolist() == [[2, 1, 0], [0, 1, 2]]
    assert neighbours.distances.tolist() == [[0.25, 1.75, 2.75], [1, 2, 4]]
    assert np.float64 == neighbours.distances.dtype
    assert np.int64 == neighbours.rows.dtype


@for_both_libraries
@pytest.mark.parametrize(("q", "n", "d", "k"), [(1, 1, 1, 1), (7, 40, 3, 40), (50, 900, 100, 5), (300, 5000, 17, 100)])
def test_search_equals_float64_search_of_all_pairs(by: By, q: int, n: int, d: int, k: int) -> None:
    queries = stream(d).standard_normal((q, d), dtype=np.float32)
    points = stream(d).standard_normal((n, d), dtype=np.float32)
    assert_same(brute(queries, points, k), nearest(queries, points, k, by, CPU))


@for_both_libraries
def test_distance_to_itself_is_zero_and_duplicates_exact(by: By) -> None:
    """Far from the origin, where |x|^2 + |y|^2 - 2 x.y in float32 has no correct digit."""
    points = (1000 + stream().standard_normal((500, 64))).astype(np.float32)
    near = points.copy()
    near[:, 5] = np.nextafter(points[:, 5], np.float32(np.inf))
    step = near[:, 5].astype(np.float64) - points[:, 5].astype(np.float64)
    exact = nearest(points, points, 1, by, CPU)
    shifted = nearest(near, points, 1, by, CPU)
    assert list(range(500)) == exact.rows[:, 0].tolist() == shifted.rows[:, 0].tolist()
    assert exact.distances[:, 0].tolist() == [0.0] * 500
    assert step.tolist() == shifted.distances[:, 0].tolist()


@for_both_libraries
def test_lower_row_comes_first_for_equal_distances(by: By) -> None:
    """A grid of integers: many distances are equal, also at the cut at k."""
    grid = np.stack(np.meshgrid(*[np.arange(6)] * 4), -1).reshape(-1, 4).astype(np.float32)
    points = stream().permutation(grid)
    for k in (1, 9, 50, len(points)):
        assert_same(brute(points[:60], points, k), nearest(points[:60], points, k, by, CPU))


@for_both_libraries
def test_many_copies_are_ranked_by_row(by: By) -> None:
    distinct = stream().standard_normal((3, 8), dtype=np.float32)
    which = stream(1).integers(0, 3, 1500)
    points = distinct[which]
    k = 200
    neighbours = nearest(distinct, points, k, by, CPU)
    assert [np.flatnonzero(which == i)[:k].tolist() for i in range(3)] == neighbours.rows.tolist()
    assert neighbours.distances.max() == 0


@for_both_libraries
def test_identical_points_are_ordered_by_row(by: By) -> None:
    points = np.full((400, 5), 0.1, dtype=np.float32)
    neighbours = nearest(np.stack([points[0], points[0] + 1]), points, 3, by, CPU)
    assert neighbours.rows.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert neighbours.distances[0].tolist() == [0, 0, 0]


@for_both_libraries
@pytest.mark.parametrize("size", [1e-38, 1e-25, 1e25, 1e38])
def test_extreme_float32_numbers_neither_overflow_nor_vanish(by: By, size: float) -> None:
    queries, points = (stream(i).uniform(-1, 1, (40 + i, 20)).astype(np.float32) * np.float32(size) for i in range(2))
    assert_same(brute(queries, points, 7), nearest(queries, points, 7, by, CPU))


@for_both_libraries
def test_distant_queries_find_the_same_neighbours(by: By) -> None:
    points = stream().standard_normal((300, 6), dtype=np.float32)
    for far in (1e3, 1e6, 1e12):
        queries = (far * stream(2).standard_normal((20, 6))).astype(np.float32)
        assert_same(brute(queries, points, 4), nearest(queries, points, 4, by, CPU))


def test_far_outlier_does_not_blur_other_points() -> None:
    points = stream().standard_normal((800, 10), dtype=np.float32)
    points[17] = 1e7
    assert_same(brute(points[:50], points, 3), nearest(points[:50], points, 3, "torch", CPU))


@pytest.mark.parametrize("edge", [-1, 0, 1])
@pytest.mark.parametrize("points_at_once", [16, 64])
def test_tile_edges_do_not_affect_results(edge: int, points_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    d = 5
    k = 20
    small = replace(
        nearest_neighbours.CPU, queries=30 * (4 * d + 24 * 52), most_points=points_at_once, scores=7 * 64, pairs=300
    )
    queries, points = (stream(i).integers(0, 4, (61, d)).astype(np.float32) for i in range(2))
    points = np.tile(points, (6, 1))[: 5 * 64 + edge]
    monkeypatch.setattr(nearest_neighbours, "CPU", small)
    for by in LIBRARIES:
        assert_same(brute(queries, points, k), nearest(queries, points, k, by, CPU))


def test_libraries_give_the_same_bits() -> None:
    queries, points = (stream(i).standard_normal((200 + 1800 * i, 50), dtype=np.float32) for i in range(2))
    by_torch, by_faiss = (nearest(queries, points, 10, by, CPU) for by in LIBRARIES)
    np.testing.assert_array_equal(by_torch.rows, by_faiss.rows)
    np.testing.assert_array_equal(by_torch.distances, by_faiss.distances)


def test_other_types_are_converted_to_float32() -> None:
    pixels = stream().integers(0, 256, (100, 30), dtype=np.uint8)
    pixels.setflags(write=False)
    expected = brute(pixels[:20], pixels, 4)
    assert_same(expected, nearest(pixels[:20], pixels, 4, target_device=CPU))
    assert_same(expected, nearest(torch.tensor(pixels[:20]).half(), pixels, 4, target_device=CPU))
    assert_same(expected, nearest(pixels[:20].astype(np.float32), torch.tensor(pixels).float(), 4))


def test_users_matmul_precision_does_not_affect_results() -> None:
    queries, points = (stream(i).standard_normal((300, 256), dtype=np.float32) for i in range(2))
    expected = nearest(queries, points, 5, "torch", CPU)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        actual = nearest(queries, points, 5, "torch", CPU)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_array_equal(expected.distances, actual.distances)


@for_both_libraries
def test_stated_error_covers_every_score(by: By) -> None:
    """The proof of completeness uses this error; here it is compared with scores in float64."""
    d = 700
    queries, points = (torch.from_numpy((5 + stream(i).standard_normal((60, d))).astype(np.float32)) for i in range(2))
    with torch.inference_mode():
        search = Search(queries, points, Frame.centre_on(queries, points, CPU), CPU, nearest_neighbours.CPU)
        candidates = nearest_neighbours.choose_library(by, search, 60)(search, 60)(search.frame.transform(queries))
        x = queries.double() * search.frame.scale - search.frame.centre
        y = (points.double() * search.frame.scale - search.frame.centre)[candidates.rows]
        squares = (x[:, None] - y).square().sum(2)
        true = squares if by == "faiss" else (squares - x.square().sum(1, keepdim=True)) / 2
        assert bool(((candidates.scores - true).abs() <= candidates.error[:, None]).all())
        assert bool((candidates.error < 1e-2 * squares.min(1).values).all())  # and is small enough to be useful


def test_best_candidates_are_the_smallest_of_all_tiles() -> None:
    scores = torch.from_numpy(stream().standard_normal((9, 640), dtype=np.float32))
    best = Best.none(9, 50, CPU)
    for first in range(0, 640, 64):
        best.take(slice(0, 4), scores[:4, first : first + 64].contiguous(), first)
        best.take(slice(4, 9), scores[4:, first : first + 64].contiguous(), first)
    values, rows = best.sort()
    assert torch.equal(scores.sort(1).values[:, :50], values)
    assert torch.equal(scores.sort(1).indices[:, :50], rows)
    assert torch.equal(values[:, -1], best.worst)
    assert smallest(torch.tensor([[2.0, 3.0, 1.0]]), 2).sort(descending=True).values.tolist() == [[2, 0]]


def test_memory_stays_far_below_all_pairs() -> None:
    """4,000 x 30,000 scores would be 480 MB; the peak of the whole process, torch included, may grow by 300."""
    script = """
import resource
import numpy as np
from tasks.numerics.nearest_neighbours import nearest
stream = np.random.default_rng(0)
queries, points = (stream.standard_normal((rows, 4), dtype=np.float32) for rows in (4000, 30000))
nearest(queries[:50], points[:500], 5, "torch")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
nearest(queries, points, 5, "torch")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 300


def test_missing_faiss_falls_back_to_torch_unless_named(tmp_path: Path) -> None:
    (tmp_path / "faiss.py").write_text("raise ImportError('absent')\n")
    script = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]
import numpy as np
from tasks.numerics import nearest_neighbours as neighbours
points = np.arange(8, dtype=np.float32).reshape(4, 2)
neighbours.onednn_is_faster = lambda: False  # a processor that would use faiss
assert [[1, 0]] == neighbours.nearest(points[1:2], points, 2).rows.tolist()
try:
    neighbours.nearest(points, points, 1, by="faiss")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "absent", done.stderr


def search_on(device: str, queries: int = 4, points: int = 9) -> Search:
    """A search whose rows are on the CPU; its device is only asked for its type."""
    rows = stream().standard_normal((queries + points, 3), dtype=np.float32)
    tensors = torch.from_numpy(rows[:queries]), torch.from_numpy(rows[queries:])
    return Search(*tensors, Frame.centre_on(*tensors, CPU), torch.device(device), nearest_neighbours.CPU)


@pytest.mark.parametrize(
    ("device", "onednn", "gpus", "expected"),
    [
        ("cpu", True, 0, "torch"),
        ("cpu", False, 0, "faiss"),
        ("cpu", False, None, "torch"),
        ("cuda", True, 1, "torch"),
        ("cuda", True, 0, "torch"),
        ("cuda", True, None, "torch"),
    ],
)
def test_library_of_a_small_search_depends_on_machine(
    device: str, onednn: bool, gpus: int | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_neighbours, "onednn_is_faster", lambda: onednn)
    monkeypatch.setattr(nearest_neighbours, "faiss_gpus", lambda: gpus)
    finder = nearest_neighbours.choose_library("auto", search_on(device), 3)
    assert getattr(nearest_neighbours, f"_{expected}_finder") is finder


def refuse(*_: object) -> None:
    raise RuntimeError("no kernel image is available for execution on the device")


@pytest.mark.parametrize(
    ("slow", "by", "expected"),
    [("torch", "auto", "faiss"), ("faiss", "auto", "torch"), ("failing", "auto", "torch"), ("torch", "torch", "torch")],
)
def test_large_search_uses_the_faster_library(
    slow: str, by: By, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def finder_of(name: str) -> Candidates:
        def finder(search: Search, m: int) -> Find:
            find = nearest_neighbours._torch_finder(search, m)
            if len(search.queries) == 40:
                used.append(name)
            if slow == name:
                time.sleep(0.05)
            return find

        return finder

    finders = {name: finder_of(name) for name in LIBRARIES}
    if slow == "failing":
        finders["faiss"] = refuse  # type: ignore[assignment]
    monkeypatch.setattr(nearest_neighbours, "TRIED_PAIRS", 40 * 300)
    monkeypatch.setattr(nearest_neighbours, "TRIED_QUERIES", 10)
    monkeypatch.setattr(nearest_neighbours, "TRIED_POINTS", 100)
    monkeypatch.setattr(nearest_neighbours, "FINDERS", finders)
    queries, points = (stream(i).standard_normal((40 + 260 * i, 8), dtype=np.float32) for i in range(2))
    assert_same(brute(queries, points, 5), nearest(queries, points, 5, by, CPU))
    assert used == [expected]


def test_thread_counts_are_unchanged_afterwards() -> None:
    import faiss

    before = torch.get_num_threads(), faiss.omp_get_max_threads(), threading.active_count()
    points = stream().standard_normal((30, 3), dtype=np.float32)
    for by in LIBRARIES:
        nearest(points, points, 2, by, CPU)
    assert before == (torch.get_num_threads(), faiss.omp_get_max_threads(), threading.active_count())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": np.zeros((2, 4), np.float32)}, "queries have 4 columns but points 3; they must have equally many"),
        ({"k": 0}, "k is 0; it must be from 1 to the number of points, 5"),
        ({"k": 6}, "k is 6; it must be from 1 to the number of points, 5"),
        ({"by": "annoy"}, "by is 'annoy'; it must be one of auto, faiss, torch"),
        ({"points": np.zeros((0, 3), np.float32)}, r"points have shape \(0, 3\); they must be \(rows, columns\), with"),
        ({"queries": np.zeros(3, np.float32)}, r"queries have shape \(3,\); they must be \(rows, columns\), with"),
        ({"queries": np.zeros((2, 3))}, "queries are of type float64; give float32, or a type that it holds"),
        ({"points": torch.zeros(2, 3, dtype=torch.int64)}, "points are of type torch.int64; give float32, or a type"),
        ({"queries": np.full((2, 3), np.nan, np.float32)}, "queries must be finite; 2 of 2 rows have a value that is"),
        ({"points": np.float32([[1, 2, 3], [1, -np.inf, 3]])}, "points must be finite; 1 of 2 rows have a value"),
    ],
)
def test_invalid_searches_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"queries": np.zeros((2, 3), np.float32), "points": np.zeros((5, 3), np.float32), "k": 1, **change}
    with pytest.raises(ValueError, match=message) as error:
        nearest(**arguments)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_finds_the_same_as_cpu() -> None:
    queries, points = (stream(i).standard_normal((100 + 4900 * i, 300), dtype=np.float32) for i in range(2))
    expected = brute(queries, points, 20)
    for by in LIBRARIES if nearest_neighbours.faiss_gpus() is not None else LIBRARIES[:1]:
        assert_same(expected, nearest(queries, points, 20, by, torch.device("cuda")))
    assert_same(expected, nearest(torch.tensor(queries).cuda(), torch.tensor(points).cuda(), 20))
