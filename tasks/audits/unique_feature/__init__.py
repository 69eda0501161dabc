"""Is a feature that occurs in a single training image memorised?

A canary is one training image with the feature burnt in (by default the letter A, 5 x 5 pixels, 1 pixel from the top
and left edges). For each canary, two networks are trained: one with the canary, and a control model with the same seed
and the clean image. The control model is trained to the epoch that the canary model keeps, so the two differ only in
that image. Both are evaluated on images that are clean (x_c), carry the feature (x_u), or carry a random patch z_r in
its place, drawn separately for every image (x_r).

    black box   M   = mean KL(f(x_c) || f(x_u)) - mean KL(f(x_c) || f(x_r))      over the probe images
    white box   M_w = mean log P(y | x_u) - log P(y | x_r)                       y: the canary's label
    effect      M (or M_w) of the canary model minus that of its control model   over pairs of training runs

Interpretation. The paper calls a feature memorised if M > 0 with a small p in a one-tailed t-test over probe images.
The audit reports this test as published, but it does not measure memory: the letter is brighter than a random patch,
and M depends on the training seed, so the test can call models memorised that never saw the feature. The rate at which
it does so is reported as the null. The effect is caused by the canary: if it is above 0, the model responds to the
feature because it was trained on it. Its interval and p-value are over pairs of training runs. In addition, every
canary is judged individually, by the rank of its feature among 200 others, or among all glyphs if `ranks` is measured
(`pairs/canary_verdicts.py`). "Not detected" does not mean "safe".

Until decided. If every canary carries a drawn feature, a run may look after each pair and end once the product of bets
on the ranks reaches its limit (`pairs/bets.py`). In such a run, only these bets can accuse.

Errors. If nothing is memorised and features were drawn from their family, the answer is "memorised" in at most 7.6 % of
runs. `pairs/answer.py` has the rules.

Single models. A model trained elsewhere has no control model. It is evaluated on the feature and on 200 others of its
family (for the letter, permutations of its cells; for words, other names in the same typeface). The evidence is the
feature's rank among them, which is exact if the feature was drawn from that family. `population.py` has the formulas.
If reference models of the same kind are available, the feature is ranked by the model's slopes instead
(`measures/exact_ranks.py`).

Exact ranks. The canary changes the slopes of the label's logit in the feature's pixels. By these changes, the feature
is ranked among all features of its kind, 4,457,400 glyphs for the letter A; the rank is exact if the feature was drawn.
`measures/exact_ranks.py` has three scores: for a pair, for one model with references, and for a pair's weights.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks": M is eq. 1 with
section 2.3.2, M_w section 2.2, the canaries section 2.4, the training sections A.2 and A.3, Table 1 and section B.1.
The control models, the effects and the adjusted p-values are ours; the paper has no null.

Cost. Two training runs per canary. `quickstart` takes about 40 s on one core; `table1-mnist` is 200 training runs of
MLP-1 on MNIST, about 42 minutes on two cores.

Decisions where the paper is silent. The feature overwrites its block in every channel, glyph 1 on a background of 0.
z_r is U[0, 1] per pixel and channel, quantised to the image's 256 levels, and all models share one evaluation seed. M_w
is reported over the training images of y without the canary (section 2.2) and over the probe set (section B.1), because
the paper describes both. The validation split, which stops training, is the test split. The t-test is reported as
Welch's and as a paired test. Each canary has its own training seed. With a common seed, all control models would be the
same network and every effect would be measured against it, so the pairs would not be independent and an interval over
them would not extend to another seed.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.unique_feature.answer import (
    EFFECT,
    MEANINGS,
    OBJECTIVES,
    RULES,
    SYMBOLS,
    certificate,
    verdict,
)
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.design import load_design
from tasks.audits.unique_feature.given_models import Given, LabelledImages, ReturnedOutputs
from tasks.audits.unique_feature.pairs.answer import summed_error
from tasks.audits.unique_feature.pairs.canary_selection import count_canary_copies
from tasks.audits.unique_feature.power import power, resolution
from tasks.audits.unique_feature.presets import PRESETS, REPEATS, SITUATIONS, PublishedCell, printed_cell
from tasks.audits.unique_feature.questions import CanaryPairs, Pairs, Panel
from tasks.audits.unique_feature.single_models.models import labels, pictures, single_model_config, split_key
from tasks.audits.unique_feature.summary import MEASURES, summary, summary_of_models
from tasks.audits.unique_feature.tiny import tiny
from tasks.audits.unique_feature.trainings import trainings
from tasks.audits.unique_feature.unseen_images import count_copies, seen_images
from tasks.contract.audit import Audit, Handout, Stopping, Wording
from tasks.contract.crosswalk import Attack
from tasks.contract.job import Job, Roots
from tasks.contract.learning import chance_accuracy
from tasks.contract.measure import roots
from tasks.contract.stand_in import stand_in_trained
from tasks.datasets.catalog import load
from tasks.datasets.images import Pixels
from tasks.external.blinding import Split
from tasks.external.bound_draw import Draw
from tasks.programs.config import CommandTraining, FunctionTraining

__all__ = ["AUDIT", "PRESETS", "UniqueFeature", "plan", "tiny"]

GUESSABLE = (
    "Warning: the seed alone determines which images matter, so an owner who tries seeds can find them. Set "
    "given.secret=$(openssl rand -hex 16) here and in the run, and keep it."
)


def plan(config: UniqueFeature) -> Roots:
    """Plan the tables of the measures that the config requests, and their summary."""
    models = trainings(config)  # also checks that the data are suitable
    design = load_design(config)
    if design.seen_images is None:
        left_out = 0
    else:
        left_out = count_copies(design.seen_images, config.probe, config.probe_split)
    about = PublishedCell(printed_cell(config), left_out, count_canary_copies(config.question), best_constant(config))
    summed = summary if config.single_models is None else summary_of_models
    return roots(MEASURES, design, models, lambda tables: Job(summed, about, tables))


def best_constant(config: UniqueFeature) -> float | None:
    """Return the accuracy of the best constant output on the images with known labels, or None if there are no such
    images.
    """
    match config.question:
        case Given(source=ReturnedOutputs(labelled=LabelledImages())):
            return chance_accuracy(labels(single_model_config(config, config.shape)))
        case Given():
            return None
        case question:
            return chance_accuracy(load(question.data).test.labels)


def probes(config: UniqueFeature) -> Iterator[tuple[str, Pixels]]:
    """Yield the images that the owner of a model evaluates it on, as one blinded set."""
    check_given(config)
    yield pictures(single_model_config(config, config.shape))


def split(config: UniqueFeature) -> Split:
    """Return the key with the role of each image handed out to an owner."""
    warning = "" if check_given(config).secret else GUESSABLE
    return Split(split_key(single_model_config(config, config.shape)), warning=warning)


def check_given(config: UniqueFeature) -> Given:
    """Return the question about third-party models.

    Raises ValueError for other questions, which have no probes to hand out.
    """
    if config.given is None:
        raise ValueError(
            "question: expected given, since only third-party models get probes. Set the shape of their images: "
            "given.shape=HEIGHT,WIDTH,CHANNELS"
        )
    return config.given


def draw(config: UniqueFeature) -> Draw:
    return config.draw


def subject(config: UniqueFeature) -> str:
    return config.asked_feature.describe().removeprefix("the ")


def stand_in(config: UniqueFeature) -> str:
    match config.question:
        case Pairs(training=CommandTraining() | FunctionTraining()):  # the user's own
            return ""
        case CanaryPairs(recipe=recipe) | Panel(training=recipe) as question:
            return stand_in_trained(question.data, recipe.network.name)
        case _:
            return ""


def notes(config: UniqueFeature) -> Iterator[str]:
    """Warn if probe images are copies of training images."""
    training_images = seen_images(config)
    if training_images is None:
        copies = 0
    else:
        copies = count_copies(training_images, config.probe, config.probe_split)
    if training_images is not None and copies:
        yield (
            f"{copies:,} images of probe {config.probe.name} are exact copies of training images of "
            f"{training_images.data.name}; they are left out"
        )


AUDIT = Audit(
    config=UniqueFeature,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    usual=(
        "question",
        "data",
        "probe",
        "feature",
        "canaries",
        "network",
        "epochs",
        "learning_rate",
        "given.models",
        "given.shape",
        "given.outputs",
        "seed",
    ),
    tiny=tiny,
    verdict=verdict,
    objectives=OBJECTIVES,
    effect=EFFECT,
    wording=Wording(
        repeats=REPEATS,
        situations=SITUATIONS,
        answers=MEANINGS,
        rules=RULES,
        certificate=certificate,
        symbols=SYMBOLS,
        subject=subject,
        stand_in=stand_in,
        summed_error=summed_error,
        attacks=(Attack.MEMBERSHIP,),
    ),
    handout=Handout(probes, split=split, draw=draw, secret="question.secret"),
    stopping=Stopping(level="question.stopping_level", pairs="question.canaries", table="evidence"),
    notes=notes,
    resolution=resolution,
    power=power,
)
