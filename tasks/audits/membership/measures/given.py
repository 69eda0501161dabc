"""How does a given model rank among the models trained here, for each record, and was it trained like them?

    p(i) = (1 + #(models without i that score i at least as high as the given model)) / (1 + #(models without i))

If the given model was trained like the others, but without record i, all its ranks among them are equally likely: p is
exact, without assuming a distribution of the scores. q is p adjusted for the number of records (Benjamini & Hochberg
1995). A record is found if q is at most `level`. The score is the log-odds of the true label. If a table contains only
confidences, the score is the confidence, and the other models' scores are rounded like the table. If a table contains
only labels, the score is whether the label is correct.

Few models cannot identify single records: with 64 of them, p is at least 1 of 33. All records together carry more
information. The lead of a model is its mean rank over the records, minus that over the non-members. The rank of an
image is the share of models without it that score it lower, with ties counted half. Subtracting the second mean removes
the effect of a training that is more confident about all images. The lead of the given model is compared with that of
each model trained here over the records that this model was not trained on:

    p = (1 + #(models trained here with at least this lead)) / (1 + #(models trained here))

Was the given model trained like the others? All models are ranked together on the non-members. A model's distance
measures how far its ranks are from uniform (Cramer & von Mises),

    D = 1 / (12 n) + sum over k of (u_(k) - (2 k - 1) / (2 n))^2

and the rank of the given model among all distances is an exact p-value for the hypothesis that it was trained like the
others. Each model trained here also takes the place of the given model, to measure how often the lead over all records
identifies a model trained on half of them.

Are the records and the non-members alike? Two classifiers that never see a model learn to distinguish one half of both
sets, and are tested on the other half (`tasks.external.split_audit`). If they succeed, the answer is *not assessable*:
a difference between the sets could be mistaken for memorisation, or hide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.given import SCORES, ask_given, asked_rows, check_table, pictures, question_about
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.image_parts import AskedImages
from tasks.audits.membership.trainings import ANSWERS, Answers, answers, ask_models, stack_answers
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Estimate, Row, alone, interval_columns, interval_fields, row
from tasks.contract.ties import tied_row
from tasks.datasets.mixtures import BalancedHalf
from tasks.external.blinding import SAME
from tasks.external.confidences import round_confidences
from tasks.numerics import statistics
from tasks.numerics.exact_test import Array, Mask
from tasks.numerics.ranks import false_discovery_control, share_tied

RANKS = pa.schema(
    [
        ("row", pa.int64()),  # row of the training split
        ("score", pa.float64()),  # score by the given model
        ("kind", pa.string()),  # kind of score, as in SCORES
        ("models", pa.int64()),  # models trained here without the record
        ("p_value", pa.float64()),  # null without such models, like q_value and found
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("right", pa.bool_()),  # whether the given model labels it correctly; null if unknown
    ]
)
KINSHIP = pa.schema(
    [
        ("given", pa.bool_()),  # false: a model trained here
        ("distance", pa.float64()),  # distance of its ranks from uniform, on non-members
        ("lead", pa.float64()),  # over all records
        ("unseen_lead", pa.float64()),  # over the records it was not trained on; null for the given model
        ("differing", pa.float64()),  # share of repeated images with two answers; null without repeats
        ("repeats", pa.int64()),  # repeated images
    ]
)
OTHER_ANSWERS = pa.schema([*ANSWERS, ("other", pa.bool_())])
BLIND = pa.schema(
    [
        ("records", pa.int64()),
        ("others", pa.int64()),
        *interval_fields("area"),  # largest area under the curve of classifiers that never see a model
        ("p_value", pa.float64()),  # null hypothesis: both sets were drawn in the same way
    ]
)
SCORES_AT_ONCE = 2**20  # of all models, for a block of records whose ranks are computed together
GIVEN = "given model"
FOUND_GIVEN = "records found in the given model"
LEAD = "lead of records in the given model"
DISTANCE = "distance on unseen images"
POWER = "share of own models found out"
DIFFERING = "share of repeated pictures answered differently"
APART = "area under the curve without the model"


@dataclass(frozen=True)
class Ranking:
    """Level, and the first row of the non-members (0 if they come from another data set)."""

    level: float
    first_unseen: int


def _plan_inputs(config: Membership, trainings: tuple[Job, ...]) -> tuple[Ranking, tuple[Job, ...]] | None:
    """Return the settings and inputs of both measures: the given model's scores and the other models' answers.

    None if no model is given. Raises ValueError if the owner's table is missing or unusable.
    """
    if not isinstance(config.question, GivenModel):
        return None
    ask = question_about(config)
    check_table(ask)
    of_unseen = ask_models(config, ask.unseen)
    if ask.are_two_sets:
        of_unseen = tuple(Job(answers_about_others, job.config, job.inputs) for job in of_unseen)
    return Ranking(config.question.level, ask.unseen.first), (Job(ask_given, ask), *trainings, *of_unseen)


@task(version=1, name="membership.answers_about_others")
def answers_about_others(config: BalancedHalf, inputs: Inputs) -> pa.Table:
    """Score each image of another data set, which no model was trained on (OTHER_ANSWERS)."""
    table = answers(config, inputs)
    return make_table(OTHER_ANSWERS, **{name: table[name] for name in ANSWERS.names}, other=True)


def plan_ranks(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    ranking_inputs = _plan_inputs(config, trainings)
    return () if ranking_inputs is None else Job(ranks, *ranking_inputs)


def plan_kinship(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    ranking_inputs = _plan_inputs(config, trainings)
    if ranking_inputs is None or not trainings:
        return ()
    return Job(kinship, *ranking_inputs)


@dataclass(frozen=True, eq=False)
class Compared:
    """Scores of one kind: the given model's (images,), and the other models' (models, images).

    `inside` (models, images) marks the images that each model was trained on.
    """

    rows: NDArray[np.int64]
    target_scores: Array
    other_scores: Array
    inside: Mask


def compare(scores: pa.Table, answers: list[pa.Table], record: bool) -> Compared:
    """Return the scores of the records, or of the non-members if `record` is false."""
    rows_of_set = scores.filter(np.asarray(scores["record"]) == record)
    given_scores = rows_of_set["score"].to_numpy()
    rows = rows_of_set["row"].to_numpy()
    if not answers:
        none = np.empty((0, len(rows)))
        return Compared(rows, given_scores, none, none.astype(bool))
    stacked = stack_answers(answers)
    other_scores = scores_alike(stacked, rows_of_set["kind"][0].as_py(), rows_of_set["resolution"][0].as_py())
    return Compared(rows, given_scores, other_scores, stacked.member if record else np.zeros_like(stacked.member))


def scores_alike(answers: Answers, kind: str, resolution: float) -> Array:
    """Return the models' scores of this kind, (models, records), rounded like those of the given model."""
    match kind:
        case "label":
            return answers.right
        case "confidence":
            return round_confidences(np.exp(-np.logaddexp(0.0, -answers.phi)), resolution)
        case _:
            return answers.phi


@task(version=2, name="membership.given_ranks", gathers=True)
def ranks(config: Ranking, inputs: Inputs) -> pa.Table:
    """Rank the given model among the models without each record (RANKS). Empty without its scores."""
    scores, of_records, _ = _split_inputs(config, inputs)
    if scores is None:
        return RANKS.empty_table()
    compared = compare(scores, of_records, record=True)
    outside = (~compared.inside).sum(axis=0)
    p_values = np.where(
        outside > 0, rank_p_values(compared.target_scores, compared.other_scores, ~compared.inside), np.nan
    )
    q_values = false_discovery_control(p_values)
    return make_table(
        RANKS,
        row=compared.rows,
        score=compared.target_scores,
        kind=scores["kind"][0].as_py(),
        models=outside,
        p_value=nan_as_null(p_values),
        q_value=nan_as_null(q_values),
        found=pa.array(q_values <= config.level, mask=np.isnan(p_values)),
        right=scores.filter(scores["record"])["right"],
    )


@task(version=1, name="membership.given_kinship", gathers=True)
def kinship(config: Ranking, inputs: Inputs) -> pa.Table:
    """Rank all models on the records and on the non-members (KINSHIP).

    Empty if a model lacks the answers on one of the sets, because tables do not name their model.
    """
    scores, of_records, of_unseen = _split_inputs(config, inputs)
    if scores is None or not of_records or len(of_records) != len(of_unseen):
        return KINSHIP.empty_table()
    records = compare(scores, of_records, record=True)
    unseen = compare(scores, of_unseen, record=False)
    distances = rank_distances(np.vstack([unseen.target_scores[None], unseen.other_scores]))
    over_all, over_unseen = _mean_ranks(records)
    mean_ranks, _ = _mean_ranks(unseen)
    models = len(over_all)
    differing, repeats = differing_repeats(scores)
    return make_table(
        KINSHIP,
        given=np.arange(models) == 0,
        distance=distances,
        lead=over_all - mean_ranks,
        unseen_lead=nan_as_null(over_unseen - mean_ranks),
        differing=[differing, *[None] * (models - 1)],
        repeats=[repeats, *[0] * (models - 1)],
    )


def _split_inputs(config: Ranking, inputs: Inputs) -> tuple[pa.Table | None, list[pa.Table], list[pa.Table]]:
    """Return the given model's scores, if available, and the others' answers on records and on non-members."""
    scores = next((table for table in inputs if table.schema.equals(SCORES)), None)
    answers = [table for table in inputs if table.schema.equals(ANSWERS)]
    if not config.first_unseen:
        return scores, answers, [table for table in inputs if table.schema.equals(OTHER_ANSWERS)]
    is_of_records = [table["row"][0].as_py() < config.first_unseen for table in answers]
    of_records, of_unseen = (
        [table for table, first in zip(answers, is_of_records, strict=True) if first == side] for side in (True, False)
    )
    return scores, of_records, of_unseen


def rank_p_values(target: Array, other_scores: Array, among: Mask) -> Array:
    """Return the p-value of the target's score on each record among the models in `among`, (records,).

    `other_scores` and `among` are (models, records). Ties increase the p-value.
    """
    p_values: Array = (1 + ((other_scores >= target) & among).sum(axis=0)) / (1 + among.sum(axis=0))
    return p_values


def rank_distances(scores: Array) -> Array:
    """Return the Cramer-von Mises distance of each model's ranks from uniform. Scores are (models, images)."""
    from scipy import stats

    models, images = scores.shape
    places = np.empty(scores.shape)
    for block in _blocks_of(scores):
        places[:, block] = (stats.rankdata(scores[:, block], axis=0) - 0.5) / models
    places.sort(axis=1)
    even = (2 * np.arange(1, images + 1) - 1) / (2 * images)
    squares = [((of_model - even) ** 2).sum() for of_model in places]
    distances: Array = 1 / (12 * images) + np.array(squares)
    return distances


def _blocks_of(scores: Array) -> Iterator[slice]:
    """Divide the images of scores (models, images) into blocks of SCORES_AT_ONCE."""
    size = max(1, SCORES_AT_ONCE // len(scores))
    for start in range(0, scores.shape[1], size):
        yield slice(start, start + size)


def _mean_ranks(compared: Compared) -> tuple[Array, Array]:
    """Return mean ranks of the given model and the others: over all records, and over those not trained on.

    The second is NaN for the given model, whose training data are unknown.
    """
    scores = np.vstack([compared.target_scores[None], compared.other_scores])
    outside = np.vstack([np.zeros((1, len(compared.rows)), dtype=bool), ~compared.inside])
    ranks = np.empty(scores.shape)
    for block in _blocks_of(scores):
        ranks[:, block] = ranks_among_others(scores[:, block], outside[:, block])
    over_all = []
    over_unseen = []
    for model, is_outside in enumerate(outside):
        of_model: Array = ranks[model]
        over_all.append(of_model.mean())
        over_unseen.append(of_model[is_outside].mean() if is_outside.any() else np.nan)
    return np.array(over_all), np.array(over_unseen)


def ranks_among_others(scores: Array, outside: Mask) -> Array:
    """Return the share of the other outside models that score a record lower than each model, (models, records).

    Ties count half. Both arguments are (models, records). All ranks of a record come from one sort of its scores.
    """
    order = np.argsort(scores, axis=0)
    ascending = np.take_along_axis(scores, order, axis=0)
    positions = np.arange(len(scores))[:, None]
    is_first = np.ones(scores.shape, dtype=bool)
    is_first[1:] = ascending[1:] != ascending[:-1]
    first = np.maximum.accumulate(np.where(is_first, positions, 0), axis=0)
    is_last = np.ones(scores.shape, dtype=bool)
    is_last[:-1] = is_first[1:]
    last = np.minimum.accumulate(np.where(is_last, positions, len(scores))[::-1], axis=0)[::-1]
    below = np.zeros((len(scores) + 1, scores.shape[1]), dtype=np.int64)
    np.cumsum(np.take_along_axis(outside, order, axis=0), axis=0, out=below[1:])
    lower = np.empty(scores.shape, dtype=np.int64)
    not_above = np.empty(scores.shape, dtype=np.int64)
    np.put_along_axis(lower, order, np.take_along_axis(below, first, axis=0), axis=0)
    np.put_along_axis(not_above, order, np.take_along_axis(below, last + 1, axis=0), axis=0)
    equal = not_above - lower - outside  # without the model itself
    ranks: Array = (lower + equal / 2) / (outside.sum(axis=0) - outside)
    return ranks


def lead_p_value(lead: float, other_leads: Array) -> float:
    """Return the p-value of a lead, compared with models trained here over records they were not trained on."""
    return float((1 + (other_leads >= lead).sum()) / (1 + len(other_leads)))


def differing_repeats(scores: pa.Table) -> tuple[float | None, int]:
    """Return the share of repeated images with two answers, and the number of repeated images."""
    twice = scores.filter(scores["again"].is_valid())
    if not twice.num_rows:
        return None, 0
    once = twice["score"].to_numpy()
    repeat_scores = twice["again"].to_numpy()
    # The tolerance is the difference between devices in log-odds, at a confidence of one half, or one printed digit.
    return float(
        (np.abs(once - repeat_scores) > max(SAME / 4, twice["resolution"][0].as_py() * (1 + 1e-6))).mean()
    ), len(once)


def rank_rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the number of records found in the given model, its ties, and its accuracy."""
    table = tables.one(RANKS)
    if table is None or not table.num_rows:
        return
    yield found_row(table, about)
    scores = table["score"].to_numpy()
    if len(scores) > 1:
        yield tied_row(float(share_tied(scores)), len(scores), "record", of=GIVEN)
    right = table["right"]
    if not right.null_count:
        accuracy = statistics.proportion(int(np.count_nonzero(right.to_numpy())), len(right))
        yield accuracy_row(accuracy, "records", about.chance, "record", model_name=GIVEN)


def found_row(table: pa.Table, about: About) -> Row:
    """Return the row with the number of records found in the given model. Its value is None without references."""
    setting = {"level": about.level, "score": table["kind"][0].as_py()}
    tested = table.filter(table["p_value"].is_valid())
    if not tested.num_rows:
        return row(FOUND_GIVEN, setting, alone(None), "record", 0.0)
    count = int(np.count_nonzero(tested["found"].to_numpy(zero_copy_only=False)))
    any_p = float(tested["q_value"].to_numpy().min())
    return row(FOUND_GIVEN, setting, alone(float(count), tested.num_rows), "record", 0.0, any_p)


def kinship_rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the given model's lead, its distance, the power, and the share of differing repeats."""
    table = tables.one(KINSHIP)
    if table is None or not table.num_rows:
        return
    is_given = np.asarray(table["given"])
    distances = table["distance"].to_numpy()
    leads = table["lead"].to_numpy()
    unseen = table["unseen_lead"].to_numpy()
    p_value = lead_p_value(leads[is_given][0], unseen[~is_given])
    yield row(LEAD, {}, alone(float(leads[is_given][0]), int(is_given.sum())), "model", 0.0, p_value)
    among = float((distances >= distances[is_given][0]).mean())
    distance = alone(float(distances[is_given][0]), len(distances))
    yield row(DISTANCE, {}, distance, "training", float(np.median(distances[~is_given])), among)
    trained_here = np.flatnonzero(~is_given)
    identified = sum(
        lead_p_value(leads[model], unseen[trained_here[trained_here != model]]) <= about.level for model in trained_here
    )
    yield row(POWER, {}, statistics.proportion(identified, len(trained_here)), "training")
    repeats = table["repeats"].to_numpy()[is_given][0]
    if repeats:
        share = table["differing"].filter(pa.array(is_given))[0].as_py()
        yield row(DIFFERING, {}, statistics.proportion(round(share * repeats), int(repeats)), "picture", 0.0)


@task(version=2, name="membership.blind_control")
def blind_control(config: AskedImages, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Distinguish the records from the non-members without a model (BLIND, one row).

    Empty if either set is too small.
    """
    from tasks.external import split_audit
    from tasks.external.audit_inputs import FEWEST

    _, images, labels = pictures(config)
    records = len(asked_rows(config.records))
    if min(records, len(images) - records) < FEWEST:
        return BLIND.empty_table()
    area, p_value = split_audit.blind_control(
        (images[:records], labels[:records]), (images[records:], labels[records:]), config.seed
    )
    areas = interval_columns("area", area)
    return make_table(BLIND, records=records, others=len(images) - records, **areas, p_value=p_value)


def _plan_blind_control(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:  # noqa: ARG001
    """Plan the blind control. Its key does not depend on the given model."""
    if not isinstance(config.question, GivenModel):
        return ()
    question = question_about(config)
    return Job(blind_control, AskedImages(question.records, question.unseen, question.seed))


def _blind_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    for table in tables.rows(BLIND):
        area = Estimate(table["area"], table["area_low"], table["area_high"], table["records"] + table["others"])
        counts = {"records": table["records"], "others": table["others"]}
        yield row(APART, counts, area, "image", 0.5, table["p_value"])


MEASURES = (
    Measure("given_ranks", RANKS, plan_ranks, rank_rows),
    Measure("given_kinship", KINSHIP, plan_kinship, kinship_rows),
    Measure("blind_control", BLIND, _plan_blind_control, _blind_rows),
)
