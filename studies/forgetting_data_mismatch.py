"""How does `forgetting` judge owners with their own training data, by models of one D_C or of draws from it?

    python -m studies forgetting_data_mismatch [--tiny] [--worlds 2] [--seed 5000] [--models FOLDER] [--out FILE]

Each world is a separate audit of 2,000 images from a domain, randomly divided into D_Q and the control set. Owners
train on 1,000 other images from the domain, outside D_C, and on a share of D_Q. Owners of the last kind train on 500
images and do not report it. Each owner returns its model's answers and is the only target of an audit. It is judged
twice: by models that were all trained on the first 1,000 images of D_C, and by models that were each trained on a
random 1,000 of its 20,000 images. Some owners change their answers. For D_Q images, they return the answers of another
owner's model that never saw D_Q (recognition), or for every image, they average their answers with that model's
(mixture).

The images are MNIST on photographs, or digits with `--tiny`. With `--models`, the trained models of each world are
stored in this folder and reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.forgetting_evasion import ANSWERS, APART, asked, decisions_of, of_audit, trained, training_of
from studies.interface import study_parser
from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.classifier import Classifier
from tasks.audits.forgetting.confidence_matrix import ConfidenceMatrix, ModelAnswers, confidence_matrix
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.held_share import UNLIKE
from tasks.audits.forgetting.measures.decisions import target_row
from tasks.audits.forgetting.measures.recognition import Recognition, read_trial, recognition
from tasks.audits.forgetting.model_effects import ModelEffects
from tasks.audits.forgetting.query_set import ControlSet, QuerySet
from tasks.audits.forgetting.target import NamedTarget, Target
from tasks.audits.forgetting.target_evidence import RecognitionTrial
from tasks.audits.forgetting.trainings import ModelId
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.models.catalog import Network
from tasks.numerics.statistics import exact_interval
from tasks.training.mixed import Mixture

Array = NDArray[np.float64]
Change = Callable[
    [ModelAnswers, ModelAnswers, NDArray[np.bool_]], ModelAnswers
]  # owner's answers, clean answers, mask of control images


def change_nothing(answers: ModelAnswers, _clean: ModelAnswers, _is_control: NDArray[np.bool_]) -> ModelAnswers:
    return answers


def recognise(answers: ModelAnswers, clean: ModelAnswers, is_control: NDArray[np.bool_]) -> ModelAnswers:
    """Use the clean model's answers for D_Q and the owner's for all other images."""
    assert answers.right is not None
    assert clean.right is not None
    confidence = np.where(is_control, answers.confidence, clean.confidence)
    return replace(answers, confidence=confidence, right=np.where(is_control, answers.right, clean.right))


def mix(answers: ModelAnswers, clean: ModelAnswers, _is_control: NDArray[np.bool_], share: float) -> ModelAnswers:
    """Average the owner's answers, with weight `share`, and the clean model's.

    Predicted classes are the clean model's.
    """
    return replace(answers, confidence=share * answers.confidence + (1 - share) * clean.confidence, right=clean.right)


@dataclass(frozen=True)
class Owner:
    """A kind of owner: the share of D_Q that it holds, and its relative number of own images."""

    share: float
    images: float = 1.0

    @property
    def name(self) -> str:
        share = f"{100 * self.share:g} % of D_Q" if self.share else "none of D_Q"
        return share if self.images == 1 else f"{share}, half as many images"


NONE = Owner(0.0)
OWNERS = (NONE, Owner(0.1), Owner(0.25), Owner(1.0), Owner(0.0, 0.5))
CHANGES: Mapping[str, Change] = {
    "": change_nothing,
    "recognition": recognise,
    **{f"mixture of {100 * share:g} % own": partial(mix, share=share) for share in (0.1, 0.2)},
}
PLACES = 5  # disjoint image sets; seeds that are equal modulo PLACES share a set
CALIBRATIONS = ("one D_C", "draws of D_C")
UNBOUND = "draws, unbound tables"
JUDGES = (*CALIBRATIONS, UNBOUND)
Key = tuple[str, ModelId]  # "owner" or an element of CALIBRATIONS, and the model


@dataclass(frozen=True)
class World:
    """One audit with a fixed D_C, the same with draws from D_C, the kinds of owners, and the number of each kind."""

    one: Forgetting
    draws: Forgetting
    kinds: tuple[Owner, ...]
    owners: int

    def by(self, calibration: str) -> Forgetting:
        return self.one if calibration == CALIBRATIONS[0] else self.draws


def world(
    tiny: bool, seed: int, share: float = 0.05, replicates: int = 8, owners: int = 10, kinds: tuple[Owner, ...] = OWNERS
) -> World:
    if tiny:
        data = "digits"
        pool = 80
        owner_images = 25
        other_images = (400, 900)
        epochs = 3
        owners = min(owners, 2)
        replicates = min(replicates, 3)
    else:
        data = "mnist-on-photos"
        pool = 2000
        owner_images = 1000
        other_images = (20_000, 40_000)
        epochs = 20
    images = pin(Dataset(data))
    place_number = seed % PLACES
    calibration_images = round(owner_images / share)
    if any(owner.share == 1 for owner in kinds):
        shares = (0.1, 0.25, 1.0)
    else:
        shares = (0.1, 0.25)
    control = ControlSet(partial=shares, permutations=1999)
    question = Scores(
        audited=Trained(tuple(target_of(owner) for owner in kinds), Part(images, other_images[1], 20 * owner_images)),
        training=Classifier(Network("mlp1"), epochs=epochs, schedule=((epochs * 4 // 5, 0.1),)),
        replicates=replicates,
        calibration_share=share,
    )
    draws = Forgetting(
        query=QuerySet(images, place_number * pool, pool, control),
        calibration=Part(
            images,
            other_images[0] + place_number * calibration_images % (other_images[1] - other_images[0]),
            calibration_images,
        ),
        question=question,
        seed=seed,
    )
    one = replace(
        draws,
        query=replace(draws.query, control=replace(control, partial=(0.1, 0.25))),
        calibration=replace(draws.calibration, examples=owner_images),
        question=replace(question, calibration_share=1.0, replicates=min(5, replicates)),
    )
    return World(one, draws, kinds, owners)


def target_of(owner: Owner) -> Target:
    """Return the training data for this kind of owner. Each owner gets a random twentieth of the owners' images."""
    return Target(query=owner.share, outside=owner.images / 20)


def planned(asked_for: World) -> dict[Key, Mixture]:
    """Return all trainings of a world."""
    mixtures: dict[Key, Mixture] = {}
    for calibration in CALIBRATIONS:
        for model, mixture in of_audit(asked_for.by(calibration)).items():
            mixtures[calibration, model] = mixture
    for number, owner in enumerate(asked_for.kinds):
        for index in range(asked_for.owners):
            mixture = training_of(asked_for.draws, target_of(owner), "target", APART + index)
            mixtures["owner", ModelId("target", number, index)] = mixture
    return mixtures


@dataclass(frozen=True)
class Judged:
    """The answer about an owner's table, and the checks that make it not assessable.

    `judge` is an element of JUDGES.
    """

    judge: str
    owner: Owner
    change: str
    answer: str
    unlike: str
    high: float  # upper limit of the share


def try_recognition(world: World, answers: Mapping[Key, pa.Table]) -> pa.Table:
    """Run the audit's recognition trial (RECOGNITION).

    It uses models with the largest known share, judged by draws from D_C.
    """
    tables = []
    for (whose, _), table in answers.items():
        if whose == CALIBRATIONS[-1]:
            tables.append(table)
    return recognition(Recognition(decisions_of(world.draws, ())), tables)


def judge_owners(world: World, answers: Mapping[Key, pa.Table], tried: pa.Table) -> Iterator[Judged]:
    """Yield the answers about each owner in a world, with each change, by each of JUDGES.

    `tried` is the audit's recognition trial, which limits the conclusions from unbound tables.
    """
    for calibration in CALIBRATIONS:
        judges: dict[str, RecognitionTrial | None] = {calibration: None}
        if calibration == CALIBRATIONS[-1]:
            judges[UNBOUND] = read_trial([tried])
        config = world.by(calibration)
        owner_tables = []
        for (whose, _), table in answers.items():
            if whose in (calibration, "owner"):
                owner_tables.append(table)
        matrix = confidence_matrix(owner_tables)
        targets = tuple(NamedTarget(owner.name, "outputs") for owner in world.kinds)
        decisions = decisions_of(config, targets)
        for change in CHANGES:
            compared = ModelEffects(decisions, changed(matrix, CHANGES[change], world.owners))
            for number, owner in enumerate(world.kinds):
                if change and not owner.share:
                    continue
                for model in matrix.replicates("target", number):
                    tested = compared.test_target(number, [model])
                    for judge, tried_too in judges.items():
                        row = target_row(compared, number, [model], tested, tested.p.surer, tried_too)
                        checks = []
                        for check in ("accuracy", "agreement"):
                            if row[f"{check}_p"] < UNLIKE:
                                checks.append(check)
                        unlike = " and ".join(checks)
                        yield Judged(judge, owner, change, row["decision"], unlike, row["share_high"])


def changed(matrix: ConfidenceMatrix, change: Change, owners: int) -> ConfidenceMatrix:
    """Apply a change to the answers of all owners. The clean model belongs to the next owner who holds none of D_Q."""
    models = dict(matrix.models)
    for model, answers in matrix.models.items():
        if model.kind == "target":
            clean = matrix.models[ModelId("target", 0, (model.replicate + 1) % owners)]
            models[model] = change(answers, clean, matrix.is_control)
    return replace(matrix, models=models)


def markdown(results: Sequence[Judged]) -> str:
    """Render one row per kind of owner and change."""
    lines = [
        f"| owner | {' | '.join(JUDGES)} | *forgotten* by {' | *forgotten* by '.join(JUDGES[1:])} |",
        "|---|---|---|---|---|---|",
    ]
    for owner, change in dict.fromkeys((item.owner, item.change) for item in results):
        cells = [f"{owner.name}{', ' * bool(change)}{change}"]
        by_judge = {}
        for judge in JUDGES:
            key = (owner, change, judge)
            answers = []
            for one in results:
                if (one.owner, one.change, one.judge) == key:
                    answers.append(one.answer)
            by_judge[judge] = answers
            cells.append(", ".join(str(answers.count(name)) for name in ANSWERS))
        for judge in JUDGES[1:]:
            cleared = by_judge[judge].count("forgotten")
            count = len(by_judge[judge])
            low, high = exact_interval(cleared, count)
            cells.append(f"{100 * cleared / count:.0f} % [{100 * low:.0f}, {100 * high:.0f}]")
        lines.append(f"| {' | '.join(cells)} |")
    return (
        "\n".join(lines)
        + f"\n\nCells: {', '.join(ANSWERS)}. Intervals: Clopper-Pearson, 95 %; owners of a world share the draw of the "
        "control set.\n"
    )


def describe_trials(trials: Sequence[pa.Table]) -> str:
    """Describe how many of the audit's recognising models pass in each world."""
    rows = [row for table in trials for row in table.to_pylist()]
    counts = ", ".join(f"{row['passed']} of {row['pairs']}" for row in rows)
    share = max((row["share"] for row in rows), default=0)
    return (
        f"\nThe audit's trial of recognition, by its own models of {100 * share:g} % of D_Q: {counts} would pass, "
        "world by world.\n"
    )


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--worlds", type=int, default=2, help="audits, each with its own images and seed")
    parser.add_argument("--seed", type=int, default=5000, help="of the first world; the next has the next one")
    parser.add_argument(
        "--share", type=float, default=0.05, help="share of D_C, 1,000 images, that a model is trained on"
    )
    parser.add_argument("--replicates", type=int, default=8, help="comparison models of each kind")
    parser.add_argument("--owners", type=int, default=10, help="of each kind in each world")
    parser.add_argument(
        "--kinds", type=int, default=len(OWNERS), help="number of kinds of OWNERS, starting with the first"
    )
    parser.add_argument("--models", type=Path, help="folder that stores the trained models")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results: list[Judged] = []
    trials: list[pa.Table] = []
    for number in range(options.worlds):
        kinds = OWNERS[: options.kinds]
        world_config = world(
            options.tiny,
            options.seed + number,
            options.share,
            options.replicates,
            options.owners,
            kinds,
        )
        path = options.models and options.models / f"{world_config.draws.seed}.feather"
        models = trained(planned(world_config), path)
        answers = {}
        for key, table in models.items():
            answers[key] = asked(world_config.draws, key[1], [table])
        trials.append(try_recognition(world_config, answers))
        results += judge_owners(world_config, answers, trials[-1])
    setting = measurement_facts(world_config.draws.query.data.name, torch.device("cpu"))
    images = len(world_config.draws.query.pool.rows(load(world_config.draws.query.data)))
    question = world_config.draws.question
    known_shares = ", ".join(f"{share:g}" for share in world_config.draws.query.control.partial)
    setting["audit"] = (
        f"{images} images, half held back; models of 1,000 images, a share of {options.share:g} of D_C; "
        f"{question.replicates} replicates, known shares {known_shares}; mlp1, "
        f"{question.training.epochs} epochs"
    )
    setting["seeds"] = f"{options.seed} to {options.seed + options.worlds - 1}, one for each of the worlds"
    publish_counts(
        "Owners with their own training data", setting, markdown(results) + describe_trials(trials), options.out
    )
