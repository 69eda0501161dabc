"""What each task computes, beside its version: neither may change without the other."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest

from tasks.audits.text.config import About
from tasks.audits.text.documents.insertions import insertion_control, insertion_estimates, insertions
from tasks.audits.text.documents.models import score_documents, score_insertions
from tasks.audits.text.documents.ranks import document_test, documents, estimates
from tasks.audits.text.given.model import score_identifiers
from tasks.audits.text.measures import summary
from tasks.audits.text.presets import SMOKE
from tasks.audits.text.question import Documents, Insertions
from tasks.audits.text.secrets.extraction import extraction
from tasks.audits.text.secrets.models import score_secrets
from tasks.audits.text.secrets.ranks import Ranking, identifiers, secrets
from tasks.audits.text.trainings import trainings
from tasks.contract.job import marks
from tests.support.fingerprint import TRAINED, version_test
from tests.tasks.audits.text.made_up import make_scores, pair_of, question_of
from tests.tasks.audits.text.test_documents import CONFIG as DOCUMENTS
from tests.tasks.audits.text.test_documents import made_scores as made_documents
from tests.tasks.audits.text.test_extraction import ASKED, with_ends
from tests.tasks.audits.text.test_identifiers import CONFIG, made
from tests.tasks.audits.text.test_insertions import CONFIG as INSERTIONS
from tests.tasks.audits.text.test_insertions import made_scores as made_insertions

DOCUMENT_TEST = document_test(question_of(DOCUMENTS, Documents), DOCUMENTS)
INSERTION_TEST = document_test(question_of(INSERTIONS, Insertions), INSERTIONS)


@cache
def of_secrets() -> pa.Table:
    return secrets(Ranking(0.05), make_scores(4.0, 1))


def of_identifiers() -> pa.Table:
    return identifiers(Ranking(0.05), [made(0.5, 4.0, 1)])


def of_documents() -> pa.Table:
    return documents(DOCUMENT_TEST, made_documents(0.2, 1, DOCUMENTS, 0.5))


def of_estimates() -> pa.Table:
    return estimates(DOCUMENT_TEST, made_documents(0.2, 1, DOCUMENTS, 0.5))


def of_extraction() -> pa.Table:
    return extraction(ASKED, with_ends(make_scores(4.0, 1), 0.5, 1))


def of_insertions() -> pa.Table:
    return insertions(INSERTION_TEST, made_insertions(0.1, 1))


def of_insertion_estimates() -> pa.Table:
    return insertion_estimates(INSERTION_TEST, made_insertions(0.1, 1))


def of_insertion_control() -> pa.Table:
    return insertion_control(trainings(INSERTIONS)[0].config, ())


def of_all() -> pa.Table:
    return summary(About(0.05), [of_secrets()])


test_a_task_computes_what_its_version_says = version_test(
    [
        (secrets, 2, of_secrets, 24, 982.7832222938529),
        (identifiers, 2, of_identifiers, 24, 483.29156931920477),
        (extraction, 1, of_extraction, 120, -4012.4486459),
        (documents, 2, of_documents, 12, -5074.950589837134),
        (estimates, 1, of_estimates, 57, 201.6390647),
        (insertions, 2, of_insertions, 120, -56330.760528408544),
        (insertion_estimates, 2, of_insertion_estimates, 93, 244.93480750254585),
        (insertion_control, 1, of_insertion_control, 1, 6.5210460),
        (summary, 3, of_all, 17, 312.32192877284734),
    ]
)


@pytest.mark.trained
def test_what_a_model_says_is_what_the_version_says() -> None:
    table = score_secrets(pair_of(SMOKE, 0, 1), ())
    said = sum(sum(row) for row in table["log_p"].to_pylist())
    assert (marks(score_secrets).version, table.num_rows) == (1, 6)
    assert pytest.approx(said, rel=TRAINED) == -142775.315


@pytest.mark.trained
def test_what_a_model_as_it_is_says_of_identifiers_is_what_the_version_says() -> None:
    table = score_identifiers(trainings(CONFIG)[0].config, ())
    said = sum(sum(row) for row in table["log_p"].to_pylist())
    assert (marks(score_identifiers).version, table.num_rows) == (1, 8)
    assert pytest.approx(said, rel=TRAINED) == -681150.948


@pytest.mark.trained
def test_what_a_model_says_of_documents_is_what_the_version_says() -> None:
    table = score_documents(trainings(DOCUMENTS)[0].config, ())
    said = sum(table["log_p"].to_pylist()) + sum(table["log_p_end"].to_pylist())
    assert (marks(score_documents).version, table.num_rows) == (1, 12)
    assert pytest.approx(said, rel=TRAINED) == -9205.699


@pytest.mark.trained
def test_what_a_model_as_it_is_says_of_inserted_documents_is_what_the_version_says() -> None:
    table = score_insertions(trainings(INSERTIONS)[0].config, ())
    said = sum(table["log_p"].to_pylist())
    assert (marks(score_insertions).version, table.num_rows) == (1, 60)
    assert pytest.approx(said, rel=TRAINED) == -32025.551
