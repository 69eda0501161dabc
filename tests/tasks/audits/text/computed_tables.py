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
from tests.tasks.audits.text.test_documents import draw_scores as draw_document_scores
from tests.tasks.audits.text.test_extraction import SETTINGS, add_continuations
from tests.tasks.audits.text.test_identifiers import CONFIG, draw_identifier_scores
from tests.tasks.audits.text.test_insertions import CONFIG as INSERTIONS
from tests.tasks.audits.text.test_insertions import draw_scores as draw_insertion_scores

DOCUMENT_TEST = document_test(question_of(DOCUMENTS, Documents), DOCUMENTS)
INSERTION_TEST = document_test(question_of(INSERTIONS, Insertions), INSERTIONS)


@cache
def secret_table() -> pa.Table:
    return secrets(Ranking(0.05), make_scores(4.0, 1))


def identifier_table() -> pa.Table:
    return identifiers(Ranking(0.05), [draw_identifier_scores(0.5, 4.0, 1)])


def document_table() -> pa.Table:
    return documents(DOCUMENT_TEST, draw_document_scores(0.2, 1, DOCUMENTS, 0.5))


def estimate_table() -> pa.Table:
    return estimates(DOCUMENT_TEST, draw_document_scores(0.2, 1, DOCUMENTS, 0.5))


def extraction_table() -> pa.Table:
    return extraction(SETTINGS, add_continuations(make_scores(4.0, 1), 0.5, 1))


def insertion_table() -> pa.Table:
    return insertions(INSERTION_TEST, draw_insertion_scores(0.1, 1))


def insertion_estimate_table() -> pa.Table:
    return insertion_estimates(INSERTION_TEST, draw_insertion_scores(0.1, 1))


def insertion_control_table() -> pa.Table:
    return insertion_control(trainings(INSERTIONS)[0].config, ())


def summary_table() -> pa.Table:
    return summary(About(0.05), [secret_table()])


def sum_lists(table: pa.Table) -> float:
    return sum(sum(row) for row in table["log_p"].to_pylist())


def sum_log_p(table: pa.Table) -> float:
    columns = [name for name in ("log_p", "log_p_end") if name in table.column_names]
    return sum(sum(table[name].to_pylist()) for name in columns)


TABLES = [
    Computed(secrets, secret_table),
    Computed(identifiers, identifier_table),
    Computed(extraction, extraction_table),
    Computed(documents, document_table),
    Computed(estimates, estimate_table),
    Computed(insertions, insertion_table),
    Computed(insertion_estimates, insertion_estimate_table),
    Computed(insertion_control, insertion_control_table),
    Computed(summary, summary_table),
    Computed(score_secrets, lambda: score_secrets(pair_of(SMOKE, 0, 1), ()), sum_lists, TRAINED),
    Computed(score_identifiers, lambda: score_identifiers(trainings(CONFIG)[0].config, ()), sum_lists, TRAINED),
    Computed(score_documents, lambda: score_documents(trainings(DOCUMENTS)[0].config, ()), sum_log_p, TRAINED),
    Computed(score_insertions, lambda: score_insertions(trainings(INSERTIONS)[0].config, ()), sum_log_p, TRAINED),
]
