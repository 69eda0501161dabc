"""The verdict on single models for readers without a machine-learning background."""

from __future__ import annotations

from dataclasses import replace

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.given_models import Given, ModelFiles
from tasks.audits.unique_feature.questions import Panel
from tasks.audits.unique_feature.single_models.evidence import PanelEvidence
from tasks.audits.unique_feature.single_models.sentences import LOOK_ALIKES
from tasks.contract.certificate import NOT_ENOUGH, Boundary, Finding, NumberLine, state_rarity
from tasks.contract.examined_models import describe_files, describe_tables, describe_trained
from tasks.datasets.features import Picture, Words, describe_feature

# Conclusions after the place

CLEARED = " This is no sign of memory; a memory of relevant size would probably have been detected."
OPEN = f" {NOT_ENOUGH}"
NO_ANSWER = " The outputs do not allow an answer: they are inconsistent, constant or rounded, or could not be checked."

# Next steps

TREAT_AS_DISCLOSED = (
    "Treat the feature as disclosed to everyone who can use the model, and inform whoever is responsible for the data.",
    "Remove or mask the feature in the training data, train again, and audit the new model in the same way.",
)
KEEP_PAGE = (
    "Keep this page together with the files that it names.",
    "Repeat the audit for every other feature and position that concerns you, and whenever the model changes.",
)
ASK_OWNER = (
    "Ask the owner how the images were prepared, and for a table with the unrounded outputs for every image in single "
    "precision. Then audit that table.",
)


def advise_look_alikes(config: UniqueFeature, _evidence: PanelEvidence) -> tuple[str, ...]:
    search = "Ask the owner to search the training data for this feature and for features that share a part with it."
    if config.family.look_alikes:
        return (search,)
    look_alikes = (
        f"Compare the feature also with {LOOK_ALIKES} others that differ from it in one part, for each part "
        f"(`family.look_alikes={LOOK_ALIKES}`)."
    )
    return (look_alikes, search)


def advise_more_models(config: UniqueFeature, _evidence: PanelEvidence | None = None) -> tuple[str, ...]:
    return (
        "Audit at least three models of the same data together, such as the folds of a cross-validation "
        f"(`{_name_more_models(config)}`).",
        "If you have the data and the training procedure, train pairs of models, which detects more "
        "(`question=pairs`).",
    )


def _name_more_models(config: UniqueFeature) -> str:
    """Return the setting that evaluates several models."""
    match config.single_models:
        case Given(source=ModelFiles()):
            return "given.models=fold0.pt,fold1.pt,fold2.pt"
        case Given():
            return "given.outputs=fold0.csv,fold1.csv,fold2.csv"
        case Panel(seeds=seeds):
            return f"seeds={3 * seeds}"
    raise AssertionError("pairs of models are not single models")


# The finding


def ask_question(config: UniqueFeature) -> str:
    feature = describe_feature(config.asked_feature)
    if config.given is None:
        return f"Do models trained on these data reveal that the data contain {feature}?"
    return f"Does the model reveal that its training data contained {feature}?"


def name_examined(config: UniqueFeature) -> str:
    """Name the models that were examined: trained by the audit, or given ones."""
    match config.single_models:
        case Panel(seeds=seeds):
            return describe_trained(seeds)
        case Given() as question if question.models:
            return describe_files([model.path for model in question.models])
        case Given() as question:
            return describe_tables([table.path for table in question.outputs])
    return ""


def name_models(config: UniqueFeature, _evidence: PanelEvidence, first: Finding) -> tuple[Finding, ...]:
    """Return the finding with third-party models as its target."""
    return (first if config.given is None else replace(first, target=config.given.describe),)


def explain_memory(config: UniqueFeature, evidence: PanelEvidence, conclusion: str = "") -> str:
    """Explain that the model knows the feature, and the place that shows it."""
    finding = f"{_name_subject(evidence)} {describe_feature(config.asked_feature)}"
    return f"{finding}. {explain_place(config, evidence, conclusion)}"


def explain_shared_part(config: UniqueFeature, evidence: PanelEvidence) -> str:
    """Explain that the model knows the feature or one that shares a part with it."""
    feature = describe_feature(config.asked_feature)
    noun = family_noun(config).removesuffix("s")
    return (
        f"{_name_subject(evidence)} {feature}, or another {noun} that shares a part with it; the audit does not show "
        f"which. This is what “partly memorised” means, not that half of the {noun} was memorised. "
        f"{explain_place(config, evidence)}"
    )


def _name_subject(evidence: PanelEvidence) -> str:
    return "The model recognises" if evidence.deciding_rank.models == 1 else "The models recognise"


def explain_place(config: UniqueFeature, evidence: PanelEvidence, conclusion: str = "") -> str:
    """Explain the finding and the place of the feature without statistical terms, with a conclusion."""
    rank = evidence.deciding_rank
    other_count = rank.population.size - 1
    feature = describe_feature(config.asked_feature)
    references = ""
    if rank.references:
        references = f"Compared with {rank.references} models that never saw {feature}, "
    if rank.models == 1:
        response = "the model responds"
    else:
        response = f"the {rank.models} models together respond"
    if rank.position == 1:
        exceeded = f"all {other_count:,}"
    else:
        exceeded = f"{other_count + 1 - rank.position:,} of {other_count:,}"
    comparison = f"{references}{response} to {feature} more strongly than to {exceeded} similar {family_noun(config)}."
    rarity = state_rarity(rank.p, "models that never saw it", "respond as strongly")
    return f"{comparison[0].upper()}{comparison[1:]} {rarity}{conclusion}"


def family_noun(config: UniqueFeature) -> str:
    """Return the noun for members of the feature's family."""
    match config.asked_feature:
        case Words():
            return "names"
        case Picture():
            return "images"
        case _:
            return "signs"


def draw_place(config: UniqueFeature, evidence: PanelEvidence) -> NumberLine:
    """Draw the place on a line, with the last place at which the feature is called."""
    rank = evidence.deciding_rank
    size = rank.population.size
    last = rank.population.last_called
    usual = None
    boundaries: tuple[Boundary, ...] = ()
    if last:
        usual = (last + 1, size)
        words = f"up to place {last:,}: memorised, or partly memorised (this feature or one that shares a part with it)"
        boundaries = (Boundary(last, words),)
    return NumberLine(
        f"place of {describe_feature(config.asked_feature)} among {size:,} similar {family_noun(config)} (1: the "
        "strongest response)",
        rank.position,
        null=(size + 1) / 2,
        null_words="average place if nothing is memorised",
        usual=usual,
        boundaries=boundaries,
        logarithmic=True,
    )
