"""Where does a given model stand among the models trained here, record by record, and is it one of their kind?

    p(i) = (1 + #(models without i that score i as high as the given one)) / (1 + #(models without i))

If the given model was trained as they were, but without i, it is as likely to have any place among them: p is exact,
without a model of scores. q is p adjusted for the number of records (Benjamini & Hochberg 1995); a record is found
where q is at most `level`. What is compared is the log-odds of the true label; confidences where a table gives no more,
those of the models rounded as the table prints them; or whether the label is right, where a table gives labels alone.

Few models can find no record: with 64 of them p is at least 1 of 33. All records together tell more. A model's lead is
its mean rank over the records, less that over the images that follow, on which nobody was trained; the rank of an image
is the share of models without it that score it lower, ties counted half. The second mean takes away what a training
that is surer of everything has in common. The given model's lead is compared with that of each own model over the
records that this one was not trained on:

    p = (1 + #(own models with as large a lead)) / (1 + #(own models))

Was it trained as they were? On the images that follow the given model and the others are ranked together. A model's
distance is that of its ranks from even ones (Cramer & von Mises),

    D = 1 / (12 n) + sum over k of (u_(k) - (2 k - 1) / (2 n))^2

and the given model's place among all distances is an exact p-value that it is one of their kind. Each own model is also
taken for the given one in its turn, to see in how many the lead over all records tells that half were trained on.

Are the records and the other images alike? Two classifiers that never see a model learn on half of both what tells them
apart, and are tried on the other half (`tasks.external.split_audit`). If they can, nothing is judged: what
distinguishes the two sets would pass for memory, or hide it.
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
        ("row", pa.int64()),  # of the training split
        ("score", pa.float64()),  # of the given model
        ("kind", pa.string()),  # of score: SCORES
        ("models", pa.int64()),  # trained here without the record
        ("p_value", pa.float64()),  # null, like q_value and found, where there are none
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("right", pa.bool_()),  # whether the given model names its class; null if a table does not say it
    ]
)
KINSHIP = pa.schema(
    [
        ("given", pa.bool_()),  # else it is one of the models trained here
        ("distance", pa.float64()),  # of its ranks from even ones, on images that nobody was trained on
        ("lead", pa.float64()),  # over all records
        ("unseen_lead", pa.float64()),  # over the records that it was not trained on; of the given model null
        ("differing", pa.float64()),  # share of the pictures handed out twice that it answers differently; null: none
        ("repeats", pa.int64()),  # such pictures
    ]
)
OTHER_ANSWERS = pa.schema([*ANSWERS, ("other", pa.bool_())])
BLIND = pa.schema(
    [
        ("records", pa.int64()),
        ("others", pa.int64()),
        *interval_fields("area"),  # under the curve of the better of two classifiers that never see a model
        ("p_value", pa.float64()),  # that the two sets were drawn alike
    ]
)
GIVEN = "given model"
FOUND_GIVEN, LEAD = "records found in the given model", "lead of records in the given model"
DISTANCE, POWER = "distance on unseen images", "share of own models found out"
DIFFERING = "share of repeated pictures answered differently"
APART = "area under the curve without the model"


@dataclass(frozen=True)
class Ranking:
    """At which level records are found, and the first row of the images that follow them; 0: these are another set."""

    level: float
    first_unseen: int


def _plan_inputs(config: Membership, trainings: tuple[Job, ...]) -> tuple[Ranking, tuple[Job, ...]] | None:
    """What both measures read: the given model's scores and the others' answers; None without a given model.

    Raises ValueError if the owner's table is missing or cannot be used.
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
    """What a model says of each image of another data set (OTHER_ANSWERS), on which no model was trained."""
    table = answers(config, inputs)
    return make_table(OTHER_ANSWERS, **{name: table[name] for name in ANSWERS.names}, other=True)


def plan_ranks(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    planned = _plan_inputs(config, trainings)
    return () if planned is None else Job(ranks, *planned)


def plan_kinship(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    planned = _plan_inputs(config, trainings)
    return () if planned is None or not trainings else Job(kinship, *planned)


@dataclass(frozen=True, eq=False)
class Compared:
    """Scores of one kind: the given model's (records,) and the others' (models, records), with who was trained on what.

    `inside` is None without other models.
    """

    rows: NDArray[np.int64]
    given: Array
    others: Array
    inside: Mask


def compare(scores: pa.Table, answers: list[pa.Table], record: bool) -> Compared:
    """The scores of the records, or of the images that follow them, on which no model was trained."""
    own = scores.filter(np.asarray(scores["record"]) == record)
    given, rows = own["score"].to_numpy(), own["row"].to_numpy()
    if not answers:
        none = np.empty((0, len(rows)))
        return Compared(rows, given, none, none.astype(bool))
    stacked = stack_answers(answers)
    others = scores_alike(stacked, own["kind"][0].as_py(), own["resolution"][0].as_py())
    return Compared(rows, given, others, stacked.member if record else np.zeros_like(stacked.member))


def scores_alike(answers: Answers, kind: str, resolution: float) -> Array:
    """The models' scores of this kind, (models, records), printed as the given model's are."""
    match kind:
        case "label":
            return answers.correct.astype(np.float64)
        case "confidence":
            return round_confidences(np.exp(-np.logaddexp(0.0, -answers.phi)), resolution)
        case _:
            return answers.phi


@task(version=2, name="membership.given_ranks", gathers=True)
def ranks(config: Ranking, inputs: Inputs) -> pa.Table:
    """Each record's place in the given model among the models without it (RANKS); no row without its scores."""
    scores, of_records, _ = _split_inputs(config, inputs)
    if scores is None:
        return RANKS.empty_table()
    compared = compare(scores, of_records, record=True)
    outside = (~compared.inside).sum(axis=0)
    p_values = np.where(outside > 0, rank_p_values(compared.given, compared.others, ~compared.inside), np.nan)
    q_values = false_discovery_control(p_values)
    return make_table(
        RANKS,
        row=compared.rows,
        score=compared.given,
        kind=scores["kind"][0].as_py(),
        models=outside,
        p_value=nan_as_null(p_values),
        q_value=nan_as_null(q_values),
        found=pa.array(q_values <= config.level, mask=np.isnan(p_values)),
        right=scores.filter(scores["record"])["right"],
    )


@task(version=1, name="membership.given_kinship", gathers=True)
def kinship(config: Ranking, inputs: Inputs) -> pa.Table:
    """The given model and each of the others: their ranks on the records, and on images that nobody saw (KINSHIP).

    No row where a model answered about one of these alone, since tables do not say whose they are.
    """
    scores, of_records, of_unseen = _split_inputs(config, inputs)
    if scores is None or not of_records or len(of_records) != len(of_unseen):
        return KINSHIP.empty_table()
    records, unseen = compare(scores, of_records, record=True), compare(scores, of_unseen, record=False)
    distances = rank_distances(np.vstack([unseen.given[None], unseen.others]))
    (over_all, over_unseen), (following, _) = _mean_ranks(records), _mean_ranks(unseen)
    models = len(over_all)
    differing, repeats = differing_repeats(scores)
    return make_table(
        KINSHIP,
        given=np.arange(models) == 0,
        distance=distances,
        lead=over_all - following,
        unseen_lead=nan_as_null(over_unseen - following),
        differing=[differing, *[None] * (models - 1)],
        repeats=[repeats, *[0] * (models - 1)],
    )


def _split_inputs(config: Ranking, inputs: Inputs) -> tuple[pa.Table | None, list[pa.Table], list[pa.Table]]:
    """The given model's scores, if they are there, and the others' answers: about records, and images that follow."""
    scores = next((table for table in inputs if table.schema.equals(SCORES)), None)
    answers = [table for table in inputs if table.schema.equals(ANSWERS)]
    if not config.first_unseen:
        return scores, answers, [table for table in inputs if table.schema.equals(OTHER_ANSWERS)]
    seen = [table["row"][0].as_py() < config.first_unseen for table in answers]
    of_records, of_unseen = (
        [table for table, first in zip(answers, seen, strict=True) if first == side] for side in (True, False)
    )
    return scores, of_records, of_unseen


def rank_p_values(target: Array, others: Array, among: Mask) -> Array:
    """The p-value of each record that the target scores it higher than the models of `among`, (records,).

    `others` and `among` are (models, records). Equal scores count against the target.
    """
    p_values: Array = (1 + ((others >= target) & among).sum(axis=0)) / (1 + among.sum(axis=0))
    return p_values


def rank_distances(scores: Array) -> Array:
    """Of each model, Cramer and von Mises's distance of its ranks from even ones; scores are (models, images)."""
    from scipy import stats

    models, images = scores.shape
    places = np.sort((stats.rankdata(scores, axis=0) - 0.5) / models, axis=1)
    even = (2 * np.arange(1, images + 1) - 1) / (2 * images)
    distances: Array = 1 / (12 * images) + ((places - even) ** 2).sum(axis=1)
    return distances


def _mean_ranks(compared: Compared) -> tuple[Array, Array]:
    """Of the given model and then of the others the mean rank over all records, and over those not trained on.

    The first of the second is NaN: nobody knows what the given model was trained on.
    """
    over_all, over_unseen = [], []
    for target, scores in enumerate(np.vstack([compared.given[None], compared.others]), -1):
        among = ~compared.inside
        if target >= 0:
            among[target] = False
        lower, equal = ((side & among).sum(axis=0) for side in (compared.others < scores, compared.others == scores))
        rank = (lower + equal / 2) / among.sum(axis=0)
        over_all.append(rank.mean())
        over_unseen.append(np.nan if target < 0 else rank[~compared.inside[target]].mean())
    return np.array(over_all), np.array(over_unseen)


def lead_p_value(lead: float, others: Array) -> float:
    """The p-value of a lead among those of own models over records that they were not trained on."""
    return float((1 + (others >= lead).sum()) / (1 + len(others)))


def differing_repeats(scores: pa.Table) -> tuple[float | None, int]:
    """The share of the pictures handed out twice whose two answers differ, and how many there are."""
    twice = scores.filter(scores["again"].is_valid())
    if not twice.num_rows:
        return None, 0
    once, again = twice["score"].to_numpy(), twice["again"].to_numpy()
    # As far apart as the log-odds of one device from another's, at a confidence of a half; or a printed place.
    return float((np.abs(once - again) > max(SAME / 4, twice["resolution"][0].as_py() * (1 + 1e-6))).mean()), len(once)


def rank_rows(tables: Tables, about: About) -> Iterator[Row]:
    """How many records are found in the given model, with the p-value that any is; its ties and its accuracy."""
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
        yield accuracy_row(accuracy, "records", about.chance, "record", of=GIVEN)


def found_row(table: pa.Table, about: About) -> Row:
    """How many records are found in the given model; without a number if no model was trained to rank it among."""
    setting = {"level": about.level, "score": table["kind"][0].as_py()}
    tested = table.filter(table["p_value"].is_valid())
    if not tested.num_rows:
        return row(FOUND_GIVEN, setting, alone(None), "record", 0.0)
    found = int(np.count_nonzero(tested["found"].to_numpy(zero_copy_only=False)))
    any_p = float(tested["q_value"].to_numpy().min())
    return row(FOUND_GIVEN, setting, alone(float(found), tested.num_rows), "record", 0.0, any_p)


def kinship_rows(tables: Tables, about: About) -> Iterator[Row]:
    """The given model's lead, whether it is one of the others' kind, and in how many of these the lead tells."""
    table = tables.one(KINSHIP)
    if table is None or not table.num_rows:
        return
    given = np.asarray(table["given"])
    distances, leads, unseen = (table[name].to_numpy() for name in ("distance", "lead", "unseen_lead"))
    p_value = lead_p_value(leads[given][0], unseen[~given])
    yield row(LEAD, {}, alone(float(leads[given][0]), int(given.sum())), "model", 0.0, p_value)
    among = float((distances >= distances[given][0]).mean())
    distance = alone(float(distances[given][0]), len(distances))
    yield row(DISTANCE, {}, distance, "training", float(np.median(distances[~given])), among)
    own = np.flatnonzero(~given)
    told = sum(lead_p_value(leads[model], unseen[own[own != model]]) <= about.level for model in own)
    yield row(POWER, {}, statistics.proportion(told, len(own)), "training")
    repeats = table["repeats"].to_numpy()[given][0]
    if repeats:
        share = table["differing"].filter(pa.array(given))[0].as_py()
        yield row(DIFFERING, {}, statistics.proportion(round(share * repeats), int(repeats)), "picture", 0.0)


@task(version=1, name="membership.blind_control")
def blind_control(config: AskedImages, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - no model is asked
    """How well the records and the other images are told apart without any model (BLIND), in one row.

    No row if there are too few of either for the control.
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
    """The control asks nobody, so its key has nothing of the given model's."""
    if not isinstance(config.question, GivenModel):
        return ()
    asked = question_about(config)
    return Job(blind_control, AskedImages(asked.records, asked.unseen, asked.seed))


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
