"""How often are innocent owners accused if the provider chooses D_C after it has their table?

    python -m studies forgetting_analysis_selection [--tiny] [--seed 4100] [--out FILE]

A nonce binds the draw. Each candidate for D_C consists of 300 other MNIST images, on which the audit trains its five
calibration models. For each owner, the provider keeps a candidate that accuses the owner. `orchestrator.planning`
admits candidates that match the commitment: all candidates if only the pool was committed, as in earlier versions, and
only the first candidate if the entire configuration was committed. The test is the audit's own, over 1,999 halves of
equal size, for which its effect increases with the difference in means. Owners share a draw, so intervals are computed
over draws.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from measurement.report import measurement_facts, publish_counts
from orchestrator.planning.commitment import check_commitment, commitment_of, draw_of
from studies.forgetting_draw_selection import is_control, percent, with_draw
from studies.forgetting_evasion import log_p, scores_of, trained, training_of
from studies.interface import study_parser
from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.classifier import Classifier
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.exchangeability import scores
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.target_evidence import LEVEL
from tasks.audits.forgetting.trainings import Kind
from tasks.contract.summaries import Estimate
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.models.catalog import Network
from tasks.numerics.statistics import clustered_proportion

Floats = NDArray[np.float64]
OWNER = Target(outside=0.5)  # a random half of the other images in the domain, different for each model
CALIBRATION = Target(calibration=1.0)
STACKED = 20  # models trained together


@dataclass(frozen=True)
class Setting:
    """The committed audit, and the numbers of D_C candidates, images per candidate, owners, draws and halves."""

    config: Forgetting
    candidates: int
    images: int
    owners: int
    draws: int
    halves: int
    tries: tuple[int, ...]

    def candidate(self, config: Forgetting, number: int) -> Forgetting:
        """Return the configuration with another D_C. Candidate 0 is the committed one."""
        first = config.query.examples + number * self.images
        return replace(config, calibration=replace(config.calibration, first=first))


@dataclass(frozen=True)
class Accused:
    """The fraction of owners accused by the best admitted candidate among the first `candidates`."""

    candidates: int
    admitted: int
    is_analysis_bound: bool
    share: Estimate


def setting_of(tiny: bool, seed: int) -> Setting:
    if tiny:
        data = "digits"
        pool = 200
        candidates = 4
        images = 100
        other_images = 300
    else:
        data = "mnist"
        pool = 800
        candidates = 48
        images = 300
        other_images = 2000
    dataset = pin(Dataset(data))
    config = Forgetting(
        query=QuerySet(dataset, 0, pool),
        calibration=Part(dataset, pool, images),
        question=Scores(
            audited=Trained((OWNER,), Part(dataset, pool + candidates * images, other_images)),
            training=Classifier(Network("mlp1"), epochs=2 if tiny else 8, schedule=()),
        ),
        seed=seed,
    )
    if tiny:
        return Setting(config, candidates, images, 4, 5, 99, (1, 4))
    return Setting(config, candidates, images, 16, 200, 1999, (1, 4, 16, 48))


def image_scores(setting: Setting) -> Floats:
    """Return the audit's scores for the images in the pool, (candidates, owners, n)."""
    config = setting.config
    data = load(config.query.data)
    rows = config.query.pool.rows(data)
    labels = data.train_labels[rows]

    def ask(jobs: list[tuple[Forgetting, Target, Kind, int]]) -> Floats:
        plan = {index: training_of(*job) for index, job in enumerate(jobs)}
        confidences = []
        for start in range(0, len(plan), STACKED):
            part = {index: plan[index] for index in list(plan)[start : start + STACKED]}
            for table in trained(part, None).values():
                confidences.append(np.exp(log_p(table, data.train_images[rows]))[np.arange(len(rows)), labels])
        return np.stack(confidences)

    owners = ask([(config, OWNER, "target", index) for index in range(setting.owners)])
    candidate_scores = []
    for number in range(setting.candidates):
        candidate = setting.candidate(config, number)
        calibration = ask(
            [(candidate, CALIBRATION, "calibration", index) for index in range(scores_of(candidate).replicates)]
        )
        candidate_scores.append([scores(owner, calibration) for owner in owners])
    return np.array(candidate_scores)


def admitted_candidates(setting: Setting, bound: Forgetting) -> list[int]:
    """Return the candidates admitted by this configuration's commitment."""
    admitted = []
    for number in range(setting.candidates):
        draw = draw_of("forgetting", setting.candidate(bound, number))
        assert draw is not None
        try:
            check_commitment(draw)
        except ValueError:
            continue
        admitted.append(number)
    return admitted


def bind(setting: Setting, chance: random.Random, is_analysis_bound: bool) -> Forgetting:
    """Return the configuration with a secret, a commitment, and a nonce chosen after the commitment."""
    query = with_draw(setting.config.query, secret=f"{chance.getrandbits(128):032x}")
    draw = draw_of("forgetting", replace(setting.config, query=query))
    assert draw is not None
    if is_analysis_bound:
        commitment = commitment_of(draw)
    else:
        commitment = draw.pool_commitment
    nonce = f"{chance.getrandbits(128):032x}"
    return replace(setting.config, query=with_draw(query, commitment=commitment, nonce=nonce))


def accused_owners(of_pool: Floats, null: Floats, control: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the mask of owners accused by each candidate, (candidates, owners).

    `null` contains sums over random halves.
    """
    flat = of_pool.reshape(-1, of_pool.shape[-1])
    observed = flat[:, ~control].sum(axis=1)
    p_values = (1 + (null >= observed - 1e-9).sum(axis=0)) / (len(null) + 1)
    accused: NDArray[np.bool_] = (p_values <= LEVEL).reshape(of_pool.shape[:2])
    return accused


def counts(setting: Setting) -> Iterator[Accused]:
    of_pool = image_scores(setting)
    generator = np.random.default_rng(setting.config.seed)
    n = of_pool.shape[-1]
    halves = np.stack([generator.permutation(n) < n // 2 for _ in range(setting.halves)]).astype(float)
    null = halves @ of_pool.reshape(-1, n).T
    data = load(setting.config.query.data)
    for is_analysis_bound in (False, True):
        chance = random.Random(f"{setting.config.seed} {is_analysis_bound}")
        shares: dict[int, list[float]] = {tries: [] for tries in setting.tries}
        admitted: list[int] = []
        for _ in range(setting.draws):
            bound = bind(setting, chance, is_analysis_bound)
            admitted = admitted_candidates(setting, bound)
            accused = accused_owners(of_pool, null, is_control(bound.query, bound.seed, data))
            for tries, p_values in shares.items():
                open_to_provider = [number for number in admitted if number < tries]
                p_values.append(float(accused[open_to_provider].any(axis=0).mean()))
        for tries, p_values in shares.items():
            admitted_count = sum(number < tries for number in admitted)
            yield Accused(tries, admitted_count, is_analysis_bound, clustered_proportion(p_values, setting.owners))


def markdown(setting: Setting) -> Iterator[str]:
    yield f"| commitment to | D_C tried after the table | admitted | innocents accused (stated {100 * LEVEL:g} %) |"
    yield "|---" * 4 + "|"
    for results in counts(setting):
        commitment = "the pool (earlier versions)"
        if results.is_analysis_bound:
            commitment = "the whole configuration"
        yield f"| {commitment} | {results.candidates} | {results.admitted} | {percent(results.share)} |"
    yield ""
    yield f"{setting.draws} bound draws of {setting.owners} owners each; 95 % intervals over draws."


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=4100, help="of the audit and all its trainings")
    options = parser.parse_args(arguments)
    setting = setting_of(options.tiny, options.seed)
    device = measurement_facts(setting.config.query.data.name, torch.device("cpu")) | {"seed": str(options.seed)}
    publish_counts("Analyses that a provider chooses", device, "\n".join(markdown(setting)) + "\n", options.out)
