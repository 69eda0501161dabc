"""What each task computes, beside its version: neither may change without the other.

A test here that fails says that stored results are no longer what the task would compute. If that is meant, raise the
task's version and write the new numbers below.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from tasks.audits.deja_vu.attack import Attack
from tasks.audits.deja_vu.config import About
from tasks.audits.deja_vu.measures import summary
from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.audits.deja_vu.measures.neighbours import crops
from tasks.audits.deja_vu.measures.probe import Probed, probe
from tasks.audits.deja_vu.measures.reconstruction import reconstruction
from tasks.audits.deja_vu.measures.scores import Scoring, categories, scores
from tasks.contract.job import NoSettings, marks
from tasks.datasets.boxed.partition import Partition
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.self_supervised.linear_probe import PROBES
from tests.support.fingerprint import version_test
from tests.tasks.audits.deja_vu import made_up
from tests.tasks.audits.deja_vu.measures.test_reconstruction import FEW, drawings


def of_inferences() -> pa.Table:
    return inferences(Voting((4, 2)), [made_up.neighbours(made_up.FEW)])


@cache
def of_scores() -> pa.Table:
    return scores(Scoring(20, 50, 99, 0), [made_up.simulated(0, 60, 0.2, 0.3)])


@cache
def of_categories() -> pa.Table:
    return categories(NoSettings(), [made_up.simulated(0, 60, 0.2, 0.3)])


def of_probe() -> pa.Table:
    made = [{"epoch": 5, "layer": 3, "split": split, "correct": 7, "n": 9} for split in ("train", "validation")]
    return probe(Probed(("A", "B"), (0, 10)), [pa.Table.from_pylist(made, PROBES)] * 2)


def of_reconstruction() -> pa.Table:
    return reconstruction(NoSettings(), drawings(FEW))


def of_all() -> pa.Table:
    return summary(About(20, 3, 4, 5), [of_scores(), of_categories(), of_probe()])


def of_crops() -> pa.Table:
    attack = Attack(pin(Dataset("digits-on-photos")), 0.0, Partition(per_class=3, public=100), "periphery", 8, 32)
    return crops(attack, [])


test_a_task_computes_what_its_version_says = version_test(
    [
        (inferences, 1, of_inferences, 10, -7.96441706),
        (scores, 1, of_scores, 300, 5149.623965),
        (categories, 1, of_categories, 3, 76.31293614),
        (reconstruction, 1, of_reconstruction, 3, 135.788310725),
        (summary, 2, of_all, 15, 42.2939144),
    ]
)


def test_crops_are_what_their_version_says() -> None:
    table = of_crops()
    assert (marks(crops).version, table.num_rows) == (1, 60)
    sums = [sum(table[name].to_pylist()) for name in ("left", "top", "right", "bottom")]
    assert sums == [243, 163, 1704, 1553]


def test_a_probe_counts_epochs_from_the_beginning_of_training() -> None:
    expected = [("A", 5, 3, "train", 7, 9), ("A", 5, 3, "validation", 7, 9)]
    expected += [(("B"), 15, *row[2:]) for row in expected]
    assert (1, expected) == (marks(probe).version, [tuple(row.values()) for row in of_probe().to_pylist()])
