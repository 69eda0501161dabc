"""Tables of each task, for the test that compares their fingerprints with the task's version."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

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
from tests.support.fingerprint import TRAINED, Computed
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


def sum_lists(table: pa.Table) -> float:
    return sum(sum(row) for row in table["log_p"].to_pylist())


def sum_log_p(table: pa.Table) -> float:
    columns = [name for name in ("log_p", "log_p_end") if name in table.column_names]
    return sum(sum(table[name].to_pylist()) for name in columns)


TABLES = [
    Computed(secrets, of_secrets),
    Computed(identifiers, of_identifiers),
    Computed(extraction, of_extraction),
    Computed(documents, of_documents),
    Computed(estimates, of_estimates),
    Computed(insertions, of_insertions),
    Computed(insertion_estimates, of_insertion_estimates),
    Computed(insertion_control, of_insertion_control),
    Computed(summary, of_all),
    Computed(score_secrets, lambda: score_secrets(pair_of(SMOKE, 0, 1), ()), sum_lists, TRAINED),
    Computed(score_identifiers, lambda: score_identifiers(trainings(CONFIG)[0].config, ()), sum_lists, TRAINED),
    Computed(score_documents, lambda: score_documents(trainings(DOCUMENTS)[0].config, ()), sum_log_p, TRAINED),
    Computed(score_insertions, lambda: score_insertions(trainings(INSERTIONS)[0].config, ()), sum_log_p, TRAINED),
]
