"""Which images does a generative model memorise?

A density model is trained repeatedly, each time without some of the data: for each of L random partitions into K folds,
one model is trained without each fold. Every model gives log p(x_i) for every observation (image), estimated by
importance sampling.

    U_i = log mean exp of log p(x_i) by the models that trained on x_i            L (K - 1) of them
    V_i = log mean exp of log p(x_i) by the models that did not                   L of them
    M_i = U_i - V_i                                                               in nats

Interpretation. M is the gain in an observation's log probability from training on it. The published M is biased: a log
mean exp is dominated by its largest term, and U has K - 1 times as many terms as V. Without memorisation, M is 2.7 on
average if log p varies by 5 nats between models, and 44 if it varies by 50 nats. The audit therefore reports three
further numbers. The matched-count score uses one model of each repetition on both sides and is 0 on average without
memorisation. The p-value of every observation is obtained by redrawing the models that hold it out, and is corrected
for false discoveries; it decides the answer. The gain is log p by a model that trained on an observation minus log p by
a model that did not, averaged over all observations.

Images are held out one by one. Exact copies are held out together, as one observation. If an image has near copies in
the data (other images of the same patient), models that hold it out still train on the copies. Then log p stays high, M
is about 0, and no p-value detects the memorisation. The measure `duplicates` lists the closest pairs.

Other measures. Quantiles of M during training; losses; the share of outliers (images that are unlikely even under
models that saw them) among the highly memorised images (top 5 %); the distance of training images to samples of the
model, relative to that of other images, a test that misses most of the memorisation that M detects; the closest
duplicates; and two mitigations, an outlier component and differential privacy. For differential privacy, the
leave-one-out score is compared with epsilon.

Source. Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models": M is eq. 3 and
algorithm 1, the leave-one-out score eq. 2, the ratio eq. 6, the mitigations section 5. The matched-count score, the
null, the p-values and the gain are ours.

A training program of your own can take the place of the density models. It receives the numbers of the rows to train
on and returns a log-likelihood of each row in nats (`training.returns=log_likelihood`), so that the records stay with
it (`records=COUNT`). No model is then trained on all data, and the measures that need samples, losses or, without
`data`, images are left out: neighbours, losses, the comparison with a constant, outliers and duplicates.

Cost. L x K trainings, and one on all data. `quickstart` takes about two minutes on two otherwise idle cores.

Decisions that the paper leaves open or that differ from its code. All models see the same binarised (or dequantised)
pixels when log p is estimated. `resample_pixels` draws them again for each model, as published and in the presets named
after the paper's data and figures; this adds noise that does not come from the models. Training mirrors each image
independently rather than whole batches. The neighbour ratio measures each distance from the image itself, whereas the
released analysis measures from the first image of each batch. The histograms of the highly memorised are split at the
95 % quantile, whereas the released analysis splits at 0.95 nats.
"""

from __future__ import annotations

from dataclasses import replace

from tasks.audits.density.answer import MEANINGS, OBJECTIVES, RULES, certificate, verdict
from tasks.audits.density.config import About, Density, KernelDensity, Memorization, NearDuplicates
from tasks.audits.density.measures import MEASURES, summary
from tasks.audits.density.plain_words import SYMBOLS
from tasks.audits.density.power import power, resolution
from tasks.audits.density.presets import PRESETS, REPEATS, repeats, tiny
from tasks.audits.density.reassignment import smallest_p_value
from tasks.audits.density.tail import LEAST_DRAWS
from tasks.audits.density.trainings import copies_held_out, trainings
from tasks.contract.audit import Audit, Wording
from tasks.contract.crosswalk import Attack
from tasks.contract.job import Job, Roots
from tasks.contract.measure import roots
from tasks.contract.stand_in import stand_in_trained
from tasks.programs.config import Program

__all__ = ["AUDIT", "PRESETS", "Density", "about", "plan", "tiny"]


def plan(config: Density) -> Roots:
    """Plan the tables of the requested measures and their `summary`."""
    models = trainings(config.question)  # raises if the data are insufficient
    facts = About()
    if isinstance(config.question, Memorization):
        facts = replace(about(config.question), copies=copies_held_out(config.question))
    return roots(MEASURES, config, models, lambda inputs: Job(summary, facts, inputs))


def about(config: Memorization) -> About:
    """Return the facts about a run that its tables do not contain, except for the copies in its data."""
    holds_out_rows = config.leaves_out_rows
    is_enumerated = config.models**config.repetitions <= config.permutations + 1  # all assignments, no draws
    return About(
        planned=config.repetitions * config.models,
        smallest=smallest_p_value(config.repetitions, config.models),
        published=repeats(config),
        privacy=config.guarantee if holds_out_rows else None,
        planted="" if config.planting is None else str(config.planting),
        together=not holds_out_rows and (is_enumerated or config.permutations >= LEAST_DRAWS),
    )


def subject(config: Density) -> str:
    match config.question:
        case Memorization() as question:
            if isinstance(question.training, Program):
                return f"a training program of {question.data.name}"
            return f"{question.training.model} of {question.data.name}"
        case NearDuplicates() as question:
            return question.data.name
        case KernelDensity():
            return "a kernel density"


def stand_in(config: Density) -> str:
    question = config.question
    if not isinstance(question, Memorization) or isinstance(question.training, Program):  # a program is the user's own
        return ""
    return stand_in_trained(question.data, question.training.model.name, "density model")


AUDIT = Audit(
    config=Density,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    usual=(
        "question",
        "data",
        "examples",
        "model",
        "width",
        "epochs",
        "batch",
        "learning_rate",
        "folds",
        "repetitions",
        "privacy.epsilon",
        "question.seed",
    ),
    tiny=tiny,
    verdict=verdict,
    objectives=OBJECTIVES,
    resolution=resolution,
    power=power,
    wording=Wording(
        rules=RULES,
        answers=MEANINGS,
        certificate=certificate,
        symbols=SYMBOLS,
        repeats=REPEATS,
        subject=subject,
        stand_in=stand_in,
        attacks=(Attack.MEMBERSHIP,),
    ),
    rows_field="data",
)
