"""The jobs that score texts with the models of a question."""

from __future__ import annotations

from tasks.audits.text.config import Text
from tasks.audits.text.documents.models import document_jobs, insertion_jobs
from tasks.audits.text.given.model import check_returned, identifier_jobs, planted_jobs
from tasks.audits.text.question import Documents, Identifiers, Insertions, Planted, Secrets
from tasks.audits.text.secrets.models import secret_jobs
from tasks.contract.job import Job


def trainings(config: Text) -> tuple[Job, ...]:
    """Return the scoring jobs of all models, in order. Empty for a question whose measure plans the scoring itself.

    Raises ValueError if there are too few texts.
    """
    check_returned(config)
    match config.question:
        case Secrets() as question:
            return secret_jobs(question, config.seed)
        case Planted() as question:
            return planted_jobs(question, config.seed)
        case Identifiers() as question:
            return identifier_jobs(question, config.seed)
        case Documents() as question:
            return document_jobs(question, config.seed)
        case Insertions() as question:
            return insertion_jobs(question, config.seed)
        case _:  # its measure plans the scores
            return ()
