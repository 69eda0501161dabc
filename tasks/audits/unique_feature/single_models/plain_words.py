"""The answer on models that are asked alone for readers without a machine-learning background."""

from __future__ import annotations

from dataclasses import replace

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.given_models import Given, ModelFiles
from tasks.audits.unique_feature.questions import Panel
from tasks.audits.unique_feature.single_models.evidence import PanelEvidence
from tasks.audits.unique_feature.single_models.sentences import LOOK_ALIKES
from tasks.contract.certificate import Boundary, Finding, NumberLine
from tasks.datasets.features import Feature, Picture, Words, describe_feature

# Conclusions that follow the place

CLEARED = " A push that matters would have shown."
SHARED_PART = " But one that shares a part with it would do the same, and it is not told from those."
OPEN = " A memory may be there all the same and not show."
NO_ANSWER = " But what was sent back, or what the model says, does not allow an answer."

# Next steps

TREAT_AS_DISCLOSED = (
    "Treat it as disclosed to whoever can use the model, and tell those who answer for the data.",
    "Remove or mask it in the training data, train anew, and ask the new model in the same way.",
)
KEEP_PAGE = (
    "Keep this page with the files that it names.",
    "Ask in the same way for every other feature and place that you fear, and again when the model changes.",
)
ASK_OWNER = (
    "Ask the owner how the pictures were prepared, and for a table of what the model says of each of them, unrounded "
    "and in single precision; audit that.",
)


def advise_look_alikes(config: UniqueFeature, _evidence: PanelEvidence) -> tuple[str, ...]:
    look_alikes = f"Ask about its look-alikes, too: family.look_alikes={LOOK_ALIKES}."
    return (
        *(() if config.family.look_alikes else (look_alikes,)),
        "Ask the owner to search the training data for this feature and for those that share a part with it.",
    )


def advise_more_models(config: UniqueFeature, _evidence: PanelEvidence | None = None) -> tuple[str, ...]:
    return (
        "Ask several models of the same data together, such as the folds of a cross-validation: "
        f"{_name_more_models(config)}.",
        "If you have the data and the training procedure, train pairs: that finds more.",
    )


def _name_more_models(config: UniqueFeature) -> str:
    """The setting that evaluates several models."""
    match config.single_models:
        case Given(source=ModelFiles()):
            return "given.models=fold0.pt,fold1.pt,fold2.pt"
        case Given():
            return "given.outputs=fold0.csv,fold1.csv,fold2.csv"
        case Panel(seeds=seeds):
            return f"seeds={3 * seeds}"
    raise AssertionError("pairs are compared, not asked alone")


# The finding


def ask_question(config: UniqueFeature) -> str:
    models = "Does a model know" if config.given is not None else "Do models trained on these data know"
    return f"{models} {describe_feature(config.asked_feature)} from the training data?"


def name_models(config: UniqueFeature, _evidence: PanelEvidence, first: Finding) -> tuple[Finding, ...]:
    """The finding with third-party models as its target."""
    return (first if config.given is None else replace(first, target=config.given.describe),)


def explain_place(config: UniqueFeature, evidence: PanelEvidence, conclusion: str = "") -> str:
    """The place of the feature without statistical terms, and the conclusion."""
    rank = evidence.deciding_rank
    size = rank.population.size
    models = "the model" if rank.models == 1 else f"{rank.models} models together"
    passed = f"{size - rank.place:,} of the {size - 1:,} others" if rank.place > 1 else f"all {size - 1:,} others"
    among = f"{size:,} {family_noun(config.asked_feature)}"
    comparison = f"Asked about {among}"
    if rank.references:
        comparison = f"Beside {rank.references} clean models, and among {among}"
    chance = 1000 * rank.p
    number = f"about {chance:.0f}" if chance >= 1 else "fewer than 1"
    return (
        f"{comparison}, {models} singled out this one more than {passed}; of 1,000 models that never saw it {number} "
        f"would stand so far in front.{conclusion}"
    )


def family_noun(feature: Feature) -> str:
    """The noun for members of the feature's family."""
    return "names" if isinstance(feature, Words) else "pictures" if isinstance(feature, Picture) else "signs"


def draw_place(config: UniqueFeature, evidence: PanelEvidence) -> NumberLine:
    """The place on a line, and from which one on the feature is called."""
    rank = evidence.deciding_rank
    size, last = rank.population.size, rank.population.last_called
    return NumberLine(
        f"place of {describe_feature(config.asked_feature)} among {size:,}, 1 for the one that is singled out most",
        rank.place,
        null=(size + 1) / 2,
        null_words="the middle: its place on average, where nothing is memorised",
        usual=(last + 1, size) if last else None,
        boundaries=(Boundary(last, f"memorised, at least in part, at place {last:,} and before"),) if last else (),
        logarithmic=True,
    )
