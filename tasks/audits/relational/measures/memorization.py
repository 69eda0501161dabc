"""By how much more often are hidden answers given on training contexts than on held-out ones?

    r = the share of corrupted contexts on which the question is answered rightly, s = the same on whole contexts
    m = r_train - r_validation

m is the memorization of the relation between a context and its answer, from 0 to 1: what the model can answer by
chance, by what it knows of the world or from what is left of the context, it can answer of held-out questions, too.
Where the entropy H(X) of the answers can be estimated, mem = H(X) m in nats.

A model that knows nothing of a context but which answers were common in training is right more often there, too, since
what is common in one part is so by chance in part (marginal memorization, eq. 5). The answer therefore rests on

    relational m = (r_train - c_train) - (r_validation - c_validation)

by exact match, where c is how often the answers given match the gold answers of the part's other questions.

Bombari et al. 2022, section 4, eqs. 15 and 16. Intervals, of resampled contexts, and relational m are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.audits.relational.config import About, Relational
from tasks.audits.relational.estimates import ContextSums, Contrast, contrasts, entropy, sum_by_context
from tasks.audits.relational.measures.questions import plan_scores
from tasks.audits.relational.presets import PublishedNumbers, published_numbers
from tasks.audits.relational.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import MODELS, accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import ENDS, Estimate, Row, alone, column_estimate, interval_columns, interval_fields, row
from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Answer
from tasks.numerics import seeds

END, BEST = "end", "best validation"  # when the model is asked
SCORES = ("exact_match", "f1")
GOLDS = {"one": "", "all": "_all"}  # gold answers that count, and the suffix of the columns
CONTEXTS = {False: "s", True: "r"}  # success on whole contexts and on corrupted ones
COLUMNS = [f"{score}{suffix}" for score in SCORES for suffix in GOLDS.values()]
RELATIONAL = "relational_m"
PARTS = ("s_train", "s_validation", "r_train", "r_validation", "m")

# One row for each epoch, subset of the questions, score, and way of counting gold answers.
MEMORIZATION = pa.schema(
    [
        ("epoch", pa.int64()),  # null where the training is not known
        ("questions", pa.string()),  # all, or those whose answer is numeric
        ("score", pa.string()),
        ("golds", pa.string()),  # one: fair to both parts; all: as published
        *interval_fields(*PARTS),
        ("p_value", pa.float64()),  # of m above 0
        # By exact match with one gold answer only.
        *interval_fields(RELATIONAL),
        (f"{RELATIONAL}_p_value", pa.float64()),
        ("replicates", pa.int32()),
        ("train_questions", pa.int64()),
        ("train_contexts", pa.int64()),
        ("validation_questions", pa.int64()),
        ("validation_contexts", pa.int64()),
        ("unanswered_whole", pa.float64()),  # of held-out questions, the share that has no answer
        ("unanswered_corrupted", pa.float64()),
        ("entropy", pa.float64()),  # H(X) of the gold answers of training questions, nats; null where there are too few
        ("train_loss", pa.float64()),  # mean over replicates
    ]
)


@dataclass(frozen=True)
class Resampling:
    """How often contexts are resampled, from which seed, and the questions whose gold answers have an entropy."""

    data: Dataset
    resamples: int
    seed: int


@task(version=1, name="relational.memorization", gathers=True)
def memorization(config: Resampling, inputs: Inputs) -> pa.Table:
    """r, s and m by epoch (MEMORIZATION), each the mean over the replicates there are."""
    scores, golds = pa.concat_tables(inputs), _gold_answers(config.data)
    epochs = sorted({epoch for epoch in pc.unique(scores["epoch"]).to_pylist() if epoch is not None})
    rows = [
        each for epoch in epochs or [None] for each in _epoch_rows(epoch, _filter_epoch(scores, epoch), golds, config)
    ]
    return pa.Table.from_pylist(rows, MEMORIZATION)


def _gold_answers(data: Dataset) -> dict[str, Answer]:
    """The first gold answer of each question by its id."""
    return {id_: question.golds[0] for id_, question in load_questions(data).by_id.items()}


def _filter_epoch(scores: pa.Table, epoch: int | None) -> pa.Table:
    """The scores after this epoch; all where the training is not known."""
    return scores if epoch is None else scores.filter(pc.field("epoch") == epoch)


def _epoch_rows(
    epoch: int | None, scores: pa.Table, golds: Mapping[str, Answer], config: Resampling
) -> Iterator[dict[str, Any]]:
    """The rows of one epoch, those of numeric questions first."""
    subsets = {"numeric": scores.filter(pc.field("numeric")), "all": scores}
    if subsets["numeric"].num_rows == scores.num_rows:
        del subsets["all"]
    for name, asked in subsets.items():
        if not asked.num_rows:
            continue
        parts = {
            split: _scores_by_context(asked.filter(pc.field("split") == split)) for split in ("train", "validation")
        }
        found = contrasts(parts["train"].part, parts["validation"].part, config.resamples, config.seed)
        about = {
            "epoch": epoch,
            "questions": name,
            "replicates": len(pc.unique(asked["replicate"])),
            **{f"{split}_questions": len(each.ids) for split, each in parts.items()},
            **{f"{split}_contexts": len(each.part.counts) for split, each in parts.items()},
            **_unanswered_shares(asked),
            "entropy": entropy([golds[id_] for id_ in parts["train"].ids]),
            "train_loss": pc.mean(asked["train_loss"]).as_py(),
        }
        kinds, relational = (found[: len(COLUMNS)], found[len(COLUMNS) + 1 : -1]), found[-1]
        for (score, counted), whole, corrupted in zip(itertools.product(SCORES, GOLDS), *kinds, strict=True):
            row_of = {**about, "score": score, "golds": counted, **_success_columns(whole, corrupted)}
            yield row_of | (_relational_columns(relational) if (score, counted) == ("exact_match", "one") else {})


@dataclass(frozen=True, eq=False)
class SplitScores:
    """One part of the data: its scores by context, those of whole contexts first, and the ids of its questions."""

    part: ContextSums
    ids: Sequence[str]


def _scores_by_context(scores: pa.Table) -> SplitScores:
    """The mean score of each question over replicates, summed by contexts; the last is that of relational m.

    Questions that were not asked on both kinds of context, as where a training is missing, do not count.
    """
    ids = np.asarray(scores["id"].to_numpy(zero_copy_only=False), dtype=str)
    names, places = np.unique(ids, return_inverse=True)
    corrupted = scores["corrupted"].to_numpy(zero_copy_only=False).astype(bool)
    columns = [scores[column].to_numpy() for column in COLUMNS]
    values = np.stack([*columns, columns[0] - scores["common_match"].to_numpy()], axis=1)
    means = np.concatenate(
        [_group_means(values[corrupted == kind], places[corrupted == kind], len(names)) for kind in CONTEXTS], axis=1
    )
    contexts = np.empty(len(names), dtype=object)
    contexts[places] = scores["context"].to_numpy(zero_copy_only=False)
    there = ~np.isnan(means).any(axis=1)
    _, numbers = np.unique(contexts[there].astype(str), return_inverse=True)
    return SplitScores(sum_by_context(means[there], numbers), names[there].tolist())


def _group_means(values: NDArray[np.float64], places: NDArray[np.integer], count: int) -> NDArray[np.float64]:
    """The mean of the values at each place, (count, columns); NaN where there is none."""
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, places, values)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.bincount(places, minlength=count)[:, None])


def _unanswered_shares(scores: pa.Table) -> dict[str, float | None]:
    """The shares of held-out questions to which nothing was answered."""
    held_out = scores.filter(pc.field("split") == "validation")
    shares: dict[str, float | None] = {}
    for name, corrupted in (("unanswered_whole", False), ("unanswered_corrupted", True)):
        answered = pc.mean(held_out.filter(pc.field("corrupted") == corrupted)["answered"]).as_py()
        shares[name] = None if answered is None else 1.0 - answered
    return shares


def _success_columns(whole: Contrast, corrupted: Contrast) -> dict[str, float | None]:
    """The columns of s, r and m."""
    return {
        **interval_columns("s_train", whole.train),
        **interval_columns("s_validation", whole.validation),
        **interval_columns("r_train", corrupted.train),
        **interval_columns("r_validation", corrupted.validation),
        **interval_columns("m", corrupted.difference),
        "p_value": corrupted.p_value,
    }


def _relational_columns(contrast: Contrast) -> dict[str, float | None]:
    return {**interval_columns(RELATIONAL, contrast.difference), f"{RELATIONAL}_p_value": contrast.p_value}


def plan(config: Relational, trainings: Trainings) -> Job:
    question = trainings.question
    resampling = Resampling(question.data, question.resamples, seeds.derive(config.seed, "resamples"))
    return Job(memorization, resampling, plan_scores(config, trainings))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """m, r and s at the last epoch, the decisive m first; and m where held-out questions are answered best."""
    table = tables.one(MEMORIZATION)
    if table is None or not table.num_rows:
        return
    found = _drop_redundant_golds(table.to_pylist())
    last = [each for each in found if each["epoch"] == found[-1]["epoch"]]
    last.sort(key=lambda each: (each["questions"] != about.questions, each["golds"] != "one"))
    best = _best_validation_rows(found)
    for each in last:
        if each[RELATIONAL] is not None:
            yield _relational_m_row(each)
    for each in last:
        yield _m_row(each, END, about)
    for each in best:
        yield _m_row(each, BEST, about)
    yield from _success_rows(last, END, about)
    yield from _learning_rows(last[0], about)
    if about.cell:
        yield from _success_rows(best, BEST, about)
    yield from _information_rows(last, about)
    if best and best[0]["epoch"] is not None:
        yield row("epoch of best validation", {}, alone(float(best[0]["epoch"])), "training")
    yield from _unanswered_rows(last)


def _drop_redundant_golds(found: Sequence[Row]) -> list[Row]:
    """The rows without those of all gold answers, where no question that was asked has more than one."""
    names = [name for name, _ in interval_fields(*PARTS)]
    several = any(
        one[name] != every[name]
        for one, every in itertools.pairwise(found)
        if (one["golds"], every["golds"]) == ("one", "all")
        for name in names
    )
    return [each for each in found if several or each["golds"] == "one"]


def setting(each: Row, **more: Any) -> dict[str, Any]:
    """What an estimate of a row is of."""
    return {"questions": each["questions"], "score": each["score"].replace("_", " "), "golds": each["golds"], **more}


def _relational_m_row(each: Row) -> Row:
    """Relational m with its interval over contexts: what the answer rests on."""
    n = each["train_contexts"] + each["validation_contexts"]
    m = column_estimate(each, RELATIONAL, n)
    return row("relational m", setting(each, at=END), m, "context", 0.0, each[f"{RELATIONAL}_p_value"])


def _m_row(each: Row, at: str, about: About) -> Row:
    """m with its interval over contexts."""
    n = each["train_contexts"] + each["validation_contexts"]
    m = column_estimate(each, "m", n)
    paper = _comparable_numbers(each, at, about)
    return row("m", setting(each, at=at), m, "context", 0.0, each["p_value"], paper and paper.m)


def _success_rows(found: Sequence[Row], at: str, about: About) -> Iterator[Row]:
    for each in found:
        paper = _comparable_numbers(each, at, about)
        for name in PARTS[:-1]:
            kind, split = name.split("_")
            value = column_estimate(each, name, each[f"{split}_contexts"])
            published = None if paper is None else getattr(paper, name)
            yield row(kind, setting(each, split=split, at=at), value, "context", published=published)


def _learning_rows(decisive: Row, about: About) -> Iterator[Row]:
    """How often held-out questions are answered rightly from whole contexts, beside the best constant answer."""
    accuracy = column_estimate(decisive, "s_validation", decisive["validation_contexts"])
    of = MODELS if decisive["epoch"] is not None else "system that answered"
    if accuracy.value is not None:
        yield accuracy_row(accuracy, "held-out questions with whole contexts", about.chance, "context", of=of)


def _comparable_numbers(each: Row, at: str, about: About) -> PublishedNumbers | None:
    """The paper's numbers, which count all gold answers."""
    return (
        published_numbers(about.cell, each["questions"], each["score"])
        if (each["golds"], at) == ("all", BEST)
        else None
    )


def _information_rows(last: Sequence[Row], about: About) -> Iterator[Row]:
    """mem = H(X) m, and the bound on m that differential privacy gives; nothing where H(X) cannot be estimated."""
    decisive = last[0]
    nats, questions = decisive["entropy"], {"questions": decisive["questions"]}
    if nats is None:
        return
    yield row("H(X)", questions, alone(nats, decisive["train_questions"]), "answer")
    value, low, high = (None if decisive[f"m{end}"] is None else nats * decisive[f"m{end}"] for end in ENDS)
    n = decisive["train_contexts"] + decisive["validation_contexts"]
    yield row("mem, nats", questions, Estimate(value, low, high, n), "context", 0.0)
    if about.epsilon is not None:
        yield row("epsilon / H(X)", {"epsilon": about.epsilon}, alone(about.epsilon / nats), "training")


def _best_validation_rows(found: Sequence[Row]) -> list[Row]:
    """The rows of the epoch whose success on whole held-out contexts is highest, the first of equals."""
    decisive = [each for each in found if each["golds"] == "one" and each["score"] == "exact_match"]
    decisive = [each for each in decisive if each["questions"] == decisive[0]["questions"]]
    known = [each for each in decisive if each["s_validation"] is not None]
    if not known:
        return []
    epoch = max(known, key=lambda each: each["s_validation"])["epoch"]
    return [each for each in found if each["epoch"] == epoch]


def _unanswered_rows(last: Sequence[Row]) -> Iterator[Row]:
    """The shares of held-out questions to which nothing was answered."""
    for name, contexts in (("unanswered_whole", "whole"), ("unanswered_corrupted", "corrupted")):
        value = last[0][name]
        questions = last[0]["validation_questions"] * last[0]["replicates"]
        yield row("unanswered", {"contexts": contexts}, alone(value, questions), "answer")


MEASURE = Measure("memorization", MEMORIZATION, plan, rows)
