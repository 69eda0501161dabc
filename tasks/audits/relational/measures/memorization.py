"""How much more often are hidden answers given on training contexts than on held-out ones?

    r = share of correct answers on corrupted contexts, s = share on whole contexts
    m = r_train - r_validation

m measures memorization of the relation between a context and its answer, from 0 to 1: answers that are correct by
chance, from general knowledge or from the rest of the context are also given to held-out questions. If the entropy H(X)
of the answers can be estimated, mem = H(X) m in nats.

A model that only knows which answers are common in training is also correct more often on training contexts, because
answers are common in one part partly by chance (marginal memorisation, eq. 5). The verdict is therefore based on

    relational m = (r_train - c_train) - (r_validation - c_validation)

by exact match, where c is the rate at which the given answers match the gold answers of the part's other questions.

Bombari et al. 2022, section 4, eqs. 15 and 16. The intervals over contexts and relational m are ours.
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

# Epochs in the summary.
END = "end"
BEST = "best validation"
SCORES = ("exact_match", "f1")
GOLDS = {"one": "", "all": "_all"}  # which gold answers count -> suffix of the columns
CONTEXTS = {False: "s", True: "r"}  # whether contexts are corrupted -> symbol of the share of correct answers
COLUMNS = [f"{score}{suffix}" for score in SCORES for suffix in GOLDS.values()]
RELATIONAL = "relational_m"
PARTS = ("s_train", "s_validation", "r_train", "r_validation", "m")

# One row per epoch, subset of the questions, score, and choice of gold answers.
MEMORIZATION = pa.schema(
    [
        ("epoch", pa.int64()),  # null if the training is unknown
        ("questions", pa.string()),  # all, or those with a numeric answer
        ("score", pa.string()),
        ("golds", pa.string()),  # one: the same rule for both parts; all: as published
        *interval_fields(*PARTS),
        ("p_value", pa.float64()),  # of the hypothesis that m is not above 0
        # Only for exact match with one gold answer.
        *interval_fields(RELATIONAL),
        (f"{RELATIONAL}_p_value", pa.float64()),
        ("replicates", pa.int32()),
        ("train_questions", pa.int64()),
        ("train_contexts", pa.int64()),
        ("validation_questions", pa.int64()),
        ("validation_contexts", pa.int64()),
        ("unanswered_whole", pa.float64()),  # share of held-out questions without an answer
        ("unanswered_corrupted", pa.float64()),
        ("entropy", pa.float64()),  # H(X) of the gold training answers, in nats; null if there are too few
        ("train_loss", pa.float64()),  # mean over replicates
    ]
)


@dataclass(frozen=True)
class Resampling:
    """The data set of the questions, the number of resamples, and the seed."""

    data: Dataset
    resamples: int
    seed: int


@task(version=1, name="relational.memorization", gathers=True)
def memorization(config: Resampling, inputs: Inputs) -> pa.Table:
    """Estimate r, s and m by epoch (MEMORIZATION), averaged over replicates."""
    scores = pa.concat_tables(inputs)
    golds = _gold_answers(config.data)
    epochs = sorted({epoch for epoch in pc.unique(scores["epoch"]).to_pylist() if epoch is not None})
    rows = [
        row for epoch in epochs or [None] for row in _epoch_rows(epoch, _filter_epoch(scores, epoch), golds, config)
    ]
    return pa.Table.from_pylist(rows, MEMORIZATION)


def _gold_answers(data: Dataset) -> dict[str, Answer]:
    """Return the first gold answer of each question, keyed by question id."""
    return {id_: question.golds[0] for id_, question in load_questions(data).by_id.items()}


def _filter_epoch(scores: pa.Table, epoch: int | None) -> pa.Table:
    """Return the scores after this epoch, or all scores if the training is unknown (`epoch` is None)."""
    if epoch is None:
        return scores
    return scores.filter(pc.field("epoch") == epoch)


def _epoch_rows(
    epoch: int | None, scores: pa.Table, golds: Mapping[str, Answer], config: Resampling
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one epoch, numeric questions first."""
    subsets = {"numeric": scores.filter(pc.field("numeric")), "all": scores}
    if subsets["numeric"].num_rows == scores.num_rows:
        del subsets["all"]
    for name, subset in subsets.items():
        if not subset.num_rows:
            continue
        parts = {}
        for split in ("train", "validation"):
            parts[split] = _scores_by_context(subset.filter(pc.field("split") == split))
        results = contrasts(parts["train"].part, parts["validation"].part, config.resamples, config.seed)
        about = {
            "epoch": epoch,
            "questions": name,
            "replicates": len(pc.unique(subset["replicate"])),
            **{f"{split}_questions": len(scores_of_part.ids) for split, scores_of_part in parts.items()},
            **{f"{split}_contexts": len(scores_of_part.part.counts) for split, scores_of_part in parts.items()},
            **_unanswered_shares(subset),
            "entropy": entropy([golds[id_] for id_ in parts["train"].ids]),
            "train_loss": pc.mean(subset["train_loss"]).as_py(),
        }
        kinds = (results[: len(COLUMNS)], results[len(COLUMNS) + 1 : -1])
        relational = results[-1]
        for (score, counted), whole_contrast, corrupted in zip(itertools.product(SCORES, GOLDS), *kinds, strict=True):
            row_of = {**about, "score": score, "golds": counted, **_success_columns(whole_contrast, corrupted)}
            yield row_of | (_relational_columns(relational) if (score, counted) == ("exact_match", "one") else {})


@dataclass(frozen=True, eq=False)
class SplitScores:
    """Scores of one part summed by context (columns for whole contexts first), and the ids of its questions."""

    part: ContextSums
    ids: Sequence[str]


def _scores_by_context(scores: pa.Table) -> SplitScores:
    """Average scores over replicates and sum them by context. The last column belongs to relational m.

    Questions that lack answers on one kind of context, because a training run is missing, are left out.
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
    is_complete = ~np.isnan(means).any(axis=1)
    _, numbers = np.unique(contexts[is_complete].astype(str), return_inverse=True)
    return SplitScores(sum_by_context(means[is_complete], numbers), names[is_complete].tolist())


def _group_means(values: NDArray[np.float64], places: NDArray[np.integer], count: int) -> NDArray[np.float64]:
    """Return the mean of the values at each place, shape (count, columns). NaN for places without values."""
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, places, values)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.bincount(places, minlength=count)[:, None])


def _unanswered_shares(scores: pa.Table) -> dict[str, float | None]:
    """Return the shares of held-out questions without an answer."""
    held_out = scores.filter(pc.field("split") == "validation")
    shares: dict[str, float | None] = {}
    for name, corrupted in (("unanswered_whole", False), ("unanswered_corrupted", True)):
        answered = pc.mean(held_out.filter(pc.field("corrupted") == corrupted)["answered"]).as_py()
        shares[name] = None
        if answered is not None:
            shares[name] = 1.0 - answered
    return shares


def _success_columns(whole_contrast: Contrast, corrupted: Contrast) -> dict[str, float | None]:
    """Return the columns of s, r and m."""
    return {
        **interval_columns("s_train", whole_contrast.train),
        **interval_columns("s_validation", whole_contrast.validation),
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
    """Yield m, r and s at the last epoch, with the decisive m first, and m at the epoch with the best held-out
    accuracy.
    """
    table = tables.one(MEMORIZATION)
    if table is None or not table.num_rows:
        return
    table_rows = _drop_redundant_golds(table.to_pylist())
    last = [table_row for table_row in table_rows if table_row["epoch"] == table_rows[-1]["epoch"]]
    last.sort(key=lambda table_row: (table_row["questions"] != about.questions, table_row["golds"] != "one"))
    best = _best_validation_rows(table_rows)
    for table_row in last:
        if table_row[RELATIONAL] is not None:
            yield _relational_m_row(table_row)
    for table_row in last:
        yield _m_row(table_row, END, about)
    for table_row in best:
        yield _m_row(table_row, BEST, about)
    yield from _success_rows(last, END, about)
    yield from _learning_rows(last[0], about)
    if about.cell:
        yield from _success_rows(best, BEST, about)
    yield from _information_rows(last, about)
    if best and best[0]["epoch"] is not None:
        yield row("epoch of best validation", {}, alone(float(best[0]["epoch"])), "training")
    yield from _unanswered_rows(last)


def _drop_redundant_golds(table_rows: Sequence[Row]) -> list[Row]:
    """Drop the rows that use all gold answers if they do not differ from the rows that use one."""
    names = [name for name, _ in interval_fields(*PARTS)]
    is_different = any(
        one_gold_row[name] != all_golds_row[name]
        for one_gold_row, all_golds_row in itertools.pairwise(table_rows)
        if (one_gold_row["golds"], all_golds_row["golds"]) == ("one", "all")
        for name in names
    )
    golds = []
    for table_row in table_rows:
        if is_different or table_row["golds"] == "one":
            golds.append(table_row)
    return golds


def setting(table_row: Row, **more: Any) -> dict[str, Any]:
    """Return the setting of an estimate."""
    return {
        "questions": table_row["questions"],
        "score": table_row["score"].replace("_", " "),
        "golds": table_row["golds"],
        **more,
    }


def _relational_m_row(table_row: Row) -> Row:
    """Return the row of relational m with its interval over contexts, which decides the verdict."""
    n = table_row["train_contexts"] + table_row["validation_contexts"]
    m = column_estimate(table_row, RELATIONAL, n)
    return row("relational m", setting(table_row, at=END), m, "context", 0.0, table_row[f"{RELATIONAL}_p_value"])


def _m_row(table_row: Row, moment: str, about: About) -> Row:
    """Return the row of m with its interval over contexts."""
    n = table_row["train_contexts"] + table_row["validation_contexts"]
    m = column_estimate(table_row, "m", n)
    paper = _comparable_numbers(table_row, moment, about)
    return row("m", setting(table_row, at=moment), m, "context", 0.0, table_row["p_value"], paper and paper.m)


def _success_rows(table_rows: Sequence[Row], moment: str, about: About) -> Iterator[Row]:
    for table_row in table_rows:
        paper = _comparable_numbers(table_row, moment, about)
        for name in PARTS[:-1]:
            kind, split = name.split("_")
            value = column_estimate(table_row, name, table_row[f"{split}_contexts"])
            published = None if paper is None else getattr(paper, name)
            yield row(kind, setting(table_row, split=split, at=moment), value, "context", published=published)


def _learning_rows(decisive: Row, about: About) -> Iterator[Row]:
    """Yield the accuracy on held-out questions with whole contexts, compared with that of the best constant answer."""
    accuracy = column_estimate(decisive, "s_validation", decisive["validation_contexts"])
    subject = "system that answered"
    if decisive["epoch"] is not None:
        subject = MODELS
    if accuracy.value is not None:
        yield accuracy_row(
            accuracy, "held-out questions with whole contexts", about.chance, "context", model_name=subject
        )


def _comparable_numbers(table_row: Row, moment: str, about: About) -> PublishedNumbers | None:
    """Return the numbers published in the paper, which count all gold answers."""
    if (table_row["golds"], moment) != ("all", BEST):
        return None
    return published_numbers(about.cell, table_row["questions"], table_row["score"])


def _information_rows(last: Sequence[Row], about: About) -> Iterator[Row]:
    """Yield mem = H(X) m, and the bound on m under differential privacy. Yields nothing if H(X) cannot be estimated."""
    decisive = last[0]
    nats = decisive["entropy"]
    questions = {"questions": decisive["questions"]}
    if nats is None:
        return
    yield row("H(X)", questions, alone(nats, decisive["train_questions"]), "answer")
    value, low, high = (None if decisive[f"m{end}"] is None else nats * decisive[f"m{end}"] for end in ENDS)
    n = decisive["train_contexts"] + decisive["validation_contexts"]
    yield row("mem, nats", questions, Estimate(value, low, high, n), "context", 0.0)
    if about.epsilon is not None:
        yield row("epsilon / H(X)", {"epsilon": about.epsilon}, alone(about.epsilon / nats), "training")


def _best_validation_rows(table_rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the epoch with the best accuracy on whole held-out contexts."""
    with_accuracy = []
    subset = None
    for table_row in table_rows:
        if (table_row["golds"], table_row["score"]) != ("one", "exact_match"):
            continue
        if subset is None:
            subset = table_row["questions"]
        if table_row["questions"] == subset and table_row["s_validation"] is not None:
            with_accuracy.append(table_row)
    if not with_accuracy:
        return []
    epoch = max(with_accuracy, key=lambda table_row: table_row["s_validation"])["epoch"]
    return [table_row for table_row in table_rows if table_row["epoch"] == epoch]


def _unanswered_rows(last: Sequence[Row]) -> Iterator[Row]:
    """Yield the shares of held-out questions without an answer."""
    for name, contexts in (("unanswered_whole", "whole"), ("unanswered_corrupted", "corrupted")):
        value = last[0][name]
        questions = last[0]["validation_questions"] * last[0]["replicates"]
        yield row("unanswered", {"contexts": contexts}, alone(value, questions), "answer")


MEASURE = Measure("memorization", MEMORIZATION, plan, rows)
