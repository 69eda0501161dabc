"""What the tables say together, whichever of them there are."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest

from tasks.audits.forgetting.measures import MEASURES
from tasks.audits.forgetting.measures.distances import Distances, distances
from tasks.audits.forgetting.measures.examples import Examples, examples
from tasks.audits.forgetting.measures.fits import FITS
from tasks.audits.forgetting.measures.power import Power, power
from tasks.audits.forgetting.measures.ratios import ratios
from tasks.audits.forgetting.summary import About
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tests.tasks.audits.forgetting.small_run import CONFIG, INPUTS, TARGETS
from tests.tasks.audits.forgetting.summarised import Row, rows

ABOUT = About(TARGETS)
READ = [measure.name for measure in MEASURES if measure.rows is not None]


@cache
def tables() -> dict[str, pa.Table]:
    """A table of each measure that the summary reads."""
    digits = Part(pin(Dataset("digits")), 0, 40)
    fitted = dict.fromkeys(FITS.names) | {"model": "query", "replicate": 0, "train_accuracy": 0.9}
    return {
        "ratios": ratios(CONFIG, INPUTS),
        "distances": distances(Distances(), INPUTS),
        "power": power(Power(CONFIG), INPUTS),
        "fits": pa.Table.from_pylist([fitted], FITS),
        "examples": examples(Examples(digits, digits), []),
    }


def told(*names: str) -> dict[tuple[str, str], Row]:
    """The summary's rows of these tables."""
    return rows(*(tables()[name] for name in names), config=ABOUT)


def test_every_table_that_is_read_has_rows() -> None:
    assert READ == list(tables())
    assert all(told(name) for name in READ)


def test_the_rows_of_all_tables_are_those_of_each_the_answers_first() -> None:
    of_each = [item for name in READ for item in told(name).items()]
    assert of_each == list(told(*READ).items()) == list(told(*reversed(READ)).items())
    assert "one-sided rho" == of_each[0][0][0]


@pytest.mark.parametrize("missing", READ)
def test_without_one_of_the_tables_the_rows_of_the_others_are_there(missing: str) -> None:
    left = told(*(name for name in READ if name != missing))
    gone = told(missing)
    assert not gone.keys() & left.keys()
    assert told(*READ) == left | gone


def test_without_any_table_there_is_no_row() -> None:
    assert {} == told()
