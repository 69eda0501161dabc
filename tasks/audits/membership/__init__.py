"""Can someone tell from a model that a given record was in its training data?

The audit trains models on random halves of the records, so that each record is in the training data of half of the
models. Each model then scores all records:

    phi = log p_y - log sum over y' != y of p_y'               log-odds of a record's true label y, in nats

Interpretation. If training on a record has no effect, its scores do not depend on which models were trained on it. Its
observed effect, the mean phi of models trained on it minus that of the others, therefore has a rank among the effects
of all possible halves, which gives an exact p-value per record. The answer is based on this test, with control of the
false discovery rate. The audit also runs published attacks on every model. It reports the area under the curve and the
true- and false-positive rates at thresholds that were set on the other models.

Source. The attacks are those of Yeom et al. 2018, Watson et al. 2022, Carlini et al. 2022 (LiRA) and Zarifzadeh et al.
2024 (RMIA); mem is that of Feldman & Zhang 2020, eq. 1. The exact test, the balanced design, leaving out pairs of
models, and the answer are ours.

Errors of other implementations, and their corrections. If only the target is left out of the references, the numbers of
references on both sides reveal its membership, so its partner is also left out. A tail of a fitted normal distribution
is not a p-value; here it is only a score, and ranks are compared. LiRA's offline form is the one-sided tail of the
paper, and its fixed variance is computed around each record's own mean. Thresholds come from other models. Models are
evaluated in evaluation mode.

Until decided. With `question=pairs`, fair coins divide the records between the two models of each pair. The sign of a
record's difference is then a fair coin if training on it has no effect, and bets on the signs may be evaluated after
every pair (`measures/pairs.py`).

Cost. `models` trainings on half of the records. `quickstart` takes about one minute on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.audits.membership.answer import MEANINGS, RULES, SYMBOLS, certificate, effect, verdict
from tasks.audits.membership.config import About, Canaries, Membership, tiny
from tasks.audits.membership.given import handout_order, pictures, question_about
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.image_parts import record_part
from tasks.audits.membership.loss_config import LossAttack
from tasks.audits.membership.measures import MEASURES, summary
from tasks.audits.membership.measures.epsilon import notes as epsilon_notes
from tasks.audits.membership.pairs_answer import summed_error
from tasks.audits.membership.power import notes as power_notes
from tasks.audits.membership.power import power, resolution
from tasks.audits.membership.presets import PRESETS, REPEATS, SITUATIONS
from tasks.audits.membership.trainings import trainings
from tasks.contract.audit import Audit, Handout, Stopping, Wording
from tasks.contract.crosswalk import Attack
from tasks.contract.job import Job, Roots
from tasks.contract.learning import chance_accuracy
from tasks.contract.measure import roots
from tasks.contract.stand_in import stand_in_compared, stand_in_trained
from tasks.datasets.catalog import load
from tasks.datasets.copies import count_copies
from tasks.datasets.picture_rows import gather
from tasks.programs.config import Program

if TYPE_CHECKING:
    from tasks.datasets.images import Pixels

__all__ = ["AUDIT", "PRESETS", "Membership", "plan", "probes", "tiny"]


def plan(config: Membership) -> Roots:
    """Plan the tables of the measures, and their `summary`."""
    models = trainings(config)
    about = describe_run(config)
    return roots(MEASURES, config, models, lambda measures_inputs: Job(summary, about, measures_inputs))


def describe_run(config: Membership) -> About:
    """Return the facts about a run for its summary."""
    question = config.question
    if isinstance(question, LossAttack):
        return About()
    part = record_part(config)
    images = load(part.data)
    if isinstance(question, Canaries):
        return About(chance=chance_accuracy(images.test.labels))
    rows = part.rows(images)
    chance = chance_accuracy(images.train.labels[rows])
    return About(question.level, count_copies(images, rows), config.smallest_effect, chance)


def probes(config: Membership) -> Iterator[tuple[str, Pixels]]:
    """Yield the records and the non-members as one shuffled set, for the owner of a model to evaluate."""
    question = question_about(config)
    handout = handout_order(question)
    images = pictures(question)[1]
    yield handout.name, gather([images.select(handout.order)])


def subject(config: Membership) -> str:
    if config.data is None:
        return "a model in memory"
    model = ""
    if isinstance(config.question, GivenModel):
        model = "a given model and "
    elif isinstance(config.question, LossAttack):
        model = "the loss of one model and "
    return f"{model}records of {config.data.name}"


def stand_in(config: Membership) -> str:
    if isinstance(config.training, Program):  # the user's own
        return ""
    network = config.training.network.name
    match config.question:
        case LossAttack():  # an example is trained on data that Engram includes
            return ""
        case GivenModel(models=models):
            return stand_in_compared(config.data, network) if models else ""
        case _:
            return stand_in_trained(config.data, network)


def notes(config: Membership) -> Iterator[str]:
    """Yield the warnings of a plan about the power of its test and of its bound on epsilon."""
    yield from power_notes(config)
    yield from epsilon_notes(config)


AUDIT = Audit(
    config=Membership,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    usual=(
        "question",
        "data",
        "examples",
        "models",
        "training",
        "network",
        "epochs",
        "learning_rate",
        "given.model",
        "given.members",
        "given.non_members",
        "seed",
    ),
    tiny=tiny,
    verdict=verdict,
    effect=effect,
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
        summed_error=summed_error,
    ),
    handout=Handout(probes),
    stopping=Stopping(level="question.stopping_level", pairs="question.pairs", table="evidence"),
    notes=notes,
    resolution=resolution,
    power=power,
    rows_field="data",
    reads_tables=True,
)
