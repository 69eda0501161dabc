"""Tables of each task, for the test that compares their fingerprints with the task's version."""

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
from tasks.contract.job import NoSettings
from tasks.datasets.boxed.partition import Partition
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.self_supervised.linear_probe import PROBES
from tests.support.fingerprint import Computed
from tests.tasks.audits.deja_vu import made_up
from tests.tasks.audits.deja_vu.measures.test_reconstruction import FEW, drawings


def inference_table() -> pa.Table:
    return inferences(Voting((4, 2)), [made_up.neighbours(made_up.FEW)])


@cache
def score_table() -> pa.Table:
    return scores(Scoring(20, 50, 99, 0), [made_up.simulate_inferences(0, 60, 0.2, 0.3)])


@cache
def category_table() -> pa.Table:
    return categories(NoSettings(), [made_up.simulate_inferences(0, 60, 0.2, 0.3)])


def probe_table() -> pa.Table:
    probe_rows = []
    for split in ("train", "validation"):
        probe_rows.append({"epoch": 5, "layer": 3, "split": split, "correct": 7, "n": 9})
    return probe(Probed(("A", "B"), (0, 10)), [pa.Table.from_pylist(probe_rows, PROBES)] * 2)


def reconstruction_table() -> pa.Table:
    return reconstruction(NoSettings(), drawings(FEW))


def summary_table() -> pa.Table:
    return summary(About(20, 3, 4, 5), [score_table(), category_table(), probe_table()])


def crop_table() -> pa.Table:
    attack = Attack(pin(Dataset("digits-on-photos")), 0.0, Partition(per_class=3, public=100), "periphery", 8, 32)
    return crops(attack, [])


def sum_corners(table: pa.Table) -> list[int]:
    corners = []
    for name in ("left", "top", "right", "bottom"):
        corners.append(sum(table[name].to_pylist()))
    return corners


TABLES = [
    Computed(inferences, inference_table),
    Computed(scores, score_table),
    Computed(categories, category_table),
    Computed(reconstruction, reconstruction_table),
    Computed(summary, summary_table),
    Computed(crops, crop_table, fingerprint=sum_corners),
    Computed(probe, probe_table, fingerprint=pa.Table.to_pylist),
]
