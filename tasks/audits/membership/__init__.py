"""Can it be told from a model whether this very record was trained on?

Models are trained, each on half of the records: every record is in exactly half of the models, and which half was drawn
by the audit. Then each model is asked about all records.

    phi = log p_y - log sum over y' != y of p_y'               the log-odds of a record's true label y, in nats

Reading it. A record that has no influence on what models say of it leaves phi as it is, whichever models had it. So
its observed effect, mean phi by models that were trained on it less that by the others, has a place among those of all
halves that might have been drawn: an exact p-value, record by record. Records are found with control of false
discoveries, and the answer rests on them. Beside it stand published attacks, each on every model in its turn: the area
under the curve, and true- and false-positive rates at thresholds that were set on the other models.

Source. The attacks are those of Yeom et al. 2018, Watson et al. 2022, Carlini et al. 2022 (LiRA) and Zarifzadeh et al.
2024 (RMIA); mem is that of Feldman & Zhang 2020, eq. 1. The exact test, the balanced design, the pairs of models that
are left out together and the answer are ours.

What implementations get wrong, and what is done here. References without the target alone tell its membership by their
numbers: the target's partner is left out, too. A tail of a fitted normal distribution is no p-value: it is a score
here, and ranks are compared. LiRA's offline form is the paper's one-sided tail, and its fixed variance is about each
record's own mean. Thresholds come from other models. Models are asked in evaluation mode.

Cost. `models` trainings on half of the records. `quickstart` takes about a minute of two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.audits.membership.answer import EFFECT, MEANINGS, RULES, SYMBOLS, certificate, verdict
from tasks.audits.membership.config import About, Canaries, Membership, tiny
from tasks.audits.membership.given import handout_order, pictures, question_about
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.image_parts import record_part
from tasks.audits.membership.measures import MEASURES, summary
from tasks.audits.membership.measures.epsilon import notes as epsilon_notes
from tasks.audits.membership.power import notes as power_notes
from tasks.audits.membership.power import power, resolution
from tasks.audits.membership.presets import PRESETS, REPEATS, SITUATIONS
from tasks.audits.membership.trainings import trainings
from tasks.contract.audit import Audit, Handout, Wording
from tasks.contract.crosswalk import Attack
from tasks.contract.job import Job, Roots
from tasks.contract.learning import chance_accuracy
from tasks.contract.measure import roots
from tasks.contract.stand_in import stand_in_compared, stand_in_trained
from tasks.datasets.catalog import load
from tasks.datasets.copies import count_copies

if TYPE_CHECKING:
    from tasks.datasets.images import Pixels

__all__ = ["AUDIT", "PRESETS", "Membership", "plan", "probes", "tiny"]


def plan(config: Membership) -> Roots:
    """The tables of the measures, and their `summary`."""
    models = trainings(config)
    about = describe_run(config)
    return roots(MEASURES, config, models, lambda read: Job(summary, about, read))


def describe_run(config: Membership) -> About:
    """What the summary is told of the run."""
    question, part = config.question, record_part(config)
    images = load(part.data)
    if isinstance(question, Canaries):
        return About(chance=chance_accuracy(images.test_labels))
    rows = part.rows(images)
    return About(question.level, count_copies(images, rows), chance_accuracy(images.train_labels[rows]))


def probes(config: Membership) -> Iterator[tuple[str, Pixels]]:
    """The records and the other images in one set, shuffled, on which a model's owner evaluates the model."""
    asked = question_about(config)
    handed = handout_order(asked)
    yield handed.name, pictures(asked)[1][handed.order]


def subject(config: Membership) -> str:
    model = "a given model and " if isinstance(config.question, GivenModel) else ""
    return f"{model}records of {config.data.name}"


def stand_in(config: Membership) -> str:
    network = config.training.network.name
    if not isinstance(config.question, GivenModel):
        return stand_in_trained(config.data, network)
    return stand_in_compared(config.data, network) if config.question.models else ""


def notes(config: Membership) -> Iterator[str]:
    """What a plan says of the power of its test and of its bound on epsilon."""
    yield from power_notes(config)
    yield from epsilon_notes(config)


AUDIT = Audit(
    config=Membership,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    tiny=tiny,
    verdict=verdict,
    effect=EFFECT,
    wording=Wording(
        repeats=REPEATS,
        situations=SITUATIONS,
        rules=RULES,
        answers=MEANINGS,
        certificate=certificate,
        symbols=SYMBOLS,
        subject=subject,
        stand_in=stand_in,
        attacks=(Attack.MEMBERSHIP,),
    ),
    handout=Handout(probes),
    notes=notes,
    resolution=resolution,
    power=power,
)
