"""Speed and memory of the attack table of `membership`, compared with one target after another.

    python -m bench.attack_table [--tiny] [--out bench/results/NAME.md]

The rival lists the references of each target and sorts the scores of all other targets for its thresholds, so its time
is quadratic in the number of models. Both compute the scores of all attacks and their thresholds in one run; the ratio
compares median processor times with one thread. The row also states by how much scores and thresholds differ.

The other rows compute the complete table in a process of their own, from simulated answers in memory-mapped files, as
on one node of a cluster. Seconds are processor time of all threads. The peak memory excludes mapped files; the largest
resident size includes them.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench.measuring import Row, bench_parser, in_turn
from bench.sections import Section, Sitting
from measurement.machine import machine_facts
from tasks.audits.membership.left_out import Targets
from tasks.audits.membership.measures.attacks import RATES, Matching, attacks
from tasks.audits.membership.target_scores import balanced_targets, find_thresholds, score_targets, sort_scores
from tasks.audits.membership.trainings import ANSWERS
from tasks.datasets.mixtures import draw_balanced_members
from tasks.worker.hardware import granted_processors, numbers_of, peak_memory
from tests.tasks.audits.membership.one_target import score_slowly, thresholds_slowly

Array = NDArray[np.float64]
Scores = dict[str, tuple[Array, Array]]  # scores and thresholds of each attack
NOMINAL = tuple(RATES.values())
COMPARED = (64, 2000)  # models, records
TINY_COMPARED = (8, 40)
# Models, records, and the most seconds that the table may take.
LARGE = ((256, 10_000, 10.0), (256, 100_000, math.nan), (256, 1_000_000, 600.0))
TINY_LARGE = ((8, 40, math.nan),)


def simulate_answers(models: int, records: int, folder: Path) -> list[pa.Table]:
    """Return memory-mapped tables of answers. The first 2 % of the records gain 3 nats from training on them."""
    stream = np.random.default_rng(0)
    member = draw_balanced_members(records, models, 0)
    spread = np.exp(0.5 * stream.normal(size=records))
    centre = 2 + 3 * stream.normal(size=records)
    is_memorised = np.arange(records) < 0.02 * records
    tables = []
    for number in range(models):
        phi = centre + spread * stream.normal(size=records) + 3.0 * (member[number] & is_memorised)
        table = pa.table([np.arange(records), member[number], phi, phi > 0], schema=ANSWERS)
        path = folder / f"{number}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, ANSWERS) as writer:
            writer.write_table(table)
        tables.append(read_answers(path))
    return tables


def read_answers(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def score_at_once(targets: Targets) -> Scores:
    results = {}
    for attack, scores in score_targets(targets):
        unsorted = scores.copy()
        sides = sort_scores(scores, targets.member)
        results[attack] = unsorted, find_thresholds(sides.outside, NOMINAL)
    return results


def score_each_target(targets: Targets) -> Scores:
    results = {}
    for attack, scores in score_slowly(targets).items():
        results[attack] = scores, thresholds_slowly(scores, targets.member, NOMINAL)
    return results


def compared_rows(tiny: bool) -> Iterator[Row]:
    """Yield the time of all scores and thresholds, and that of the rival."""
    models, records = TINY_COMPARED if tiny else COMPARED
    with tempfile.TemporaryDirectory() as folder:
        targets = balanced_targets(simulate_answers(models, records, Path(folder)), 0)
        assert targets is not None
        runs = {"engram": partial(score_at_once, targets), "rival": partial(score_each_target, targets)}
        seconds = in_turn(runs, 1 if tiny else 3, time.process_time)
        ours, theirs = score_at_once(targets), score_each_target(targets)
    yield Row(
        f"scores and thresholds of all attacks, {models} models x {records:,} records, processor time",
        f"{seconds['engram']:.2f} s, scores differ by at most {largest_difference(ours, theirs):.0e}",
        f"{seconds['rival']:.2f} s, one target after another",
        seconds["rival"] / seconds["engram"],
        required=1.0,
    )


def largest_difference(first: Scores, second: Scores) -> float:
    """Return the largest difference of scores or thresholds."""
    differences = []
    for attack, arrays in first.items():
        for array, other in zip(arrays, second[attack], strict=True):
            differences.append(float(np.abs(array - other).max()))
    return max(differences)


def large_rows(models: int, records: int, limit: float) -> Iterator[Row]:
    """Yield the time and the memory of a complete table, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        simulate_answers(models, records, Path(folder))
        command = [sys.executable, "-m", "bench.attack_table", "--measure", folder]
        measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    yield Row(
        f"attack table, {models} models x {records:,} records, processors: {measured['processors']}",
        f"{measured['cpu']:.1f} s ({measured['wall']:.1f} s wall), {measured['peak'] / 1e9:.2f} GB of memory, "
        f"{measured['resident'] / 1e9:.2f} GB with mapped files",
        "",
        measured["cpu"],
        required=limit,
        unit="s",
    )


def measure_table(folder: Path) -> dict[str, float]:
    """Compute the table of answers in a folder, and return its seconds and bytes."""
    tables = [read_answers(path) for path in sorted(folder.glob("*.arrow"))]
    wall = time.perf_counter()
    cpu = time.process_time()
    attacks(Matching(0), tables)
    return {
        "processors": granted_processors(),
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "peak": peak_memory(),
        "resident": numbers_of(Path("/proc/self/status"))["VmHWM:"] * 1024,
    }


def main() -> None:
    parser = bench_parser(__doc__)
    parser.add_argument("--measure", type=Path, help="measure the answers in this folder only, and print JSON")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure_table(arguments.measure)))
        return
    sections = [Section("compared", partial(compared_rows, arguments.tiny))]
    for models, records, limit in TINY_LARGE if arguments.tiny else LARGE:
        sections.append(Section(f"{models} x {records:,}", partial(large_rows, models, records, limit)))
    setting = machine_facts(("scipy", "pyarrow")) | {"data": "simulated log-odds"}
    Sitting("The attack table of membership", setting, arguments.out).measure(sections)


if __name__ == "__main__":
    main()
