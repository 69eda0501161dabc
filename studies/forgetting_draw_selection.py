"""How often are innocent owners accused if the provider chooses the draw, and if a nonce binds it?

    python -m studies forgetting_draw_selection [--tiny] [--seed 4000] [--out FILE]

The provider trains three models like the owners', tries secrets before sharing any data, and keeps the secret whose
draw gives these models the highest confidence on D_Q. The owners train on other images from the domain. The audit's
draw, scores and test judge each owner separately, and an owner is accused if p is at most the level of the rule. A
bound draw includes a nonce chosen after the secret. Owners share a draw, so intervals are computed over draws. The data
set is MNIST (1,000 D_Q images and 1,000 control images), or digits with `--tiny`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from studies.forgetting_evasion import log_p, trained, training_of
from studies.interface import study_parser
from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.classifier import Classifier
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.exchangeability import effect, p_values, scores
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.target_evidence import LEVEL
from tasks.contract.summaries import Estimate
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tasks.datasets.mixtures import Part, Remainder
from tasks.models.catalog import Network
from tasks.numerics import seeds
from tasks.numerics.statistics import clustered_proportion

Array = NDArray[np.float64]
OWNER = Target(outside=0.5)  # a random half of the other images in the domain, different for each model
# Numbers of models.
PROVIDERS = 3
CALIBRATION = 5


@dataclass(frozen=True)
class Size:
    """The audit, and the numbers of owners, secrets tried, draws and permutations per test."""

    config: Forgetting
    owners: int
    tries: tuple[int, ...]
    draws: int
    permutations: int


@dataclass(frozen=True)
class Accused:
    """The fraction of owners accused after this number of tries."""

    tries: int
    is_bound: bool
    share: Estimate


def size(tiny: bool, seed: int) -> Size:
    if tiny:
        data = "digits"
        pool = 200
        other_images = 300
        epochs = 3
    else:
        data = "mnist"
        pool = 2000
        other_images = 4000
        epochs = 30
    dataset = pin(Dataset(data))
    config = Forgetting(
        query=QuerySet(dataset, 0, pool),
        calibration=Part(dataset, pool, other_images // 2),
        question=Scores(
            audited=Trained((OWNER,), Part(dataset, pool + other_images // 2, other_images)),
            training=Classifier(Network("mlp1"), epochs=epochs, schedule=((epochs * 4 // 5, 0.1),)),
        ),
        seed=seed,
    )
    if tiny:
        return Size(config, 4, (1, 5), 2, 99)
    return Size(config, 20, (1, 20, 100, 2000), 40, 999)


def image_scores(size: Size) -> tuple[Array, Array]:
    """Return the scores of the images in the pool under the provider's and the owners' models, both (models, n)."""
    config = size.config
    kinds = [("calibration", Target(calibration=1.0), CALIBRATION), ("target", OWNER, PROVIDERS + size.owners)]
    plan = {}
    for kind, data, count in kinds:
        for index in range(count):
            plan[(kind, index)] = training_of(config, data, kind, index)
    images = load(config.query.data)
    rows = config.query.pool.rows(images)
    labels = images.train_labels[rows]
    true_class = {}
    for model, table in trained(plan, None).items():
        true_class[model] = np.exp(log_p(table, images.train_images[rows]))[np.arange(len(rows)), labels]
    calibration = np.stack([confidence for (kind, _), confidence in true_class.items() if kind == "calibration"])
    owner_scores = np.stack(
        [scores(confidence, calibration) for (kind, _), confidence in true_class.items() if kind == "target"]
    )
    return owner_scores[:PROVIDERS], owner_scores[PROVIDERS:]


def is_control(query: QuerySet, seed: int, images: Images) -> NDArray[np.bool_]:
    """Return the mask of control images in the pool under this secret and nonce, (n,)."""
    part = query.query_part(seed)
    assert isinstance(part, Remainder)
    return np.isin(query.pool.rows(images), part.held_rows(images))


def with_draw(query: QuerySet, **fields: str) -> QuerySet:
    """Return the query set with this secret, nonce or commitment."""
    assert query.control is not None
    return replace(query, control=replace(query.control, **fields))


def choose_secret(size: Size, provider: Array, tries: int, chance: random.Random) -> QuerySet:
    """Return the query set with the secret that gives the provider's models the highest confidence on D_Q."""
    images = load(size.config.query.data)
    query = size.config.query
    seed = size.config.seed
    tried = []
    for _ in range(tries):
        tried.append(with_draw(query, secret=f"{chance.getrandbits(128):032x}"))

    def mean_effect(query: QuerySet) -> float:
        is_control_image = is_control(query, seed, images)
        return float(np.mean([effect(image_scores, is_control_image) for image_scores in provider]))

    return max(tried, key=mean_effect)


def counts(size: Size) -> Iterator[Accused]:
    """Yield the fraction of owners accused after each number of tries, for a chosen and for a bound draw."""
    provider, owners = image_scores(size)
    images = load(size.config.query.data)
    seed = size.config.seed
    for tries in size.tries:
        shares: dict[bool, list[float]] = {False: [], True: []}
        for draw in range(size.draws):
            chance = random.Random(f"{seed} {tries} {draw}")
            chosen_query = choose_secret(size, provider, tries, chance)
            bound = with_draw(chosen_query, nonce=f"{chance.getrandbits(128):032x}")
            for is_bound, query in ((False, chosen_query), (True, bound)):
                is_control_image = is_control(query, seed, images)
                generator = seeds.generator(seed, "chosen draws", tries, draw, int(is_bound))
                p = [p_values(values, is_control_image, size.permutations, generator).surer for values in owners]
                shares[is_bound].append(float(np.mean([item <= LEVEL for item in p])))
        for is_bound, values in shares.items():
            yield Accused(tries, is_bound, clustered_proportion(values, size.owners))


def markdown(size: Size, results: Sequence[Accused]) -> str:
    lines = [
        f"| secrets tried | accused, chosen by one party (stated {100 * LEVEL:g} %) | accused, bound by a nonce |",
        "|---|---|---|",
    ]
    for tries in size.tries:
        chosen_share = next(item.share for item in results if item.tries == tries and not item.is_bound)
        bound_share = next(item.share for item in results if item.tries == tries and item.is_bound)
        lines.append(f"| {tries:,} | {percent(chosen_share)} | {percent(bound_share)} |")
    lines += ["", f"{size.draws} draws of {size.owners} owners each; 95 % intervals over draws."]
    return "\n".join(lines) + "\n"


def percent(share: Estimate) -> str:
    if share.low is None:
        ends = ""
    else:
        ends = f" [{100 * share.low:.1f}, {100 * (share.high or 0):.1f}]"
    return f"{100 * (share.value or 0):.1f} %{ends}"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=4000, help="of the audit and all its trainings")
    options = parser.parse_args(arguments)
    study_size = size(options.tiny, options.seed)
    setting = measurement_facts(study_size.config.query.data.name, torch.device("cpu")) | {"seed": str(options.seed)}
    publish_counts(
        "Draws that a provider chooses", setting, markdown(study_size, list(counts(study_size))), options.out
    )
