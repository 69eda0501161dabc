"""The verdict's sentences on models that are asked alone, for experts: ranks, pushes, reasons and limits."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.single_models.evidence import PanelEvidence, Rank
from tasks.contract.summaries import p_in_words
from tasks.contract.ties import describe_ties
from tasks.datasets.features import describe_feature

LOOK_ALIKES = 100  # of each part, which the advice asks for

LIMITS = (
    "The rank is exact where the feature was drawn at random from its family; one that somebody chose may differ from "
    "it in more than having been trained on, so its p-value is as good as that likeness. Of an owner who returns "
    "outputs alone, altered ones can hide a memory, but accuse nobody. “Not detected” does not mean safe: one model "
    "shows a memory less often than pairs of trainings do, and another feature or place may show more."
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


# The evidence as one sentence, without its end


def describe_panel(config: UniqueFeature, evidence: PanelEvidence) -> str:
    """The feature's place among its family with p, and its push compared with those of the others."""
    rank, push = evidence.rank, evidence.push
    names = "" if config.given is None else config.given.describe
    size, suffix = rank.population.size, f" ({names})" if names else ""
    models = f"{rank.models} models together{suffix} answer" if rank.models > 1 else f"the model{suffix} answers"
    raised = "they raise" if rank.models > 1 else "it raises"
    towards = "the canary's label" if push.label is None else f"label {push.label}, which it favours most,"
    spread = "" if push.others is None else " (95 % of these by {:.3g} to {:.3g})".format(*push.others)
    words = (
        f"asked about {describe_feature(config.asked_feature)} and {size - 1} others of its family, {models} to it as "
        f"number {rank.place} of {size} (rank {p_in_words(rank.p)}); {raised} the log odds of {towards} by "
        f"{push.value:.4g} nats more than the mean of the others{spread}"
    )
    if evidence.beside is not None:
        words += f"; {_describe_rank_beside(evidence.beside)}"
    return f"{words}{_describe_parts(evidence.parts)}" if evidence.deciding_rank.is_small else words


def _describe_parts(parts: tuple[Rank, ...]) -> str:
    """The places among the look-alikes of each part; empty if there are none."""
    if not parts:
        return ""
    places = [
        f"number {rank.place:,} of {rank.population.size:,} (p = {rank.p:.2g}) where part {number} differs"
        for number, rank in enumerate(parts, start=1)
    ]
    return f"; among look-alikes that share all parts with it but one, it is {' and '.join(places)}"


def _describe_rank_beside(rank: Rank) -> str:
    """The rank compared with references, or by the first layer."""
    ranked = f"it ranks {rank.place:,} of {rank.population.describe()}"
    if not rank.references:
        return f"by the weights of the first layer {ranked}, {p_in_words(rank.p)}"
    return f"beside {rank.references} clean models {ranked} by the slopes of its pixels, {p_in_words(rank.p)}"


# The ends of that sentence: why the answer is this one


def end_with_resemblance(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    """The parts by which the feature is not distinguished from its look-alikes."""
    either = "; so this feature or another that shares a part with it was trained on"
    if evidence.parts:
        return f"{either}, which may differ in part {' or '.join(map(str, evidence.differing_parts))}."
    return f"{either}: family.look_alikes={LOOK_ALIKES} asks about those, too."


def end_with_doubts(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    return f"; but {evidence.describe_doubts()}."


def end_with_ties(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    assert evidence.tied is not None
    return f"; but {describe_ties(evidence.tied)}."


def end_with_limit(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    return f"; more than {evidence.push.upper:.4g} nats is unlikely."


def end_with_gap(_config: UniqueFeature, evidence: PanelEvidence) -> str:
    """The reason why nothing is decided."""
    push = evidence.push
    if evidence.lacks_beside:
        return "; the rank by which it is judged is missing: run the same command again."
    if evidence.rank.is_small:
        return ", by which alone it is judged: ask more models of the same data."
    if push.is_excluded:
        doubt = f"a push of {push.smallest:.2g} nats would have been found in {100 * push.power:.0f} % of cases"
    else:
        doubt = f"as much as {'any' if push.upper is None else f'{push.upper:.4g}'} nats cannot be excluded"
    return f"; {doubt}: ask more models of the same data."


# The limits


def describe_limits(config: UniqueFeature, evidence: PanelEvidence | None) -> str:
    """The limits of the answer, and of what the owner could have known."""
    return LIMITS if evidence is None else " ".join(_list_limits(config, evidence))


def _list_limits(config: UniqueFeature, evidence: PanelEvidence) -> Iterator[str]:
    yield LIMITS
    if evidence.beside is not None:
        yield BESIDE_LIMITS if evidence.beside.references else WEIGHT_LIMITS
    if evidence.key:
        yield f"The key of the pictures that were handed out has a SHA-256 that begins with {evidence.key}."
    models = config.given
    if models is None:
        return
    if models.outputs and not models.secret:
        yield GUESSED
    yield config.describe_draw()
    if models.nonce and not config.has_bound_glyph:
        yield NAMED_FEATURE
