"""Has a model forgotten a data set?

A provider asks that its data, the query set D_Q, be forgotten. The audited model, the target, is known only by its
confidences c, the probability of the true class of each image. It is asked about D_Q and about a control set: images of
the same source that nobody was given. Calibration models are trained on a set D_C of the same domain that shares no
image with either, partial models on D_C and a known share of D_Q, query models on D_Q.

    effect = (mean score of D_Q - mean score of the control set) / its standard error

of scores that compare an image's rank with those of images as difficult to the calibration models (`exchangeability`).

Reading it. A model that never saw D_Q cannot tell it from the control set, whatever else it holds. Where the target
does, by a randomisation test that is exact where chance said which images are control, it has not forgotten. Where it
does not, partial models show the largest share of D_Q that its effect allows. The rules are those of `decision`.

Source. Liu & Tsaftaris 2020, "Have you forgotten? A method to assess if machine learning models have forgotten data":
the question, the three kinds of models, and the published score, which stands beside the answer:

    KS(a, b) = sup |cdf of c by a - cdf of c by b| over the images of D_Q
    rho = mean KS(query model, target) / mean KS(query model, calibration model)

KS is eqs. 2 and 3, rho eq. 4 and algorithm 1.

What is ours. The control set and the decision. rho accuses models that hold other images of the kind of D_Q, can be
raised by a temperature, and says nothing of shares. It is computed as published, from confidences as they are, and
with a one-sided KS of ours, how far the target's confidence lies below that of models trained on D_Q, which compares
confidences to two decimals unless `decimals` is set. Read literally, the paper's equations compare each cdf at its own
sorted values, which always gives 0; here the distance is taken on the pooled support. A set that holds an image of the
query set, or one made from it, is detected by content and refused.

Cost. Replicates x (2 + targets + known shares) trainings. `quickstart` takes about a minute of two cores.
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
from tasks.external.blinding import Split
from tasks.external.bound_draw import Draw

__all__ = ["AUDIT", "PRESETS", "Forgetting", "Target", "plan", "probes", "split", "tiny"]


def probes(config: Forgetting) -> Iterator[tuple[str, Pixels]]:
    """D_Q and the control set in one set, shuffled, on which a model's owner evaluates the model."""
    handed = handout_order(config.probes)
    yield handed.name, load_probes(config.probes).images[handed.order]


def split(config: Forgetting) -> Split | None:
    """Which images are D_Q, that may be given, and which the control set, that must not; None without a control set."""
    if not config.query.is_controlled:
        return None
    guessable = GUESSABLE if config.query.is_guessable else ""
    return Split(key_table(config.probes), split_table(config.probes), guessable)


def draw(config: Forgetting) -> Draw:
    """What the draw follows from; a commitment to it holds how the other party's answers will be read and compared.

    Targets that are trained here have no effect once these answers are there, so the form of given ones replaces them.
    """
    question = config.question
    if isinstance(question, Scores):
        given = question.audited if isinstance(question.audited, Given) else Given()
        given = replace(given, tables=given.tables or ReturnedTables(()))
        config = replace(config, question=replace(question, audited=given))
    return config.query.draw(config.seed, config)


def subject(config: Forgetting) -> str:
    return f"{config.query.data.name} forgotten"


def stand_in(config: Forgetting) -> str:
    if not isinstance(config.question, Scores):
        return ""
    name = stand_in_trained if config.given is None else stand_in_compared
    return name(config.query.data, config.question.training.network.name)


AUDIT = Audit(
    config=Forgetting,
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
    handout=Handout(probes, split=split, draw=draw, secret="query.control.secret"),
    resolution=resolution,
    power=power,
)
