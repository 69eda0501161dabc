"""How often does `engram audit` distinguish members that a model never saw, and sets that differ by themselves?

    python -m studies membership_loss_attack [--tiny] [--seed 19000] [--runs 400] [--out FILE]

Each run draws members, non-members and unrelated images at random from digits on photographs, 200 of each. A logistic
regression on the pixels is trained on the members or on the unrelated images. The non-members may then be shifted as
data of another source would be, or the owner of the model may change its outputs. Answers follow the audit's rule.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.membership.answer import verdict
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.loss_config import LossAttack
from tasks.audits.membership.measures import summary
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.external.audit_inputs import RecordSet
from tasks.external.audited_model import score_labels
from tasks.external.outputs import log_softmax
from tasks.external.split_audit import score_table
from tasks.numerics import seeds, statistics

Array = NDArray[Any]
DATA = "digits-on-photos"
EACH = 200  # images per set
ANSWERS = ("distinguishable", "undecided", "not assessable")


def keep(records: RecordSet) -> RecordSet:
    return records


def darken(records: RecordSet) -> RecordSet:
    return RecordSet((0.9 * records.images).astype(np.uint8), records.labels)


def move(records: RecordSet) -> RecordSet:
    return RecordSet(np.roll(records.images, 1, axis=2), records.labels)


def blur(records: RecordSet) -> RecordSet:
    """Average each pixel with its right neighbour, as another camera might."""
    images = records.images.astype(np.float64)
    return RecordSet(((images + np.roll(images, 1, axis=2)) / 2).astype(np.uint8), records.labels)


def select_classes(records: RecordSet) -> RecordSet:
    """Keep the classes 3 to 9 only."""
    return records.select(np.flatnonzero(records.labels >= 3))


def unchanged(logits: Array, stream: np.random.Generator) -> Array:
    return logits


def add_noise(logits: Array, stream: np.random.Generator) -> Array:
    return logits + stream.normal(scale=2 * logits.std(), size=logits.shape)


def soften(logits: Array, stream: np.random.Generator) -> Array:
    return logits / 10


@dataclass(frozen=True)
class Case:
    """A model, trained on the members or on unrelated images, the non-members, and a change of the outputs."""

    name: str
    is_trained_on_members: bool
    shift: Callable[[RecordSet], RecordSet] = keep
    change: Callable[[Array, np.random.Generator], Array] = unchanged


CASES = (
    Case("null: trained on neither set", False),
    Case("look-alike: darker by a tenth", False, darken),
    Case("look-alike: moved by one pixel", False, move),
    Case("look-alike: blurred", False, blur),
    Case("look-alike: three classes missing", False, select_classes),
    Case("trained on the members", True),
    Case("trained on the members, non-members darker", True, darken),
    Case("cheat: outputs with noise", True, change=add_noise),
    Case("cheat: outputs softened", True, change=soften),
)


def answer(case: Case, seed: int, each: int = EACH) -> str:
    """Return the answer of one audit."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    images = load(pin(Dataset(DATA)))
    order = seeds.generator(seed, "sets").permutation(len(images.train_labels))
    members, non_members, unrelated = (
        RecordSet(images.train_images[rows], images.train_labels[rows]) for rows in np.split(order[: 3 * each], 3)
    )
    non_members = case.shift(non_members)
    trained_on = members if case.is_trained_on_members else unrelated
    model = LogisticRegression(C=1e-2, max_iter=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(flatten(trained_on), trained_on.labels)
    stream = seeds.generator(seed, "changes")
    scores = []
    for records in (members, non_members):
        logits = case.change(model.decision_function(flatten(records)), stream)
        scores.append(score_labels(log_softmax(logits), records.labels))
    table = score_table((scores[0], scores[1]), (members, non_members), seed)
    return verdict(Membership(LossAttack()), summary(About(), [table])).answer


def flatten(records: RecordSet) -> Array:
    return records.images.reshape(len(records.images), -1) / 255


def count(case: Case, first: int, runs: int, each: int = EACH) -> Counter[str]:
    return Counter(answer(case, first + run, each) for run in range(runs))


def markdown(counted: Sequence[tuple[Case, Counter[str]]]) -> Iterator[str]:
    """Yield the lines of a table with the counts and the exact 95 % interval of *distinguishable*."""
    yield f"| model and sets, {EACH} images each | runs | {' | '.join(ANSWERS)} | distinguishable, 95 % interval |"
    yield "|---" * (3 + len(ANSWERS)) + "|"
    for case, answers in counted:
        runs = answers.total()
        share = statistics.exact_proportion(answers["distinguishable"], runs)
        interval = f"{100 * (share.low or 0):.1f} to {100 * (share.high or 0):.1f} %"
        counts = " | ".join(str(answers[name]) for name in ANSWERS)
        yield f"| {case.name} | {runs} | {counts} | {interval} |"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=19000, help="of the first run of each case")
    parser.add_argument("--runs", type=int, default=400, help="of the null; a quarter of them for each other case")
    options = parser.parse_args(arguments)
    setting: dict[str, Any] = measurement_facts(DATA, torch.device("cpu"))
    start = time.process_time()
    counted = []
    for number, case in enumerate(CASES):
        if options.tiny:
            runs = 2
        else:
            runs = options.runs if number == 0 else options.runs // 4
        counted.append((case, count(case, options.seed, runs)))
    setting["seed"] = options.seed
    setting["cost"] = f"{(time.process_time() - start) / 60:.0f} minutes of processor time"
    table = "\n".join(markdown(counted)) + "\n"
    publish_counts("Error rates of the loss attack on one model", setting, table, options.out)
