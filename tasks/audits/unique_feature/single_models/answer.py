"""The answer of models that are asked alone: the rules that decide, and the verdict and certificate that follow.

It rests on the feature's rank among its family, beside references where there are some, or by the weights of the
models' first layer where these are read, on its ranks among its look-alikes, which tell it from features that share a
part with it, and on how far it pushes towards a label beside the others. Several models are one panel. A rank calls 5 %
of the models that never saw the feature: exactly where it was drawn from those it is ranked among; of one that somebody
chose, to the extent that it resembles the others.

The push is how much more the feature raises the log odds of a label than the others of its family do, in nats. Where
the label is unknown, it is the one that the feature favours most, and the others are given the same choice. Log odds
are used because log P of a label that models are nearly certain of cannot rise, however much is memorised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.population import LEVEL, Population, population_beside_references
from tasks.audits.unique_feature.single_models import plain_words as plain
from tasks.audits.unique_feature.single_models import sentences
from tasks.audits.unique_feature.single_models.evidence import (
    ENOUGH,
    MISSED,
    PanelEvidence,
    asks_one_family,
    deciding_metrics,
    evaluates_single_models,
    has_references,
    read_panel_evidence,
    reads_tables,
    reads_weights,
)
from tasks.contract.answering import Answering
from tasks.contract.certificate import number_per_hundred
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import index_rows
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import NOT_ASSESSABLE

PARTLY = "partly memorised"

TOLD_APART = (
    ", and so it does among the look-alikes that differ from it in one part alone, for every part (p at most {p} each)"
)
ERROR = (
    "Of 100 models that never saw the feature, at most about {%s} are called so, even where one that differs from it "
    "in one part alone was trained on: exactly if it was drawn at random from those that it is ranked among; for a "
    "feature that somebody chose, to the extent that it resembles the others."
)
PART_ERROR = (
    "Of 100 models that saw neither the feature nor one that shares a part with it, about {%s} are called so or "
    "memorised."
)


def thresholds(config: UniqueFeature) -> Mapping[str, str]:
    family, references = Population(config.family.count + 1), population_beside_references(config)
    judged = references if deciding_metrics(config)[0] is not None else family
    return {
        "p": f"{LEVEL:g}",
        "place": _describe_last_place(family),
        "called": number_per_hundred(family.last_called / family.size),
        "place_beside": _describe_last_place(references),
        "called_beside": number_per_hundred(references.last_called / references.size),
        "called_at_all": number_per_hundred(judged.last_called / judged.size),
        "all_beside": references.describe(),
        "missed": f"{100 * MISSED:g}",
        "enough": f"{100 * ENOUGH:g}",
    }


def _describe_last_place(population: Population) -> str:
    """The last place at which a feature is called."""
    last = population.last_called
    return f"at place {last:,} or before" if last else "so far in front as no place of so few is"


def accuse(
    when: str,
    holds: Callable[[PanelEvidence], bool],
    rate: str,
    scope: str,
    applies: Callable[[UniqueFeature], bool],
) -> Case[PanelEvidence]:
    """A case that accuses; `rate` names the number in its error rate."""
    return Case("memorised", when + TOLD_APART, holds, ERROR % rate, scope, applies, steps=plain.TREAT_AS_DISCLOSED)


def _is_small_beside(evidence: PanelEvidence) -> bool:
    """Whether the rank that replaces the family's is small, and the feature is distinguished from its look-alikes."""
    return evidence.beside is not None and evidence.beside.is_small and evidence.is_told_apart


NO_ANSWER: dict[str, Any] = {
    "explain": partial(plain.explain_place, conclusion=plain.NO_ANSWER),
    "steps": plain.ASK_OWNER,
}
RULES = Rules[PanelEvidence](
    (
        accuse(
            "among its family the feature stands {place} (a test on one side, p at most {p})",
            lambda evidence: evidence.rank.is_small and evidence.is_told_apart,
            "called",
            "models that are asked alone",
            asks_one_family,
        ),
        accuse(
            "beside the references the feature stands {place_beside} among {all_beside} (a test on one side, p at most "
            "{p}), whatever its rank among the family",
            _is_small_beside,
            "called_beside",
            "models that are asked beside references",
            has_references,
        ),
        accuse(
            "by the weights of the first layer the feature stands {place_beside} among {all_beside} (a test on one "
            "side, p at most {p}), whatever its rank among the family",
            _is_small_beside,
            "called_beside",
            "models whose first layer is read",
            reads_weights,
        ),
        Case(
            PARTLY,
            "the rank by which it is judged is as small, but that among the look-alikes of some part is not or was not "
            "asked for: the model knows this feature or one that shares a part with it, and the evidence does not tell "
            "which",
            lambda evidence: evidence.deciding_rank.is_small and not evidence.lacks_beside,
            PART_ERROR % "called_at_all",
            because=sentences.end_with_resemblance,
            explain=partial(plain.explain_place, conclusion=plain.SHARED_PART),
            steps=plain.advise_look_alikes,
        ),
        Case(
            NOT_ASSESSABLE,
            "pictures that were handed out twice got two answers, or could not be checked, or the table names so few "
            "labels that the accuracy its owner states gives as few in less than {missed} % of cases",
            lambda evidence: bool(evidence.describe_doubts()),
            scope="tables of outputs that an owner sent",
            applies=reads_tables,
            because=sentences.end_with_doubts,
            **NO_ANSWER,
        ),
        tie_rule(describe=None, rows=None, because=sentences.end_with_ties, **NO_ANSWER),
        Case(
            "not detected",
            "no rank, among the family, beside references or by weights, has p of at most {p}, the upper limit of the "
            "push (97.5 %) lies below the smallest one that matters, and such a push would have been found in {enough} "
            "% of cases",
            lambda evidence: evidence.is_clear,
            because=sentences.end_with_limit,
            explain=partial(plain.explain_place, conclusion=plain.CLEARED),
            steps=plain.KEEP_PAGE,
        ),
        undecided(
            because=sentences.end_with_gap,
            explain=partial(plain.explain_place, conclusion=plain.OPEN),
            steps=plain.advise_more_models,
        ),
    ),
    thresholds,
)


def read(config: UniqueFeature, summary: pa.Table) -> PanelEvidence | None:
    return read_panel_evidence(config, index_rows(summary))


ANSWERING = Answering[PanelEvidence](
    scope="models that are asked alone or beside references",
    applies=evaluates_single_models,
    asked=lambda config, _evidence: plain.ask_question(config),
    rules=RULES,
    read=read,
    unread=lambda _config: "no model has been asked yet.",
    limits=sentences.describe_limits,
    describe=sentences.describe_panel,
    rows=lambda evidence: evidence.names,
    explain=plain.explain_place,
    line=plain.draw_place,
    findings=plain.name_models,
)
