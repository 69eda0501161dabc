"""The summary of any subset of the tables."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest

from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.measures import MEASURES
from tasks.audits.forgetting.measures.baselines import Baselines, baselines
from tasks.audits.forgetting.measures.decisions import decisions
from tasks.audits.forgetting.measures.examples import Examples, examples
from tasks.audits.forgetting.measures.fits import FITS
from tasks.audits.forgetting.measures.power import Power, power
from tasks.audits.forgetting.measures.query_confidences import COMMITMENT
from tasks.audits.forgetting.measures.ratios import distances, ratios
from tasks.audits.forgetting.measures.recognition import Recognition, recognition
from tasks.contract.job import NoSettings
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tests.tasks.audits.forgetting.small_run import ABOUT as DECIDED
from tests.tasks.audits.forgetting.small_run import CONFIG, CONTROLLED_INPUTS, INPUTS, TARGETS
from tests.tasks.audits.forgetting.summarised import Row, rows

ABOUT = About(TARGETS)
SUMMARISED = [measure.name for measure in MEASURES if measure.rows is not None]


@cache
def tables() -> dict[str, pa.Table]:
    """A table of each measure that the summary reads."""
    digits = Part(pin(Dataset("digits")), 0, 40)
    fitted = dict.fromkeys(FITS.names) | {"model": "query", "replicate": 0, "train_accuracy": 0.9}
    return {
        "decisions": decisions(DECIDED, CONTROLLED_INPUTS),
        "ratios": ratios(CONFIG, INPUTS),
        "distances": distances(NoSettings(), INPUTS),
        "power": power(Power(DECIDED), CONTROLLED_INPUTS),
        "recognition": recognition(Recognition(DECIDED), CONTROLLED_INPUTS),
        "baselines": baselines(Baselines(TARGETS), INPUTS),
        "fits": pa.Table.from_pylist([fitted], FITS),
        "examples": examples(Examples(digits, digits), []),
        "commitment": pa.Table.from_pylist([{"pictures": 12, "key": "ab" * 32}], COMMITMENT),
    }


def summary_rows(*names: str) -> dict[tuple[str, str], Row]:
    """The summary's rows of these tables."""
    return rows(*(tables()[name] for name in names), config=ABOUT)


def test_tables_of_the_summary_have_rows() -> None:
    assert list(tables()) == SUMMARISED
    assert all(summary_rows(name) for name in SUMMARISED)


def test_decisive_rows_come_first_in_any_order() -> None:
    all_rows = summary_rows(*SUMMARISED)
    assert next(iter(all_rows))[0] == "share of D_Q held"
    assert list(all_rows.items()) == list(summary_rows(*reversed(SUMMARISED)).items())


@pytest.mark.parametrize("absent", SUMMARISED)
def test_absent_table_removes_only_its_rows(absent: str) -> None:
    all_rows = summary_rows(*SUMMARISED)
    removed_rows = summary_rows(absent)
    remaining = summary_rows(*(name for name in SUMMARISED if name != absent))
    expected_rows = {}
    for name, row in all_rows.items():
        if name not in removed_rows:
            expected_rows[name] = row
    assert len(expected_rows) < len(all_rows)
    assert expected_rows == remaining


def test_no_table_gives_no_row() -> None:
    assert summary_rows() == {}
