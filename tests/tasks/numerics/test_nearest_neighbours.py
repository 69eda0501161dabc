import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tasks.numerics import nearest_neighbours
from tasks.numerics.nearest_neighbours import Best, By, Frame, Neighbours, Search, nearest, smallest

ROOT = Path(__file__).resolve().parents[3]
CPU = torch.device("cpu")
LIBRARIES: tuple[By, ...] = ("torch", "faiss")
Array = NDArray[Any]

both = pytest.mark.parametrize("by", LIBRARIES)


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def brute(queries: Array, points: Array, k: int) -> Neighbours:
    """Every difference in float64, sorted by distance and then by row."""
    wide = points.astype(np.float64)
    distances = np.stack([np.sqrt(np.square(wide - query.astype(np.float64)).sum(1)) for query in queries])
    rows = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return Neighbours(np.take_along_axis(distances, rows, 1), rows)


def assert_same(expected: Neighbours, actual: Neighbours) -> None:
    np.testing.assert_array_equal(expected.rows, actual.rows)
    np.testing.assert_allclose(actual.distances, expected.distances, rtol=1e-12, atol=0)


@both
def test_the_nearest_of_points_on_a_line_are_known(by: By) -> None:
    points = np.array([[0], [1], [3], [7]], dtype=np.float32)
    found = nearest(np.array([[2.75], [-1]], dtype=np.float32), points, 3, by, CPU)
    assert found.rows.tolist() == [[2, 1, 0], [0, 1, 2]]
    assert found.distances.tolist() == [[0.25, 1.75, 2.75], [1, 2, 4]]
    assert (np.float64, np.int64) == (found.distances.dtype, found.rows.dtype)


@both
@pytest.mark.parametrize(("q", "n", "d", "k"), [(1, 1, 1, 1), (7, 40, 3, 40), (50, 900, 100, 5), (300, 5000, 17, 100)])
def test_it_is_the_float64_search_of_every_pair(by: By, q: int, n: int, d: int, k: int) -> None:
    queries, points = (stream(d).standard_normal((rows, d), dtype=np.float32) for rows in (q, n))
    assert_same(brute(queries, points, k), nearest(queries, points, k, by, CPU))


@both
def test_a_point_is_at_distance_zero_from_itself_and_near_duplicates_keep_their_digits(by: By) -> None:
    """Far from the origin, where |x|^2 + |y|^2 - 2 x.y in float32 has no correct digit left."""
    points = (1000 + stream().standard_normal((500, 64))).astype(np.float32)
    near = points.copy()
    near[:, 5] = np.nextafter(points[:, 5], np.float32(np.inf))
    step = near[:, 5].astype(np.float64) - points[:, 5].astype(np.float64)
    same, other = nearest(points, points, 1, by, CPU), nearest(near, points, 1, by, CPU)
    assert list(range(500)) == same.rows[:, 0].tolist() == other.rows[:, 0].tolist()
    assert same.distances[:, 0].tolist() == [0.0] * 500
    assert step.tolist() == other.distances[:, 0].tolist()


@both
def test_of_equally_distant_points_the_lower_row_comes_first(by: By) -> None:
    """A grid of whole numbers: distances tie by the dozen, also across the cut at k."""
    grid = np.stack(np.meshgrid(*[np.arange(6)] * 4), -1).reshape(-1, 4).astype(np.float32)
    points = stream().permutation(grid)
    for k in (1, 9, 50, len(points)):
        assert_same(brute(points[:60], points, k), nearest(points[:60], points, k, by, CPU))


@both
def test_more_copies_than_spare_candidates_are_all_ranked_by_row(by: By) -> None:
    distinct = stream().standard_normal((3, 8), dtype=np.float32)
    which = stream(1).integers(0, 3, 1500)
    points, k = distinct[which], 200
    found = nearest(distinct, points, k, by, CPU)
    assert [np.flatnonzero(which == i)[:k].tolist() for i in range(3)] == found.rows.tolist()
    assert found.distances.max() == 0


@both
def test_points_that_are_all_one_point_come_in_the_order_of_rows(by: By) -> None:
    points = np.full((400, 5), 0.1, dtype=np.float32)
    found = nearest(np.stack([points[0], points[0] + 1]), points, 3, by, CPU)
    assert found.rows.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert found.distances[0].tolist() == [0, 0, 0]


@both
@pytest.mark.parametrize("size", [1e-38, 1e-25, 1e25, 1e38])
def test_numbers_at_either_end_of_float32_neither_overflow_nor_vanish(by: By, size: float) -> None:
    queries, points = (stream(i).uniform(-1, 1, (40 + i, 20)).astype(np.float32) * np.float32(size) for i in range(2))
    assert_same(brute(queries, points, 7), nearest(queries, points, 7, by, CPU))


@both
def test_queries_far_from_all_points_find_the_same_ones(by: By) -> None:
    points = stream().standard_normal((300, 6), dtype=np.float32)
    for far in (1e3, 1e6, 1e12):
        queries = (far * stream(2).standard_normal((20, 6))).astype(np.float32)
        assert_same(brute(queries, points, 4), nearest(queries, points, 4, by, CPU))


def test_one_far_outlier_among_the_points_does_not_blur_the_others() -> None:
    points = stream().standard_normal((800, 10), dtype=np.float32)
    points[17] = 1e7
    assert_same(brute(points[:50], points, 3), nearest(points[:50], points, 3, "torch", CPU))


@pytest.mark.parametrize("edge", [-1, 0, 1])
@pytest.mark.parametrize("points_at_once", [16, 64])
def test_the_edges_of_tiles_bear_on_nothing(edge: int, points_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    d, k = 5, 20
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


def test_bytes_halves_and_tensors_count_as_the_float32_they_are() -> None:
    pixels = stream().integers(0, 256, (100, 30), dtype=np.uint8)
    pixels.setflags(write=False)
    expected = brute(pixels[:20], pixels, 4)
    assert_same(expected, nearest(pixels[:20], pixels, 4, target_device=CPU))
    assert_same(expected, nearest(torch.tensor(pixels[:20]).half(), pixels, 4, target_device=CPU))
    assert_same(expected, nearest(pixels[:20].astype(np.float32), torch.tensor(pixels).float(), 4))


def test_a_looser_product_asked_for_by_the_user_changes_nothing() -> None:
    queries, points = (stream(i).standard_normal((300, 256), dtype=np.float32) for i in range(2))
    expected, before = nearest(queries, points, 5, "torch", CPU), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        actual = nearest(queries, points, 5, "torch", CPU)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_array_equal(expected.distances, actual.distances)


@both
def test_the_stated_error_holds_for_every_score(by: By) -> None:
    """The proof that nothing is missed rests on it; here against scores in float64."""
    d = 700
    queries, points = (torch.from_numpy((5 + stream(i).standard_normal((60, d))).astype(np.float32)) for i in range(2))
    with torch.inference_mode():
        search = Search(queries, points, Frame.centre_on(queries, points, CPU), CPU, nearest_neighbours.CPU)
        found = nearest_neighbours.library(by, CPU, 3600, d, 60)(search, 60)(search.frame.transform(queries))
        x = queries.double() * search.frame.scale - search.frame.centre
        y = (points.double() * search.frame.scale - search.frame.centre)[found.rows]
        squares = (x[:, None] - y).square().sum(2)
        true = squares if by == "faiss" else (squares - x.square().sum(1, keepdim=True)) / 2
        assert bool(((found.scores - true).abs() <= found.error[:, None]).all())
        assert bool((found.error < 1e-2 * squares.min(1).values).all())  # and is small enough to prove something


def test_the_best_so_far_are_the_smallest_of_all_tiles() -> None:
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


def test_where_faiss_is_absent_torch_answers_and_faiss_by_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "faiss.py").write_text("raise ImportError('absent')\n")
    script = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]
import numpy as np
from tasks.numerics import nearest_neighbours as neighbours
points = np.arange(8, dtype=np.float32).reshape(4, 2)
neighbours.onednn_is_faster = lambda: False  # a processor on which faiss would have been taken
assert [[1, 0]] == neighbours.nearest(points[1:2], points, 2).rows.tolist()
try:
    neighbours.nearest(points, points, 1, by="faiss")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "absent", done.stderr


LARGE = {"pairs": 10_000 * 128_000, "columns": 128, "most": 2048}


@pytest.mark.parametrize(
    ("device", "onednn", "gpus", "sizes", "expected"),
    [
        ("cpu", True, 0, LARGE, "torch"),
        ("cpu", False, 0, LARGE, "faiss"),
        ("cpu", False, None, LARGE, "torch"),
        ("cuda", True, 1, LARGE, "faiss"),
        ("cuda", True, 1, LARGE | {"columns": 129}, "torch"),
        ("cuda", True, 1, LARGE | {"pairs": 10_000 * 127_999}, "torch"),
        ("cuda", True, 1, LARGE | {"most": 2049}, "torch"),
        ("cuda", True, 0, LARGE, "torch"),
        ("cuda", True, None, LARGE, "torch"),
    ],
)
def test_which_library_is_taken_depends_on_the_machine_and_on_a_gpu_on_the_sizes(
    device: str, onednn: bool, gpus: int | None, sizes: dict[str, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_neighbours, "onednn_is_faster", lambda: onednn)
    monkeypatch.setattr(nearest_neighbours, "faiss_gpus", lambda: gpus)
    taken = nearest_neighbours.library("auto", torch.device(device), **sizes)
    assert getattr(nearest_neighbours, f"_{expected}_finder") is taken


def test_threads_are_as_many_afterwards_as_before() -> None:
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
def test_what_cannot_be_searched_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    asked = {"queries": np.zeros((2, 3), np.float32), "points": np.zeros((5, 3), np.float32), "k": 1, **change}
    with pytest.raises(ValueError, match=message) as error:
        nearest(**asked)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_what_a_cpu_finds() -> None:
    queries, points = (stream(i).standard_normal((100 + 4900 * i, 300), dtype=np.float32) for i in range(2))
    expected = brute(queries, points, 20)
    for by in LIBRARIES if nearest_neighbours.faiss_gpus() is not None else LIBRARIES[:1]:
        assert_same(expected, nearest(queries, points, 20, by, torch.device("cuda")))
    assert_same(expected, nearest(torch.tensor(queries).cuda(), torch.tensor(points).cuda(), 20))
