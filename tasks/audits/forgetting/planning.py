"""Plan a run's tables from its configuration: load the data once, then plan each measure."""

from __future__ import annotations

from tasks.audits.forgetting.audited import Given, named_targets
from tasks.audits.forgetting.config import About, Examples, Forgetting, Scores
from tasks.audits.forgetting.data_sets import DataSets, load_data_sets
from tasks.audits.forgetting.measures import MEASURES, examples, fits, summary
from tasks.audits.forgetting.measures.query_confidences import plan_answers
from tasks.audits.forgetting.model_effects import Decisions
from tasks.audits.forgetting.presets import printed_cell
from tasks.audits.forgetting.query_set import ControlSet
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.target import NamedTarget, check_tables
from tasks.audits.forgetting.trainings import partial_shares, realised_share, training_jobs
from tasks.contract.job import Job, Roots
from tasks.contract.learning import chance_accuracy
from tasks.contract.measure import Measure, roots
from tasks.datasets.copies import count_copies
from tasks.datasets.dataset import is_numbered
from tasks.numerics import seeds
from tasks.programs.config import Program


def plan(config: Forgetting) -> Roots:
    """Plan the tables of the configured measures and their `summary`."""
    data = load_data_sets(config)
    rows = data.query.pool.rows(data.images)
    copies = count_copies(data.images, rows)
    chance = chance_accuracy(data.images.train.labels[rows])
    match config.question:
        case Examples():
            about = About((), copies=copies, chance=chance)
            return roots((examples.MEASURE,), data, None, lambda tables: Job(summary, about, tables))
        case Scores() as question:
            scoring = _plan_scoring(question, data)
            about = About(scoring.targets, printed_cell(question, data), copies, chance)
            left_out = _measures_left_out(question, data)
            measures = [measure for measure in MEASURES if measure not in left_out]
            return roots(measures, data, scoring, lambda tables: Job(summary, about, tables))


def _measures_left_out(question: Scores, data: DataSets) -> list[Measure]:
    """Return the measures that are not planned: those not requested, and those that need images or a history."""
    left_out = []
    if not question.class_images or is_numbered(data.query.data):
        left_out.append(examples.MEASURE)
    if isinstance(question.training, Program):  # which returns no accuracy on its training data
        left_out.append(fits.MEASURE)
    return left_out


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
