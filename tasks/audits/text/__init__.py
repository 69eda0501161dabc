"""Does a language model give away a secret that it saw in training?

Secrets are drawn from a known space, such as codes of six digits, and written into the texts that a language model is
fine-tuned on, once or several times. There are pairs of models: both are trained on the same texts from the same seed,
and a coin says which of the two is told a secret. Then both are asked how probable the text with the secret is, and
with others of its space.

    p = the share of candidates, the secret among them, whose log p is at least that of the secret
    exposure = -log2 p                                                                         in bits
    effect = how much likelier the model that was told it says it than its twin, less the same of the others, in nats

Reading it. The secret was drawn from its space as the others were that it is compared with. Where the model does not
know it, each place among them is equally likely, so p is exact, whatever the model and whatever the space look like to
it. An exposure of 10 bits means that only one secret of a thousand is as probable; 1.4 bits are the mean where nothing
is known. Secrets are found with control of false discoveries, and the answer rests on them.

Source. Exposure is that of Carlini et al. 2019, "The Secret Sharer", section 4. Ranks as exact p-values of drawn
secrets are argued for by Zhang, Kamath & Tramer 2024 (arXiv 2409.19798); the twin and the answer are ours.

Documents are asked about in the same way: each is in the training data of half of the models, by a draw, so that it has
an exact p-value, and how much of it comes out stands beside the models that never saw it. Of a model that is there
already random identifiers are ranked, or secrets that were put in beforehand.

Cost. Two fine-tunings a pair, and secrets x (references + 1) texts to score for each. `quickstart` takes some two
minutes of two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tasks.audits.text.answer import EFFECT, MEANINGS, OBJECTIVES, RULES, SYMBOLS, certificate, verdict
from tasks.audits.text.config import Text, about, tiny
from tasks.audits.text.given.model import GUESSABLE, given_question, planted_texts, questions
from tasks.audits.text.given.table import COLUMNS, handout_records, key_table
from tasks.audits.text.measures import MEASURES, summary
from tasks.audits.text.power import power, resolution
from tasks.audits.text.presets import PRESETS, REPEATS, SITUATIONS
from tasks.audits.text.question import (
    AskedModel,
    Identifiers,
    OtherTexts,
    OwnerQuestion,
    Planted,
    Question,
    RankingModel,
    ReturnedTable,
)
from tasks.audits.text.reproduced import name_found
from tasks.audits.text.secrets.epsilon import notes
from tasks.audits.text.trainings import trainings
from tasks.contract.audit import Audit, Handout, Wording
from tasks.contract.crosswalk import Attack
from tasks.contract.job import Job, Roots
from tasks.contract.measure import roots
from tasks.contract.stand_in import stand_in_trained
from tasks.datasets.records import Records
from tasks.external.blinding import Split
from tasks.external.bound_draw import Draw
from tasks.language_models.language_model import LanguageModel

__all__ = ["AUDIT", "PRESETS", "Text", "plan", "probes", "split", "tiny"]


def plan(config: Text) -> Roots:
    """The tables of the measures, and their `summary`."""
    return roots(MEASURES, config, trainings(config), lambda read: Job(summary, about(config), read))


def probes(config: Text) -> Iterator[tuple[str, Records]]:
    """The texts whose log probabilities are asked for, in one set, shuffled.

    ValueError where the model is fine-tuned here, and nobody is asked.
    """
    asked = given_question(config)
    yield handout_records(questions(asked), asked.seed)


def probes_config(config: Text) -> Text:
    """The config without its source of log probabilities, which hands out the same texts."""
    match config.question:
        case Planted() | Identifiers() as question:
            return replace(config, question=replace(question, source=RankingModel()))
        case OtherTexts() as question:
            return replace(config, question=replace(question, source=AskedModel()))
    return config


def split(config: Text) -> Split:
    """What each text is that an owner gets, and the secrets that are to be put into the training data beforehand."""
    asked = given_question(config)
    warning = "" if isinstance(config.question, OwnerQuestion) and config.question.secret else GUESSABLE
    return Split(key_table(questions(asked), asked.seed), planted_texts(asked), warning)


def draw(config: Text) -> Draw | None:
    return config.draw


def subject(config: Text) -> str:
    return f"{_answering(config.question)} on {_topic(config.question)}"


def _answering(question: Question) -> str:
    """The model that is asked, or what stands for it."""
    model = _asked_model(question)
    return "a table of log-probabilities" if model is None else str(model)


def _asked_model(question: Question) -> LanguageModel | None:
    """The model that is evaluated here; None if its owner returned a table."""
    if not isinstance(question, OwnerQuestion):
        return question.reading.model
    return None if isinstance(question.source, ReturnedTable) else question.source.model


def _topic(question: Question) -> str:
    return question.pattern if isinstance(question, Planted) else question.data.name


def stand_in(config: Text) -> str:
    question = config.question
    model = _asked_model(question)
    if model is None or isinstance(question, Planted):
        return ""
    return stand_in_trained(question.data, model.name, "language model")


AUDIT = Audit(
    config=Text,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    tiny=tiny,
    verdict=verdict,
    effect=EFFECT,
    objectives=OBJECTIVES,
    wording=Wording(
        repeats=REPEATS,
        situations=SITUATIONS,
        rules=RULES,
        answers=MEANINGS,
        certificate=certificate,
        names=name_found,
        symbols=SYMBOLS,
        subject=subject,
        stand_in=stand_in,
        attacks=(Attack.EXTRACTION, Attack.MEMBERSHIP),
    ),
    handout=Handout(probes, config=probes_config, split=split, draw=draw, secret="question.secret", columns=COLUMNS),
    resolution=resolution,
    power=power,
    notes=notes,
)
