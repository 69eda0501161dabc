"""How often does `membership --until decided` accuse programs that memorise nothing, and after how many pairs others?

    python -m studies membership_until_decided [--tiny] [--seed 47000] [--out FILE]

The audit looks after every pair of models and ends at the first pair that decides. The programs are those of
`studies/membership_own_training.py`, and one that remembers none, or 5 %, of 200 records by 3 nats. Coins, comparison,
evidence and answer are those of the audit.
"""

from __future__ import annotations

import statistics as medians
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies import membership_own_training as programs
from studies.interface import study_parser
from tasks.audits.membership.answer import verdict
from tasks.audits.membership.coin_pairs import differences
from tasks.audits.membership.config import About, Membership, ModelPairs
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.pairs import SignTest, evidence, pair_records
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import CoinHalf, Part
from tasks.numerics import statistics
from tasks.programs.returned import score_numbers
from tasks.programs.row_training import PROGRAM

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Score = Callable[[Rows, int], Floats]  # the log-odds of all records by a model trained on these rows with this seed

AUDITS = 200
PAIRS = 40
LEVEL = 0.05
MANY_RECORDS = 200
REMEMBERED = 0.05  # as a share of the records
NATS = 3.0


@dataclass(frozen=True)
class Case:
    """A training program on `records` records. `start(seed)` returns it for a data set of its own."""

    records: int
    start: Callable[[int], Score]


def own_program(train: programs.Train) -> Case:
    """Return a program of the study of own training programs."""

    def start(seed: int) -> Score:
        world = programs.World(seed)
        return lambda rows, number: score_numbers(train(world, rows, number), "loss", None, "scores").score

    return Case(programs.RECORDS, start)


def noisy_program(share: float) -> Case:
    """Return a program whose scores vary by 1 nat between models, and that remembers this share of the records."""

    def start(seed: int) -> Score:
        difficulty = np.random.default_rng(seed).normal(size=MANY_RECORDS)

        def score(rows: Rows, number: int) -> Floats:
            is_remembered = np.isin(np.arange(MANY_RECORDS), rows[rows < share * MANY_RECORDS])
            noise = np.random.default_rng([seed, number, rows.sum()]).normal(size=MANY_RECORDS)
            odds: Floats = difficulty + noise + NATS * is_remembered
            return odds

        return score

    return Case(MANY_RECORDS, start)


CASES: Mapping[str, Case] = {
    "ignores rows": own_program(programs.ignore_rows),
    "uses other rows, not the record": own_program(programs.leave_record_out),
    "caches earlier rows, no memory": own_program(programs.keep_earlier_rows_without_memory),
    f"scores vary by chance, {MANY_RECORDS} records": noisy_program(0.0),
    "memorises": own_program(programs.memorise),
    f"remembers {100 * REMEMBERED:g} % of {MANY_RECORDS} records by {NATS:g} nats": noisy_program(REMEMBERED),
}


@dataclass
class Count:
    """Audits of one program: the answers, the pairs of those that accuse, and records found and tested in total."""

    audits: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    deciding_pairs: list[int] = field(default_factory=list)
    found: int = 0
    tested: int = 0


def audit_case(case: Case, audits: int, first_seed: int) -> Count:
    """Audit the program on data sets of their own."""
    count = Count()
    test = SignTest(LEVEL)
    part = Part(Dataset(f"rows:{case.records}"))
    config = Membership(ModelPairs(part.data, pairs=PAIRS, stopping_level=LEVEL))
    for seed in range(first_seed, first_seed + audits):
        pairs = list(_compare_pairs(case.start(seed), part, seed))
        decided = evidence(test, pairs)["decided"].to_pylist()
        if any(decided):
            pairs = pairs[: decided.index(True) + 1]
        records = pair_records(test, pairs)
        answer = verdict(config, summary(About(LEVEL), [evidence(test, pairs), records])).answer
        count.audits += 1
        count.answers[answer] += 1
        if answer == "memorised":
            count.deciding_pairs.append(len(pairs))
        count.found += int(np.count_nonzero(records["found"].to_numpy(zero_copy_only=False)))
        count.tested += records.num_rows
    return count


def _compare_pairs(score: Score, part: Part, seed: int) -> Iterator[pa.Table]:
    """Yield the differences of each pair."""
    images = load(part.data)
    for number in range(PAIRS):
        half = CoinHalf(part, number, seed)
        models = []
        for is_complement in (False, True):
            rows = CoinHalf(part, number, seed, is_complement).rows(images)
            models.append(_model_table(score(rows, 1000 * seed + number)))
        yield differences(half, models)


def _model_table(score: Floats) -> pa.Table:
    return make_table(
        PROGRAM,
        seed=[0],
        best_epoch=[1],
        history=[[]],
        rows=[np.arange(len(score))],
        score=[score],
        correct=pa.array([None], PROGRAM.field("correct").type),
        epsilons=[[]],
    )


def markdown(counts: Mapping[str, Count]) -> Iterator[str]:
    yield "| program | *memorised* (95 % exact interval) | other answers | pairs until decided | records found |"
    yield "|---|---|---|---|---|"
    for name, count in counts.items():
        accusing = count.answers["memorised"]
        share = statistics.exact_proportion(accusing, count.audits)
        others = [f"{number} {answer}" for answer, number in sorted(count.answers.items()) if answer != "memorised"]
        assert share.low is not None
        assert share.high is not None
        pairs = ""
        if count.deciding_pairs:
            pairs = f"median {medians.median(count.deciding_pairs):g}, at most {max(count.deciding_pairs)}"
        yield (
            f"| {name} | {accusing} of {count.audits} ({100 * share.low:.1f} to {100 * share.high:.1f} %) | "
            f"{', '.join(others)} | {pairs} | {count.found:,} of {count.tested:,} |"
        )


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=47000, help="of the first audit; tuning used seeds below 1000")
    options = parser.parse_args(arguments)
    audits = 2 if options.tiny else AUDITS
    setting: dict[str, Any] = measurement_facts("simulated", torch.device("cpu"))
    start = time.process_time()
    counts = {name: audit_case(case, audits, options.seed) for name, case in CASES.items()}
    setting["pairs and records"] = (
        f"at most {PAIRS} pairs, {programs.RECORDS} or {MANY_RECORDS} records, {audits} audits per program"
    )
    setting["seeds"] = f"from {options.seed} on"
    setting["cost"] = f"{time.process_time() - start:.0f} s of a core"
    table = "\n".join(markdown(counts)) + "\n"
    publish_counts("Answers about training programs in runs until decided", setting, table, options.out)
