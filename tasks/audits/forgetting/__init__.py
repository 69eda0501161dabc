"""Has a model forgotten a data set?

A provider asks that its data, the query set D_Q, be forgotten. The audited model, called the target, is known only by
its confidences c, the probability that it assigns to the true class of each image. It is evaluated on D_Q and on a
control set: images from the same source that were never used in training. Three kinds of models are trained for
comparison: calibration models on a set D_C of the same domain that shares no image with D_Q or the control set, partial
models on D_C and a known share of D_Q, and query models on D_Q.

    effect = (mean score of D_Q - mean score of the control set) / its standard error

A score compares an image's rank with the ranks of images that are equally difficult for the calibration models
(`exchangeability`).

Interpretation. A model that never saw D_Q cannot distinguish D_Q from the control set, regardless of its other training
data. If the target does distinguish them, by a randomisation test that is exact for a random control set, it has not
forgotten. If it does not, partial models show the largest share of D_Q that is compatible with its effect. The rules
are in `decision`.

Source. Liu & Tsaftaris 2020, "Have you forgotten? A method to assess if machine learning models have forgotten data":
the question, the three kinds of models, and the published score, which is reported in addition to the answer:

    KS(a, b) = sup |cdf of c by a - cdf of c by b| over the images of D_Q
    rho = mean KS(query model, target) / mean KS(query model, calibration model)

KS is eqs. 2 and 3, rho eq. 4 and algorithm 1.

Additions. The control set and the decision are ours. rho accuses models that hold other images similar to D_Q, can be
raised by a temperature, and does not measure shares. Two versions are computed: the published one, from unrounded
confidences, and our one-sided KS, which measures how far the target's confidences lie below those of models trained on
D_Q, from confidences rounded to two decimals (`decimals`). Read literally, the paper's equations compare each cdf at
its own sorted values, which always gives 0; here the distance is taken on the pooled support. A set that shares an
image, or the source of an image, with D_Q is refused.

A training program of your own can train all these models (`training.command`, `training=package.module:train`). It
receives row numbers and returns the probability of the true class, log-odds or a cross-entropy for each row of D_Q and
the control set, so that the records stay with it: `records=COUNT`. It knows its records by number, so D_Q, D_C and the
control set are rows of one data set (`query.first`, `query.examples`, `calibration.first`, `calibration.examples`).
Unlearning methods other than retraining need the networks of Engram, and training accuracies are not reported. A
target is called forgotten only if its accuracy on the control set is known: the program then returns the probabilities
of all classes, with the true class in a column `label` if only the program holds the records.

Cost. Replicates x (2 + targets + known shares) trainings. `quickstart` takes about a minute on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tasks.audits.forgetting.answer import EFFECT, MEANINGS, certificate, verdict
from tasks.audits.forgetting.audited import Given, ReturnedTables
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.decision import RULES
from tasks.audits.forgetting.measures import MEASURES
from tasks.audits.forgetting.plain_words import SYMBOLS
from tasks.audits.forgetting.planning import plan
from tasks.audits.forgetting.power import power, resolution
from tasks.audits.forgetting.presets import PRESETS, REPEATS, SITUATIONS, tiny
from tasks.audits.forgetting.query_set import GUESSABLE, handout_order, key_table, load_probes, split_table
from tasks.audits.forgetting.target import Target
from tasks.contract.audit import Audit, Handout, Wording
from tasks.contract.crosswalk import Attack
from tasks.contract.stand_in import stand_in_compared, stand_in_trained
from tasks.datasets.images import Pixels
from tasks.datasets.picture_rows import gather
from tasks.external.blinding import Split
from tasks.external.bound_draw import Draw
from tasks.programs.config import Program
from tasks.programs.row_training import check_held

__all__ = ["AUDIT", "PRESETS", "Forgetting", "Target", "plan", "probes", "split", "tiny"]


def probes(config: Forgetting) -> Iterator[tuple[str, Pixels]]:
    """Yield D_Q and the control set as one shuffled set, on which a model's owner evaluates the model."""
    check_held(config.query.data)
    order = handout_order(config.probes)
    images = load_probes(config.probes).images
    yield order.name, gather([images.select(order.order)])


def split(config: Forgetting) -> Split | None:
    """Return which images are D_Q and may be given, and which are the control set. None without a control set."""
    if not config.query.is_controlled:
        return None
    guessable = GUESSABLE if config.query.is_guessable else ""
    return Split(key_table(config.probes), split_table(config.probes), guessable)


def draw(config: Forgetting) -> Draw:
    """Describe the randomness of the draw, and the configuration that a commitment covers.

    Targets trained here have no effect once third-party answers exist, so they are replaced by given models.
    """
    question = config.question
    if isinstance(question, Scores):
        if isinstance(question.audited, Given):
            audited = question.audited
        else:
            audited = Given()
        audited = replace(audited, tables=audited.tables or ReturnedTables(()))
        config = replace(config, question=replace(question, audited=audited))
    return config.query.draw(config.seed, config)


def subject(config: Forgetting) -> str:
    return f"forgetting of {config.query.data.name}"


def stand_in(config: Forgetting) -> str:
    if not isinstance(config.question, Scores) or isinstance(config.question.training, Program):  # the user's own
        return ""
    name = stand_in_trained if config.given is None else stand_in_compared
    return name(config.query.data, config.question.training.network.name)


AUDIT = Audit(
    config=Forgetting,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    usual=(
        "query.data",
        "query.examples",
        "calibration.data",
        "calibration.examples",
        "network",
        "epochs",
        "learning_rate",
        "targets",
        "given.models",
        "given.outputs",
        "seed",
    ),
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
    handout=Handout(probes, split=split, draw=draw, secret="query.control.secret"),
    resolution=resolution,
    power=power,
    rows_field="query.data",
    further_rows_fields=("calibration.data",),
)
