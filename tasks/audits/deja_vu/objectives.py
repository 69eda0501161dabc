"""What a search over training choices moves: the deja vu score, and the accuracy of a linear probe."""

from __future__ import annotations

import json

import pyarrow as pa

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.verdict import last_epoch, setting
from tasks.objectives import Objective, Objectives
from tasks.summaries import Row, index_rows


def memorization_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """The row of the score on which the answer rests: of a given encoder the corrected one."""
    metric = "deja vu score, corrected" if config.given.there else "deja vu score"
    return index_rows(summary).get((metric, setting(config, config.confident)))


def probe_row(config: DejaVu, summary: pa.Table) -> Row | None:
    """The row of the validation accuracy of a linear probe on the same layer; it is there if `probe` is measured."""
    about = {"epoch": last_epoch(config), "layer": config.asked_layers[0], "split": "validation"}
    return index_rows(summary).get(("probe accuracy", json.dumps(about, sort_keys=True)))


OBJECTIVES = Objectives(
    memorization=Objective("deja vu score", "share", "lower", memorization_row),
    utility=Objective("probe accuracy", "share", "higher", probe_row),
    allowance=0.01,
)
