"""Does a language model reveal a secret from its training texts?

Secrets are drawn from a known format, such as six-digit codes, and inserted one or more times into the texts that a
language model is fine-tuned on. Models are trained in pairs, on the same texts and from the same seed; for each secret,
a coin decides which model of the pair is trained on it. Both models then score the text with the secret, and the same
text with other candidates of its format.

    p = share of candidates, including the secret, whose log p is at least that of the secret
    exposure = -log2 p                                                                                 in bits
    effect = gain of the secret's log p over the control model minus the mean gain of its references   in nats

Interpretation. The secret and its references are drawn from the same distribution. A model that does not know the
secret is equally likely to give it any rank among them, so p is exact for any model and any format. An exposure of 10
bits means that one candidate in a thousand is at least as probable as the secret; without memory, the mean exposure is
1.4 bits. The verdict is based on the secrets that are found at a controlled false discovery rate.

Source. Exposure: Carlini et al. 2019, "The Secret Sharer", section 4. Ranks as exact p-values of drawn secrets: Zhang,
Kamath & Tramer 2024 (arXiv 2409.19798). The control model and the verdict are ours.

Documents are tested in the same way: each is in the training data of a random half of the models, so it has an exact
p-value, and its reproduction is compared with that of the control models. For a given model, the audit ranks random
identifiers, or secrets that were inserted before training.

Cost. Two fine-tuning runs per pair, and secrets x (references + 1) texts to score with each model. `quickstart` takes
about two minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tasks.audits.text.answer import MEANINGS, OBJECTIVES, RULES, SYMBOLS, certificate, effect, verdict
from tasks.audits.text.config import Text, about, tiny
from tasks.audits.text.given.model import GUESSABLE, given_question, planted_texts, questions
from tasks.audits.text.given.table import COLUMNS, handout_records, key_table
from tasks.audits.text.measures import MEASURES, summary
from tasks.audits.text.power import power, resolution
from tasks.audits.text.presets import PRESETS, REPEATS, SITUATIONS
from tasks.audits.text.question import (
    AskedModel,
    FineTuned,
    Identifiers,
    OwnerQuestion,
    Planted,
    Question,
    RankingModel,
    ReturnedTable,
    TextComparison,
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
from tasks.programs.config import Program

__all__ = ["AUDIT", "PRESETS", "Text", "plan", "probes", "split", "tiny"]


def plan(config: Text) -> Roots:
    """Plan the tables of the measures, and the `summary` that combines them."""
    return roots(
        MEASURES, config, trainings(config), lambda summary_inputs: Job(summary, about(config), summary_inputs)
    )


def probes(config: Text) -> Iterator[tuple[str, Records]]:
    """Yield the texts for the model's owner, as one shuffled set.

    Raises ValueError if the audit fine-tunes the model itself.
    """
    owner_question = given_question(config)
    yield handout_records(questions(owner_question), owner_question.seed)


def probes_config(config: Text) -> Text:
    """Return the config without its source of log-probabilities. It exports the same texts."""
    match config.question:
        case Planted() | Identifiers() as question:
            return replace(config, question=replace(question, source=RankingModel()))
        case TextComparison() as question:
            return replace(config, question=replace(question, source=AskedModel()))
    return config


def split(config: Text) -> Split:
    """Return the key of the exported texts, and the secrets to insert into the training data."""
    owner_question = given_question(config)
    if isinstance(config.question, OwnerQuestion) and config.question.secret:
        warning = ""
    else:
        warning = GUESSABLE
    return Split(key_table(questions(owner_question), owner_question.seed), planted_texts(owner_question), warning)


def draw(config: Text) -> Draw | None:
    return config.draw


def subject(config: Text) -> str:
    return f"{_model_name(config.question)} on {_topic(config.question)}"


def _model_name(question: Question) -> str:
    """Return the name of the evaluated model, or a phrase for the table or the program that replaces it."""
    if isinstance(question, FineTuned) and isinstance(question.tuning, Program):
        return "models of your own program"
    model = _evaluated_model(question)
    return "a table of log-probabilities" if model is None else str(model)


def _evaluated_model(question: Question) -> LanguageModel | None:
    """Return the model that the audit evaluates, or None for a table or the models of a program."""
    if isinstance(question, FineTuned) and isinstance(question.tuning, Program):
        return None
    if not isinstance(question, OwnerQuestion):
        return question.reading.model
    if isinstance(question.source, ReturnedTable):
        return None
    return question.source.model


def _topic(question: Question) -> str:
    if isinstance(question, Planted):
        return question.pattern
    return question.data.name


def stand_in(config: Text) -> str:
    question = config.question
    model = _evaluated_model(question)
    if model is None or isinstance(question, Planted):
        return ""
    return stand_in_trained(question.data, model.name, "language model")


AUDIT = Audit(
    config=Text,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    usual=(
        "question",
        "data",
        "examples",
        "pattern",
        "repetitions",
        "model",
        "epochs",
        "learning_rate",
        "planted.model",
        "planted.outputs",
        "privacy.epsilon",
        "seed",
    ),
    tiny=tiny,
    verdict=verdict,
    effect=effect,
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
