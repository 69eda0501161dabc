"""Speed and memory of the tables of `membership`, and its attack table compared with one target after another.

    python -m bench.attack_table [--tiny] [--out bench/results/NAME.md]

The rival lists the references of each target and sorts the scores of all other targets for its thresholds, so its time
is quadratic in the number of models. Both compute the scores of all attacks and their thresholds in one run; the ratio
compares median processor times with one thread. The row also states by how much scores and thresholds differ.

The other rows compute one complete table in a process of its own, from simulated answers in memory-mapped files, as on
one node of a cluster. Seconds are processor time of all threads, without the imports. The peak memory excludes mapped
files; the largest resident size includes them. `shifted_labels` (5 copies), `loss_calibrated`, the tables of pairs (one
for every two models) and those of a given model (with as many non-members as records) have inputs in memory.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from tasks.audits.membership.measures.calibrated import calibrate
from tasks.audits.membership.measures.curves import calls, histograms, references, roc
from tasks.audits.membership.measures.given import Ranking, kinship, ranks
from tasks.audits.membership.measures.pairs import SignTest, evidence, pair_records
from tasks.audits.membership.measures.records import ExactTest, Strongest, influences
from tasks.audits.membership.measures.records import records as test_records
from tasks.audits.membership.measures.shifted import SHIFTED_ANSWERS, shifted_labels
from tasks.audits.membership.reference_models import REFERENCE
from tasks.audits.membership.target_scores import balanced_targets, find_thresholds, score_targets, sort_scores
from tasks.audits.membership.trainings import ANSWERS
from tasks.contract.job import NoSettings
from tasks.contract.schemas import make_table
from tasks.datasets.mixtures import draw_balanced_members
from tasks.external.split_audit import SCORES
from tasks.worker.hardware import granted_processors, numbers_of, peak_memory
from tests.tasks.audits.membership.made_up import make_given
from tests.tasks.audits.membership.one_target import score_slowly, thresholds_slowly
from tests.tasks.audits.membership.test_pairs import make_pairs

Array = NDArray[np.float64]
Scores = dict[str, tuple[Array, Array]]  # scores and thresholds of each attack
NOMINAL = tuple(RATES.values())
COMPARED = (64, 2000)  # models, records
TINY_COMPARED = (8, 40)
WARM_UP = 40  # records
MODELS = 256
# Numbers of records, and the most seconds that a table may take.
LARGE = ((10_000, 10.0), (100_000, math.nan), (1_000_000, 600.0))
COPIES = 5  # of a record, for `shifted_labels`


@dataclass(frozen=True)
class Measured:
    """A table: how it is computed from the answers, and up to which number of records it is measured."""

    compute: Callable[[list[pa.Table]], pa.Table]
    prepare: Callable[[list[pa.Table]], list[pa.Table]] = list
    most_records: int = 100_000


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


def copy_answers(answers: Sequence[pa.Table]) -> list[pa.Table]:
    """Return whether each model labels each shifted copy correctly (SHIFTED_ANSWERS)."""
    stream = np.random.default_rng(1)
    tables = []
    for table in answers:
        phi = table["log_odds"].to_numpy()
        correct = phi[:, None] + stream.normal(size=(len(phi), COPIES)) > 0
        lists = pa.ListArray.from_arrays(
            np.arange(0, correct.size + 1, COPIES, dtype=np.int32), pa.array(correct.ravel())
        )
        tables.append(pa.table([table["row"], table["member"], lists], schema=SHIFTED_ANSWERS))
    return tables


def examine_model(answers: Sequence[pa.Table]) -> list[pa.Table]:
    """Return the scores of the first model as those of the examined one (SCORES), and the others as references."""
    phi = answers[0]["log_odds"].to_numpy()
    constant = {name: 0.0 for name in SCORES.names if name.startswith("blind_")}
    scores = make_table(
        SCORES,
        position=answers[0]["row"],
        member=answers[0]["member"],
        label=0,
        log_p=-np.logaddexp(0.0, -phi),
        correct=True,
        sets_threshold=False,
        half=0,
        **constant,
    )
    models = []
    for table in answers[1:]:
        models.append(pa.table([table["member"], table["log_odds"], table["correct"]], schema=REFERENCE))
    return [scores, *models]


def rank_given(answers: Sequence[pa.Table]) -> list[pa.Table]:
    return make_given(len(answers), answers[0].num_rows, 2.0, 1)


def compare_pairs(answers: Sequence[pa.Table]) -> list[pa.Table]:
    return make_pairs(len(answers) // 2, answers[0].num_rows, 0.0, 1)


MATCHING = Matching(0)
TABLES: Mapping[str, Measured] = {
    "attacks": Measured(partial(attacks, MATCHING), most_records=1_000_000),
    "records": Measured(partial(test_records, ExactTest(0.05, 9999, 0)), most_records=1_000_000),
    "roc": Measured(partial(roc, MATCHING)),
    "references": Measured(partial(references, MATCHING)),
    "calls": Measured(partial(calls, MATCHING)),
    "histograms": Measured(partial(histograms, MATCHING)),
    "influences": Measured(partial(influences, Strongest(100)), most_records=10_000),  # of all pairs of records
    "shifted_labels": Measured(partial(shifted_labels, MATCHING), copy_answers),
    "evidence": Measured(partial(evidence, SignTest(0.05)), compare_pairs),
    "pair_records": Measured(partial(pair_records, SignTest(0.05)), compare_pairs),
    "loss_calibrated": Measured(partial(calibrate, NoSettings()), examine_model),
    "given_ranks": Measured(lambda inputs: ranks(Ranking(0.05, inputs[0].num_rows // 2), inputs), rank_given),
    "given_kinship": Measured(lambda inputs: kinship(Ranking(0.05, inputs[0].num_rows // 2), inputs), rank_given),
}


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
    """Yield the time and the memory of every table, each measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        simulate_answers(models, records, Path(folder))
        for name, table in TABLES.items():
            if records > table.most_records:
                continue
            command = [sys.executable, "-m", "bench.attack_table", "--measure", folder, "--table", name]
            measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            yield Row(
                f"{name}, {models} models x {records:,} records, processors: {measured['processors']}",
                f"{measured['cpu']:.1f} s ({measured['wall']:.1f} s wall), {measured['peak'] / 1e9:.2f} GB of memory, "
                f"{measured['resident'] / 1e9:.2f} GB with mapped files",
                "",
                measured["cpu"],
                required=limit if name in ("attacks", "records") else math.nan,
                unit="s",
            )


def measure_table(folder: Path, name: str) -> dict[str, float]:
    """Compute a table of the answers in a folder, and return its seconds and bytes."""
    table = TABLES[name]
    answers = [read_answers(path) for path in sorted(folder.glob("*.arrow"))]
    table.compute(table.prepare([part.slice(0, WARM_UP) for part in answers[:8]]))  # imports
    inputs = table.prepare(answers)
    wall = time.perf_counter()
    cpu = time.process_time()
    table.compute(inputs)
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
    parser.add_argument("--table", default="attacks", choices=TABLES, help="the table to measure")
    parser.add_argument("--records", type=int, default=LARGE[-1][0], help="largest number of records")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure_table(arguments.measure, arguments.table)))
        return
    sections = [Section("compared", partial(compared_rows, arguments.tiny))]
    models = TINY_COMPARED[0] if arguments.tiny else MODELS
    for records, limit in ((TINY_COMPARED[1], math.nan),) if arguments.tiny else LARGE:
        if records <= arguments.records:
            sections.append(Section(f"{models} x {records:,}", partial(large_rows, models, records, limit)))
    setting = machine_facts(("scipy", "pyarrow")) | {"data": "simulated log-odds"}
    Sitting("The tables of membership", setting, arguments.out).measure(sections)


if __name__ == "__main__":
    main()
