"""The verdict's sentences on single models, for experts: ranks, pushes, reasons and limits."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.single_models.evidence import PanelEvidence, Rank
from tasks.contract.conditions import Condition, require
from tasks.contract.summaries import p_in_words
from tasks.contract.ties import describe_ties
from tasks.datasets.features import describe_feature

PARTLY = "partly memorised"
LOOK_ALIKES = 100  # number of look-alikes per part that the advice recommends

LIMITS = (
    "An owner who alters returned outputs can hide a memory, but cannot cause a false accusation. Not detected does "
    "not mean safe: the audit of one model detects less than an audit that trains its own models, and another feature "
    "or position may reveal more."
)
RESEMBLANCE = require(
    "the feature was drawn at random from the features that it is compared with, or resembles them; this matters "
    "because an unusual feature may stand out without having been memorised",
    "the auditor",
    "memorised",
    PARTLY,
)
REFERENCE_LIMITS = (
    "The more the reference models resemble the model, the more is detected; whatever they are, a model that was not "
    "trained on a drawn feature is called in 5 % of cases."
)
UNSEEN_BY_REFERENCES = require(
    "the reference models are of the same kind and never saw the feature", "the owner of the reference models"
)
WEIGHT_LIMITS = (
    "The first layer shows what a training image left in pixels that are blank in most other images. If all images "
    "have ink there, the weights detect little more than the outputs do."
)
GUESSED = (
    "The order of the images follows from the run's seed (given.secret is empty), so an owner who tries seeds could "
    "have found out which images matter."
)

NAMED_FEATURE = "The auditor alone chose the feature; it was not drawn by both parties."


# The evidence as one sentence, without its ending


def describe_panel(config: UniqueFeature, evidence: PanelEvidence) -> str:
    """Describe the feature's place among its family with p, and its push compared with those of the others."""
    rank = evidence.rank
    push = evidence.push
    size = rank.population.size
    names = "" if config.given is None else config.given.describe
    suffix = f" ({names})" if names else ""
    if rank.models == 1:
        response = f"the model{suffix} ranks"
    else:
        response = f"{rank.models} models together{suffix} rank"
    if push.label is None:
        label = "the canary's label"
    else:
        label = f"label {push.label}, the favoured one,"
    spread = ""
    if push.family_range is not None:
        low, high = (round(bound, 9) + 0.0 for bound in push.family_range)  # sums differ by 1e-16 between processors
        spread = f" (95 % of the others: {low:.3g} to {high:.3g})"
    words = (
        f"{response} {describe_feature(config.asked_feature)} at place {rank.position} of {size} in its family "
        f"({p_in_words(rank.p)}); the log odds of {label} rise by {push.value:.4g} nats more than the mean of the "
        f"others{spread}"
    )
    if evidence.overriding_rank is not None:
        words += f"; {_describe_overriding_rank(evidence.overriding_rank)}"
    if evidence.deciding_rank.is_small:
        words += _describe_parts(evidence.parts)
    return words


def _describe_parts(parts: tuple[Rank, ...]) -> str:
    """Describe the places among the look-alikes of each part. Returns an empty string if there are none."""
    if not parts:
        return ""
    places = []
    for number, rank in enumerate(parts, start=1):
        places.append(f"{rank.position:,} of {rank.population.size:,} (p = {rank.p:.2g}) if part {number} differs")
    return f"; among look-alikes that differ in one part, its place is {' and '.join(places)}"


def _describe_overriding_rank(rank: Rank) -> str:
    """Describe the rank compared with references, or by the first layer."""
    position = f"its place is {rank.position:,} of {rank.population.describe()}"
    if not rank.references:
        return f"by the weights of the first layer {position}, {p_in_words(rank.p)}"
    return f"by its slopes, compared with {rank.references} reference models, {position}, {p_in_words(rank.p)}"


# The endings of that sentence: the reason for the answer


def end_with_resemblance(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    """Name the parts by which the feature is not distinguished from its look-alikes."""
    conclusion = "; the training data contained this feature or another that shares a part with it"
    if evidence.parts:
        return f"{conclusion}: part {' or '.join(map(str, evidence.differing_parts))} may differ."
    return f"{conclusion}. To distinguish them, set family.look_alikes={LOOK_ALIKES}."


def end_with_doubts(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    return f"; but {evidence.describe_doubts()}."


def end_with_ties(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    assert evidence.tied is not None
    return f"; but {describe_ties(evidence.tied)}."


def end_with_limit(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    return f"; more than {evidence.push.upper:.4g} nats is unlikely."


def end_with_gap(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    """State why nothing is decided."""
    push = evidence.push
    if evidence.lacks_overriding_rank:
        return "; the deciding rank is missing: run the same command again."
    if evidence.rank.is_small:
        return ", and that rank alone decides: audit more models of the same data."
    if push.is_excluded:
        doubt = f"a push of {push.smallest:.2g} nats would have been found in only {100 * push.power:.0f} % of cases"
    elif push.upper is None:
        doubt = "no push can be excluded"
    else:
        doubt = f"a push of up to {push.upper:.4g} nats cannot be excluded"
    return f"; {doubt}: audit more models of the same data."


# The limits


def describe_limits(config: UniqueFeature, evidence: PanelEvidence | None) -> str:
    """State the limits of the answer, and what the owner could have known."""
    if evidence is None:
        return LIMITS
    return " ".join(_list_limits(config, evidence))


def list_conditions(_config: UniqueFeature, evidence: PanelEvidence | None) -> Iterator[Condition]:
    if evidence is not None and evidence.overriding_rank is not None and evidence.overriding_rank.references:
        yield UNSEEN_BY_REFERENCES
    yield RESEMBLANCE


def _list_limits(config: UniqueFeature, evidence: PanelEvidence) -> Iterator[str]:
    yield LIMITS
    if evidence.overriding_rank is not None:
        if evidence.overriding_rank.references:
            yield REFERENCE_LIMITS
        else:
            yield WEIGHT_LIMITS
    if evidence.key:
        yield f"The SHA-256 of the key of the images that were handed out begins with {evidence.key}."
    models = config.given
    if models is None:
        return
    if models.outputs and not models.secret:
        yield GUESSED
    yield config.describe_draw()
    if models.nonce and not config.has_bound_glyph:
        yield NAMED_FEATURE
