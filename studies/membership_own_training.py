"""How often does `membership` accuse training programs that memorise nothing, or that break their contract?

    python -m studies membership_own_training [--tiny] [--seed 31000] [--out FILE]

Each program is a function of (rows, seed) that returns log-odds for all records, as a user's program does. The design
of halves, the exact test per record and the answer are those of the audit. Records are points with random labels; a
smoother estimates the label of a record from its neighbours among the training rows, including the record itself
(memory) or without it (a look-alike that uses the rows, but not the record).
"""

from __future__ import annotations

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
from studies.interface import study_parser
from tasks.audits.membership.answer import verdict
from tasks.audits.membership.config import About, Halves, Membership
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.records import ExactTest, records
from tasks.audits.membership.trainings import ANSWERS
from tasks.contract.schemas import make_table
from tasks.datasets.mixtures import draw_balanced_members
from tasks.numerics import statistics
from tasks.programs.returned import score_numbers

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

RECORDS = 120
MODELS = 16
AUDITS = 200
FEATURES = 5
WIDTH = 1.0  # of the smoother's kernel, in standard deviations of a feature
LEVEL = 0.05
FAILED = RuntimeError("the program failed")


@dataclass
class World:
    """One data set: points and random labels, and what a program with a cache keeps between its trainings."""

    seed: int
    cache: Rows = field(default_factory=lambda: np.array([], np.int64))

    def __post_init__(self) -> None:
        stream = np.random.default_rng(self.seed)
        self.points = stream.normal(size=(RECORDS, FEATURES))
        self.labels = stream.integers(0, 2, RECORDS)
        self.difficulty = stream.normal(size=RECORDS)
        distances = ((self.points[:, None] - self.points) ** 2).sum(axis=2)
        self.kernel = np.exp(-distances / (2 * WIDTH**2))

    def smooth(self, rows: Rows, seed: int, own_weight: float = 1.0) -> Floats:
        """Return the loss of each record for a smoother of these rows. `own_weight` 0 leaves the record itself out."""
        kernel = self.kernel.copy()
        np.fill_diagonal(kernel, own_weight)
        votes = kernel[:, rows] @ (self.labels[rows, None] == np.arange(2)) + 0.5
        p = votes[np.arange(RECORDS), self.labels] / votes.sum(axis=1)
        noise = np.random.default_rng(seed).normal(size=RECORDS)
        log_odds = np.log(p / (1 - p)) + self.difficulty + 0.5 * noise
        losses: Floats = np.logaddexp(0, -log_odds)
        return losses


Train = Callable[[World, Rows, int], Floats]


def ignore_rows(world: World, rows: Rows, seed: int) -> Floats:
    """Train on rows of its own choice."""
    return world.smooth(np.random.default_rng(seed).permutation(RECORDS)[: RECORDS // 2], seed)


def ignore_everything(world: World, rows: Rows, seed: int) -> Floats:
    """Return the same scores for any rows and seed."""
    return world.smooth(np.arange(RECORDS // 2), 0)


def train_on_test_rows(world: World, rows: Rows, seed: int) -> Floats:
    """Train on all records that it has to score."""
    return world.smooth(np.arange(RECORDS), seed)


def leave_record_out(world: World, rows: Rows, seed: int) -> Floats:
    """Use the other rows only: an innocent program whose scores depend on its rows."""
    return world.smooth(rows, seed, own_weight=0.0)


def memorise(world: World, rows: Rows, seed: int) -> Floats:
    """Use all rows, with a large weight for the record itself."""
    return world.smooth(rows, seed, own_weight=60.0)


def memorise_without_seed(world: World, rows: Rows, seed: int) -> Floats:
    """Memorise, with the same random numbers in every training."""
    return world.smooth(rows, 0, own_weight=60.0)


def keep_earlier_rows(world: World, rows: Rows, seed: int, own_weight: float = 60.0) -> Floats:
    """Train on these rows and on those of the training before, which a cache of the process still holds."""
    both = np.union1d(rows, world.cache)
    world.cache = rows
    return world.smooth(both, seed, own_weight)


def keep_earlier_rows_without_memory(world: World, rows: Rows, seed: int) -> Floats:
    return keep_earlier_rows(world, rows, seed, own_weight=0.0)


def fail_at_random(train: Train) -> Train:
    """Fail for a third of the trainings."""

    def failing(world: World, rows: Rows, seed: int) -> Floats:
        if np.random.default_rng([seed, 1]).random() < 1 / 3:
            raise FAILED
        return train(world, rows, seed)

    return failing


def fail_by_score(train: Train) -> Train:
    """Fail if the mean loss is in the lower third of those of the same program, as a diverging training would."""

    def failing(world: World, rows: Rows, seed: int) -> Floats:
        losses = train(world, rows, seed)
        others = [train(world, rows, seed + number).mean() for number in range(1, 10)]
        if losses.mean() < np.quantile(others, 1 / 3):
            raise FAILED
        return losses

    return failing


def fail_on_a_record(train: Train) -> Train:
    """Fail if the first record is among the rows, as for a damaged file."""

    def failing(world: World, rows: Rows, seed: int) -> Floats:
        if 0 in rows:
            raise FAILED
        return train(world, rows, seed)

    return failing


NULLS: Mapping[str, Train] = {
    "ignores rows": ignore_rows,
    "ignores rows and seed": ignore_everything,
    "trains on all scored rows": train_on_test_rows,
    "uses other rows, not the record": leave_record_out,
    "caches earlier rows, no memory": keep_earlier_rows_without_memory,
    "ignores rows, a third fails": fail_at_random(ignore_rows),
    "uses other rows, a third fails": fail_at_random(leave_record_out),
    "ignores rows, fails at low loss": fail_by_score(ignore_rows),
    "uses other rows, fails at low loss": fail_by_score(leave_record_out),
    "ignores rows, fails on one record": fail_on_a_record(ignore_rows),
}
POSITIVES: Mapping[str, Train] = {
    "memorises": memorise,
    "memorises, ignores seed": memorise_without_seed,
    "memorises, caches earlier rows": keep_earlier_rows,
    "memorises, a third fails": fail_at_random(memorise),
    "memorises, fails on one record": fail_on_a_record(memorise),
}


@dataclass
class Count:
    """Audits of one program: how many find a record, the answers, and records found and tested in total."""

    audits: int = 0
    accusing: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    found: int = 0
    tested: int = 0
    models: int = 0


def audit_program(train: Train, audits: int, first_seed: int) -> Count:
    """Audit the program on data sets of their own."""
    count = Count()
    config = Membership(Halves(models=MODELS, examples=RECORDS))
    for seed in range(first_seed, first_seed + audits):
        tables = _train_models(train, World(seed), seed)
        count.audits += 1
        count.models += len(tables)
        if len(tables) < 4:
            continue
        tested = records(ExactTest(LEVEL, 9999, seed), tables)
        found = int(np.count_nonzero(tested["found"].to_numpy(zero_copy_only=False)))
        count.accusing += found > 0
        count.found += found
        count.tested += tested.num_rows - tested["p_value"].null_count
        count.answers[verdict(config, summary(About(LEVEL), [tested])).answer] += 1
    return count


def _train_models(train: Train, world: World, seed: int) -> list[pa.Table]:
    """Return the answers of the models whose training did not fail."""
    members = draw_balanced_members(RECORDS, MODELS, seed)
    tables = []
    for number, member in enumerate(members):
        try:
            losses = train(world, np.flatnonzero(member), 1000 * seed + 10 * number)
        except RuntimeError:
            continue
        score = score_numbers(losses, "loss", None, "scores").score
        tables.append(make_table(ANSWERS, row=np.arange(RECORDS), member=member, log_odds=score, correct=None))
    return tables


def markdown(counts: Mapping[str, Count]) -> Iterator[str]:
    yield "| program | audits that find a record (95 % exact interval) | answers | records found | models per audit |"
    yield "|---|---|---|---|---|"
    for name, count in counts.items():
        share = statistics.exact_proportion(count.accusing, count.audits)
        answers = ", ".join(f"{number} {answer}" for answer, number in sorted(count.answers.items()))
        assert share.low is not None
        assert share.high is not None
        yield (
            f"| {name} | {count.accusing} of {count.audits} ({100 * share.low:.1f} to {100 * share.high:.1f} %) | "
            f"{answers} | {count.found:,} of {count.tested:,} | {count.models / count.audits:.1f} |"
        )


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=31000, help="of the first audit; tuning used seeds below 1000")
    options = parser.parse_args(arguments)
    audits = 2 if options.tiny else AUDITS
    setting: dict[str, Any] = measurement_facts("simulated", torch.device("cpu"))
    start = time.process_time()
    counts = {}
    for name, train in {**NULLS, **POSITIVES}.items():
        counts[name] = audit_program(train, audits, options.seed)
    setting["models and records"] = f"{MODELS} models, {RECORDS} records, {audits} audits per program"
    setting["seeds"] = f"from {options.seed} on"
    setting["cost"] = f"{time.process_time() - start:.0f} s of a core"
    table = "\n".join(markdown(counts)) + "\n"
    publish_counts("Answers about training programs", setting, table, options.out)
