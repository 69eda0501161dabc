"""The answer of models that are asked alone: the evidence in their summary, the rules, and the verdict in words.

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

from collections.abc import Iterator, Mapping

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.population import LEVEL, Population, population_beside_references
from tasks.audits.unique_feature.single_models.evidence import (
    ENOUGH,
    MISSED,
    PanelEvidence,
    Rank,
    asks_one_family,
    deciding_metrics,
    evaluates_single_models,
    has_references,
    reads_tables,
    reads_weights,
)
from tasks.contract.certificate import number_per_hundred
from tasks.contract.rules import Rule
from tasks.contract.summaries import p_in_words
from tasks.contract.ties import NOT_JUDGED, describe_ties, tie_rule
from tasks.contract.verdict import Verdict
from tasks.datasets.features import describe_feature

PARTLY = "partly memorised"
LOOK_ALIKES = 100  # of each part, which the advice asks for


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
BY_RANK = Rule[PanelEvidence](
    "memorised",
    "among its family the feature stands {place} (a test on one side, p at most {p})" + TOLD_APART,
    lambda evidence: evidence.rank.is_small and evidence.is_told_apart,
    ERROR % "called",
    scope="models that are asked alone",
    applies=asks_one_family,
)
BY_RANK_BESIDE = Rule[PanelEvidence](
    "memorised",
    "beside the references the feature stands {place_beside} among {all_beside} (a test on one side, p at most {p}), "
    "whatever its rank among the family" + TOLD_APART,
    lambda evidence: evidence.beside is not None and evidence.beside.is_small and evidence.is_told_apart,
    ERROR % "called_beside",
    scope="models that are asked beside references",
    applies=has_references,
)
BY_FIRST_LAYER = Rule[PanelEvidence](
    "memorised",
    "by the weights of the first layer the feature stands {place_beside} among {all_beside} (a test on one side, p at "
    "most {p}), whatever its rank among the family" + TOLD_APART,
    lambda evidence: evidence.beside is not None and evidence.beside.is_small and evidence.is_told_apart,
    ERROR % "called_beside",
    scope="models whose first layer is read",
    applies=reads_weights,
)
BY_PART = Rule[PanelEvidence](
    PARTLY,
    "the rank by which it is judged is as small, but that among the look-alikes of some part is not or was not asked "
    "for: the model knows this feature or one that shares a part with it, and the evidence does not tell which",
    lambda evidence: evidence.deciding_rank.is_small and not evidence.lacks_beside,
    PART_ERROR % "called_at_all",
    scope="models that are asked alone or beside references",
    applies=evaluates_single_models,
)
ALTERED = Rule[PanelEvidence](
    NOT_JUDGED,
    "pictures that were handed out twice got two answers, or could not be checked, or the table names so few labels "
    "that the accuracy its owner states gives as few in less than {missed} % of cases",
    lambda evidence: bool(evidence.describe_doubts()),
    scope="tables of outputs that an owner sent",
    applies=reads_tables,
)
BY_TIES = tie_rule("models that are asked alone or beside references", evaluates_single_models)
RULES = (
    BY_RANK,
    BY_RANK_BESIDE,
    BY_FIRST_LAYER,
    BY_PART,
    ALTERED,
    BY_TIES,
    Rule[PanelEvidence](
        "not seen",
        "no rank, among the family, beside references or by weights, has p of at most {p}, the upper limit of the push "
        "(97.5 %) lies below the smallest one that matters, and such a push would have been found in {enough} % of "
        "cases",
        lambda evidence: evidence.is_clear,
        scope="models that are asked alone or beside references",
        applies=evaluates_single_models,
    ),
)


def thresholds(config: UniqueFeature) -> Mapping[str, str]:
    family, beside = Population(config.family.count + 1), population_beside_references(config)
    judged = beside if deciding_metrics(config)[0] is not None else family
    return {
        "p": f"{LEVEL:g}",
        "place": describe_last_place(family),
        "called": number_per_hundred(family.last_called / family.size),
        "place_beside": describe_last_place(beside),
        "called_beside": number_per_hundred(beside.last_called / beside.size),
        "called_at_all": number_per_hundred(judged.last_called / judged.size),
        "all_beside": beside.describe(),
        "missed": f"{100 * MISSED:g}",
        "enough": f"{100 * ENOUGH:g}",
    }


def describe_last_place(population: Population) -> str:
    """Up to which place a feature is called."""
    last = population.last_called
    return f"at place {last:,} or before" if last else "so far in front as no place of so few is"


LIMITS = (
    "The rank is exact where the feature was drawn at random from its family; one that somebody chose may differ from "
    "it in more than having been trained on, so its p-value is as good as that likeness. Of an owner who returns "
    "outputs alone, altered ones can hide a memory, but accuse nobody. Not seen is not safe: one model shows a memory "
    "less often than pairs of trainings do, and another feature or place may show more."
)
BESIDE_LIMITS = (
    "The references must be models of the same kind that never saw the feature: how much is found rests on how like "
    "the model they are, but a model that was not trained on a drawn feature is called in 5 % whatever they are."
)
WEIGHT_LIMITS = (
    "The first layer shows what a training image left in pixels that few others ink: where all images ink the "
    "feature's place, it finds hardly more than the outputs do."
)
GUESSED = (
    "The order of the pictures follows from the run's seed (given.secret is empty), so an owner who tries seeds could "
    "have told which ones matter."
)

NAMED_FEATURE = "The feature itself was named by the one that asks and not drawn by both."


def panel_verdict(config: UniqueFeature, rule: Rule[PanelEvidence], evidence: PanelEvidence) -> Verdict:
    """The answer of this rule, with its evidence in words."""
    sentence = f"{rule.answer.capitalize()}: {describe_panel(config, evidence)}{describe_reason(rule, evidence)}."
    return Verdict(rule.answer, sentence, " ".join(panel_limits(config, evidence)), evidence.names)


def panel_limits(config: UniqueFeature, evidence: PanelEvidence) -> Iterator[str]:
    """What the answer does not say, and what the owner could have known."""
    yield LIMITS
    if evidence.beside is not None:
        yield BESIDE_LIMITS if evidence.beside.references else WEIGHT_LIMITS
    if evidence.key:
        yield f"The key of the pictures that were handed out has a SHA-256 that begins with {evidence.key}."
    given = config.given
    if given is None:
        return
    if given.outputs and not given.secret:
        yield GUESSED
    yield config.describe_draw()
    if given.nonce and not config.has_bound_glyph:
        yield NAMED_FEATURE


def describe_panel(config: UniqueFeature, evidence: PanelEvidence) -> str:
    """The feature's place among its family with p, and its push beside those of the others, in words."""
    rank, push = evidence.rank, evidence.push
    names = "" if config.given is None else config.given.describe
    size, own = rank.population.size, f" ({names})" if names else ""
    models = f"{rank.models} models together{own} answer" if rank.models > 1 else f"the model{own} answers"
    raised = "they raise" if rank.models > 1 else "it raises"
    towards = "the canary's label" if push.label is None else f"label {push.label}, which it favours most,"
    others = "" if push.others is None else " (95 % of these by {:.3g} to {:.3g})".format(*push.others)
    told = (
        f"asked about {describe_feature(config.asked_feature)} and {size - 1} others of its family, {models} to it as "
        f"number {rank.place} of {size} (rank {p_in_words(rank.p)}); {raised} the log odds of {towards} by "
        f"{push.value:.4g} nats more than the mean of the others{others}"
    )
    if evidence.beside is not None:
        told += f"; {describe_rank_beside(evidence.beside)}"
    return f"{told}{describe_parts(evidence.parts)}" if evidence.deciding_rank.is_small else told


def describe_parts(parts: tuple[Rank, ...]) -> str:
    """The places among the look-alikes of each part; empty where there are none."""
    if not parts:
        return ""
    places = [
        f"number {rank.place:,} of {rank.population.size:,} (p = {rank.p:.2g}) where part {number} differs"
        for number, rank in enumerate(parts, start=1)
    ]
    return f"; among look-alikes that share all parts with it but one, it is {' and '.join(places)}"


def describe_rank_beside(rank: Rank) -> str:
    """The rank beside references, or by the first layer, in words."""
    place = f"it ranks {rank.place:,} of {rank.population.describe()}"
    if not rank.references:
        return f"by the weights of the first layer {place}, {p_in_words(rank.p)}"
    return f"beside {rank.references} clean models {place} by the slopes of its pixels, {p_in_words(rank.p)}"


def describe_reason(rule: Rule[PanelEvidence], evidence: PanelEvidence) -> str:
    """What follows the evidence: why the answer is this one."""
    push = evidence.push
    if rule.answer == "memorised":
        return ""
    if rule is BY_PART:
        return f"; {describe_resemblance(evidence)}"
    if rule is ALTERED:
        return f"; but {evidence.describe_doubts()}"
    if rule is BY_TIES and evidence.tied is not None:
        return f"; but {describe_ties(evidence.tied)}"
    if rule.answer == "not seen":
        return f"; more than {push.upper:.4g} nats is unlikely"
    if evidence.lacks_beside:
        return "; the rank by which it is judged is missing: run the same command again"
    if evidence.rank.is_small:
        return ", by which alone it is judged: ask more models of the same data"
    if push.is_excluded:
        doubt = f"a push of {push.smallest:.2g} nats would have been found in {100 * push.power:.0f} % of cases"
    else:
        doubt = f"as much as {'any' if push.upper is None else f'{push.upper:.4g}'} nats cannot be excluded"
    return f"; {doubt}: ask more models of the same data"


def describe_resemblance(evidence: PanelEvidence) -> str:
    """Why the feature is not told from its look-alikes."""
    either = "so this feature or another that shares a part with it was trained on"
    if evidence.parts:
        return f"{either}, which may differ in part {' or '.join(map(str, evidence.differing_parts))}"
    return f"{either}: family.look_alikes={LOOK_ALIKES} asks about those, too"
