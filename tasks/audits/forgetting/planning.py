"""Plan a run's tables from its configuration: load the data once, then plan each measure."""

from __future__ import annotations

from tasks.audits.forgetting.audited import Given, named_targets
from tasks.audits.forgetting.config import About, Examples, Forgetting, Scores
from tasks.audits.forgetting.data_sets import DataSets, load_data_sets
from tasks.audits.forgetting.measures import MEASURES, examples, summary
from tasks.audits.forgetting.measures.query_confidences import plan_answers
from tasks.audits.forgetting.model_effects import Decisions
from tasks.audits.forgetting.presets import printed_cell
from tasks.audits.forgetting.query_set import ControlSet
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.target import NamedTarget, check_tables
from tasks.audits.forgetting.trainings import partial_shares, realised_share, training_jobs
from tasks.contract.job import Job, Roots
from tasks.contract.learning import chance_accuracy
from tasks.contract.measure import roots
from tasks.datasets.copies import count_copies
from tasks.numerics import seeds


def plan(config: Forgetting) -> Roots:
    """Plan the tables of the configured measures and their `summary`."""
    data = load_data_sets(config)
    rows = data.query.pool.rows(data.images)
    copies = count_copies(data.images, rows)
    chance = chance_accuracy(data.images.train_labels[rows])
    match config.question:
        case Examples():
            about = About((), copies=copies, chance=chance)
            return roots((examples.MEASURE,), data, None, lambda tables: Job(summary, about, tables))
        case Scores() as question:
            scoring = _plan_scoring(question, data)
            about = About(scoring.targets, printed_cell(question, data), copies, chance)
            measures = []
            for measure in MEASURES:
                if question.class_images or measure is not examples.MEASURE:
                    measures.append(measure)
            return roots(measures, data, scoring, lambda tables: Job(summary, about, tables))


def _plan_scoring(question: Scores, data: DataSets) -> Scoring:
    """Plan the trained and the third-party models, and their answers.

    Raises ValueError before any training if there is no model or a table of outputs is unusable.
    """
    audited = question.audited
    targets = named_targets(audited)
    if not targets:
        raise ValueError(
            "no model to audit: set given.models=..., or given.outputs=... with a table of outputs on the images that "
            "engram probes writes"
        )
    if isinstance(audited, Given) and audited.tables is not None:
        check_tables(audited.outputs, audited.tables.columns, audited.interface, data.probes)
    jobs = dict(training_jobs(question, data))
    answers = tuple(plan_answers(question, data, jobs))
    return Scoring(audited, jobs, targets, answers, _plan_decisions(question, data, targets))


def _plan_decisions(question: Scores, data: DataSets, targets: tuple[NamedTarget, ...]) -> Decisions:
    """Configure the decisions about targets and the power measure."""
    control = data.query.control or ControlSet()  # without a control set, no target is judged
    shares = partial_shares(question.audited, data)
    return Decisions(
        targets,
        tuple(realised_share(question, data, share) for share in shares),
        control.negligible,
        control.permutations,
        seeds.derive(data.seed, "decisions"),
        question.calibration_share,
    )
