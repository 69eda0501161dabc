"""The verdict on single models: the rules that decide, and the verdict and certificate that follow.

The evidence consists of the rank of the feature among its family, compared with references, or by the weights of the
first layer; its ranks among its look-alikes, which distinguish it from features that share a part with it; and its push
towards a label. Several models are evaluated as one panel. A rank calls 5 % of the models that never saw the feature:
exactly 5 % for a drawn feature, and about 5 % for a chosen feature if it resembles the others.

The push is how much more the feature raises the log odds of a label than the others of its family do, in nats. If the
label is unknown, it is the one that the feature favours most, and the others may choose their label in the same way.
Log odds are used because log P of a label cannot rise if the models are nearly certain of it, however much is
memorised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.population import LEVEL, Population, population_by_slopes
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

DISTINGUISHED = (
    ", and its place among the look-alikes that differ from it in one part is as significant for every part (p at most "
    "{p} each)"
)
ERROR = (
    "Of 100 models that never saw the feature, at most about {%s} are called memorised, even if they saw one that "
    "differs in a single part."
)
EXACTNESS = (
    "The error rate of “memorised” is exact if the feature was drawn at random; for a chosen feature, it holds if the "
    "feature resembles the others."
)
PART_ERROR = (
    "Of 100 models that saw neither the feature nor one that shares a part with it, about {%s} are called memorised or "
    "partly memorised."
)


def thresholds(config: UniqueFeature) -> Mapping[str, str]:
    family = Population(config.family.count + 1)
    references = population_by_slopes(config)
    if deciding_metrics(config)[0] is not None:
        judged = references
    else:
        judged = family
    return {
        "p": f"{LEVEL:g}",
        "place": _describe_last_place(family),
        "called": number_per_hundred(family.last_called / family.size),
        "overriding_place": _describe_last_place(references),
        "overriding_called": number_per_hundred(references.last_called / references.size),
        "called_at_all": number_per_hundred(judged.last_called / judged.size),
        "overriding_population": references.describe(),
        "missed": f"{100 * MISSED:g}",
        "enough": f"{100 * ENOUGH:g}",
    }


def _describe_last_place(population: Population) -> str:
    """Describe the last place at which a feature is called."""
    last = population.last_called
    if last:
        return f"at place {last:,} or better"
    return "at a place that a family of this size does not have"


def accuse(
    condition: str,
    holds: Callable[[PanelEvidence], bool],
    rate: str,
    scope: str,
    applies: Callable[[UniqueFeature], bool],
) -> Case[PanelEvidence]:
    """Return a case that accuses. `rate` names the number that its error rate contains."""
    return Case(
        "memorised",
        condition + DISTINGUISHED,
        holds,
        ERROR % rate,
        scope,
        applies,
        steps=plain.TREAT_AS_DISCLOSED,
        explain=plain.explain_memory,
        further_error=EXACTNESS,
    )


def _is_overriding_rank_small(evidence: PanelEvidence) -> bool:
    """Return whether the rank that replaces the family's is small, and the feature is distinguished from its
    look-alikes.
    """
    return evidence.overriding_rank is not None and evidence.overriding_rank.is_small and evidence.is_told_apart


NO_ANSWER: dict[str, Any] = {
    "explain": partial(plain.explain_place, conclusion=plain.NO_ANSWER),
    "steps": plain.ASK_OWNER,
}
RULES = Rules[PanelEvidence](
    (
        accuse(
            "the feature ranks {place} in its family (one-sided test, p at most {p})",
            lambda evidence: evidence.rank.is_small and evidence.is_told_apart,
            "called",
            "single models without references",
            asks_one_family,
        ),
        accuse(
            "compared with the references, the feature ranks {overriding_place} among {overriding_population} "
            "(one-sided test, p at most {p}), whatever its rank in the family",
            _is_overriding_rank_small,
            "overriding_called",
            "single models with references",
            has_references,
        ),
        accuse(
            "by the weights of the first layer, the feature ranks {overriding_place} among {overriding_population} "
            "(one-sided test, p at most {p}), whatever its rank in the family",
            _is_overriding_rank_small,
            "overriding_called",
            "single models judged by their first layer",
            reads_weights,
        ),
        Case(
            sentences.PARTLY,
            "the deciding rank is as significant, but the rank among the look-alikes of some part is not, or was not "
            "computed: the model knows this feature or one that shares a part with it, and the evidence does not show "
            "which",
            lambda evidence: evidence.deciding_rank.is_small and not evidence.lacks_overriding_rank,
            PART_ERROR % "called_at_all",
            because=sentences.end_with_resemblance,
            explain=plain.explain_shared_part,
            steps=plain.advise_look_alikes,
        ),
        Case(
            NOT_ASSESSABLE,
            "images that were handed out twice received different outputs or could not be checked, or the table names "
            "so few correct labels that the stated accuracy would produce as few in less than {missed} % of cases",
            lambda evidence: bool(evidence.describe_doubts()),
            scope="tables of outputs that an owner returned",
            applies=reads_tables,
            because=sentences.end_with_doubts,
            **NO_ANSWER,
        ),
        tie_rule(describe=None, rows=None, because=sentences.end_with_ties, **NO_ANSWER),
        Case(
            "not detected",
            "no rank has p of at most {p} (in the family, compared with references, or by weights), the 97.5 % upper "
            "limit of the push lies below the smallest relevant push, and that push would have been found in {enough} "
            "% of cases",
            lambda evidence: evidence.is_clear,
            "A memory of the smallest relevant size would have been found in at least {enough} of 100 audits.",
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
    scope="single models",
    applies=evaluates_single_models,
    asked=lambda config, _evidence: plain.ask_question(config),
    rules=RULES,
    read=read,
    unread=lambda _config: "no model has been evaluated yet.",
    limits=sentences.describe_limits,
    conditions=sentences.list_conditions,
    describe=sentences.describe_panel,
    rows=lambda evidence: evidence.names,
    explain=plain.explain_place,
    line=plain.draw_place,
    findings=plain.name_models,
    examined=plain.name_examined,
)
