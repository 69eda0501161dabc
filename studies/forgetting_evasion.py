"""Which owners who change their model's outputs does `forgetting` detect, and which do published measures?

    python -m studies forgetting_evasion [--tiny] [--seed 1000] [--models FILE] [--out FILE]

Owners train on D_C and on all of D_Q, a tenth of it or none. Each returns a table of probabilities for the audit's
images, changed in one of the ways listed in CHEATS. The audit reads and judges each table separately, as its only
target. Counts are numbers of tables. For PrivLeak, they are tables with an interval below 0. U-LiRA and forgetting
quality need several models per owner, so they compare the first ten, changed in the same way, with ten calibration
models.

The data set is MNIST (4,000 images, half of them held back, and 2,000 others as D_C), or digits with `--tiny`. With
`--models`, the trained models are stored in this file and reused.
"""

from __future__ import annotations

import hashlib
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pyarrow import feather
from scipy import special

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.forgetting import audited
from tasks.audits.forgetting.classifier import Classifier
from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.data_sets import load_data_sets
from tasks.audits.forgetting.measures import baselines
from tasks.audits.forgetting.measures.decisions import target_row
from tasks.audits.forgetting.measures.query_confidences import Ask, ask
from tasks.audits.forgetting.model_effects import Decisions, ModelEffects
from tasks.audits.forgetting.query_set import ControlSet, QuerySet, handout_order, load_probes
from tasks.audits.forgetting.target import NamedTarget, Target
from tasks.audits.forgetting.trainings import Kind, ModelId, training_job
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Pixels
from tasks.datasets.mixtures import Part
from tasks.external.blinding import HandedOut
from tasks.external.handout import image_of
from tasks.models.catalog import Network
from tasks.models.networks import architecture_of, weights_of_model
from tasks.training import mixed
from tasks.worker.files import File
from tasks.worker.files import pin as pin_file

Array = NDArray[np.float64]
Key = TypeVar("Key")  # identifies a trained model
OWNERS: Mapping[str, Target] = {
    "all of D_Q": Target(query=1.0, calibration=1.0),
    "10 % of D_Q": Target(query=0.1, calibration=1.0),
    "none of it": Target(calibration=1.0),
}
INNOCENT = Target(calibration=1.0)
CLEAN = 2  # index of the owners without D_Q
APART = 1000  # first replicate used for owners, so that their shares differ from the audit's
ANSWERS = ("not forgotten", "not assessable", "undecided", "forgotten")


@dataclass(frozen=True)
class Size:
    """The audit, and the number of owners of each kind."""

    config: Forgetting
    owners: int


def size(tiny: bool, seed: int) -> Size:
    if tiny:
        data = "digits"
        pool = 200
        held_back = 100
        owners = 2
        replicates = 3
        epochs = 5
    else:
        data = "mnist"
        pool = 4000
        held_back = 2000
        owners = 20
        replicates = 10
        epochs = 30
    config = Forgetting(
        query=QuerySet(pin(Dataset(data)), 0, pool, ControlSet(permutations=1999)),
        calibration=Part(pin(Dataset(data)), pool + held_back, held_back),
        question=Scores(
            audited=audited.Trained(tuple(OWNERS.values()), None),
            training=Classifier(Network("mlp1"), epochs=epochs, schedule=((epochs * 4 // 5, 0.1),)),
            replicates=replicates,
        ),
        seed=seed,
    )
    return Size(config, owners)


@dataclass(frozen=True, eq=False)
class Desk:
    """The information available to an owner who fills in a table.

    `audited` and `clean` are log-probabilities (images, classes) under the audited model and under a model that never
    saw D_Q. `is_trained_on` (images,) marks the owner's training images.
    """

    audited: Array
    clean: Array
    pictures: Pixels
    is_trained_on: NDArray[np.bool_]


@dataclass(frozen=True)
class Cheat:
    """A way of filling in a table: probabilities (images, classes), and the number of decimals printed."""

    name: str
    probabilities: Callable[[Desk], Array]
    decimals: int = 6


def honest(desk: Desk) -> Array:
    return np.asarray(np.exp(desk.audited))


def heated(desk: Desk, temperature: float) -> Array:
    """Divide the logits by a temperature, which leaves all predictions unchanged."""
    return np.asarray(special.softmax(desk.audited / temperature, axis=1))


def noised(desk: Desk, deviation: float, of_logits: bool) -> Array:
    """Add normal noise to probabilities or logits. Equal images get equal noise."""
    noise = np.stack([noise_of(picture, desk.audited.shape[1]) for picture in desk.pictures]) * deviation
    if of_logits:
        return np.asarray(special.softmax(desk.audited + noise, axis=1))
    changed = np.clip(np.exp(desk.audited) + noise, 1e-6, None)
    return np.asarray(changed / changed.sum(axis=1, keepdims=True))


def noise_of(picture: NDArray[np.uint8], count: int) -> Array:
    digest = hashlib.sha256(picture.tobytes()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little")).normal(size=count)


def rounded(desk: Desk, decimals: int) -> Array:
    """Round down, then increment the values with the largest remainders so that each row sums to 1."""
    scaled = np.exp(desk.audited) * 10**decimals
    floors = np.floor(scaled)
    remainder = np.rint(10**decimals - floors.sum(axis=1)).astype(int)
    places = np.argsort(np.argsort(-(scaled - floors), axis=1), axis=1)
    return np.asarray((floors + (places < remainder[:, None])) / 10**decimals)


def clipped(desk: Desk, maximum: float) -> Array:
    """Cap probabilities at `maximum` and divide the excess equally among the other classes."""
    probabilities = np.exp(desk.audited)
    cut = np.clip(probabilities - maximum, 0, None).sum(axis=1, keepdims=True)
    return np.asarray(np.where(probabilities > maximum, maximum, probabilities + cut / (probabilities.shape[1] - 1)))


def mixed_with_clean(desk: Desk) -> Array:
    return np.asarray((np.exp(desk.audited) + np.exp(desk.clean)) / 2)


def anothers(desk: Desk) -> Array:
    return np.asarray(np.exp(desk.clean))


def recognised(desk: Desk) -> Array:
    """Return the clean model's answers for training images, which the owner recognises."""
    return np.where(desk.is_trained_on[:, None], np.exp(desk.clean), np.exp(desk.audited))


CHEATS = (
    Cheat("nothing", honest),
    *(Cheat(f"temperature {t:g}", partial(heated, temperature=t)) for t in (1.5, 2.0, 4.0)),
    Cheat("noise of probabilities, sd 0.05", partial(noised, deviation=0.05, of_logits=False)),
    Cheat("noise of logits, sd 1", partial(noised, deviation=1.0, of_logits=True)),
    Cheat("noise of logits, sd 3", partial(noised, deviation=3.0, of_logits=True)),
    *(Cheat(f"{d} decimal{'s' * (d > 1)}", partial(rounded, decimals=d), d) for d in (2, 1)),
    *(Cheat(f"clipped at {maximum:g}", partial(clipped, maximum=maximum)) for maximum in (0.99, 0.9)),
    Cheat("mean with a clean model", mixed_with_clean),
    Cheat("a clean model's table", anothers),
    Cheat("a clean model's answers for recognised images", recognised),
)


def planned(size: Size) -> dict[ModelId, mixed.Mixture]:
    """Return the trainings of all models.

    These are calibration models, models with known shares, and owners' models with separate replicates.
    """
    mixtures = of_audit(size.config)
    for number, target in enumerate(OWNERS.values()):
        for owner in range(size.owners):
            model = ModelId("target", number, owner)
            mixtures[model] = training_of(size.config, target, "target", APART + owner)
    return mixtures


def training_of(config: Forgetting, target: Target, kind: Kind, replicate: int) -> mixed.Mixture:
    """Return the training of one model in the audit."""
    mixture: mixed.Mixture = training_job(scores_of(config), load_data_sets(config), target, kind, replicate).config
    return mixture


def scores_of(config: Forgetting) -> Scores:
    """Return the audit's question, which configures the training and comparison of models."""
    assert isinstance(config.question, Scores)
    return config.question


def decisions_of(config: Forgetting, targets: tuple[NamedTarget, ...]) -> Decisions:
    """Configure the decision on these targets, based on models with all shares in `partial`."""
    control = config.query.control
    assert control is not None
    limits = control.partial, control.negligible, control.permutations
    return Decisions(targets, *limits, config.seed, scores_of(config).calibration_share)


def of_audit(config: Forgetting) -> dict[ModelId, mixed.Mixture]:
    """Return the trainings of comparison models: calibration models and models with known shares."""
    mixtures: dict[ModelId, mixed.Mixture] = {}
    control = config.query.control
    assert control is not None
    for replicate in range(scores_of(config).replicates):
        mixtures[ModelId("calibration", None, replicate)] = training_of(config, INNOCENT, "calibration", replicate)
        for number, share in enumerate(control.partial):
            target = Target(query=share, calibration=1.0)
            mixtures[ModelId("partial", number, replicate)] = training_of(config, target, "partial", replicate)
    return mixtures


def trained(plan: Mapping[Key, mixed.Mixture], path: Path | None) -> dict[Key, pa.Table]:
    """Train the models, or read them from the file if it exists."""
    if path is not None and path.exists():
        stored_tables = feather.read_table(path)
        assert stored_tables.num_rows == len(plan), (
            f"{path} has {stored_tables.num_rows} models, not {len(plan)}; name another file"
        )
        return {model: stored_tables.slice(index, 1) for index, model in enumerate(plan)}
    results = dict(mixed.train_many(list(plan.values()), [[] for _ in plan]))
    tables = {}
    for index, model in enumerate(plan):
        table = results[index]
        if isinstance(table, Exception):
            raise table
        tables[model] = table
    if path is not None:
        feather.write_feather(pa.concat_tables(tables.values()), path)
    return tables


def query_rows(config: Forgetting, mixture: mixed.Mixture) -> NDArray[np.int64]:
    """Return the D_Q rows on which a model was trained."""
    images = load(config.query.data)
    rows = [share.rows(images) for share in mixture.shares if share.part == config.query_part]
    return np.concatenate([np.empty(0, np.int64), *rows])


@dataclass(frozen=True)
class Counted:
    """Counts of tables from one kind of owner with one change."""

    cheat: str
    owner: str
    answers: Mapping[str, int]
    privleak_below: int  # tables with an interval below 0
    u_lira: float | None  # over all tables together
    quality: float | None
    quality_null: float | None


def counts(size: Size, models_path: Path | None = None, cheats: Sequence[Cheat] = CHEATS) -> Iterator[Counted]:
    """Yield the counts for every change and kind of owner."""
    config = size.config
    plan = planned(size)
    models = trained(plan, models_path)
    probes, order = load_probes(config.probes), handout_order(config.probes)
    pictures = probes.images[order.order]
    log_probabilities = {model: log_p(table, pictures) for model, table in models.items() if model.kind == "target"}
    audit = [asked(config, model, [table]) for model, table in models.items() if model.kind != "target"]
    targets = tuple(NamedTarget(name, "outputs") for name in OWNERS)
    decisions = decisions_of(config, targets)
    for cheat in cheats:
        tables = []
        for model in log_probabilities:
            assert model.target is not None
            # An innocent owner uses another innocent owner's model as the clean model.
            clean = ModelId("target", CLEAN, (model.replicate + (model.target == CLEAN)) % size.owners)
            is_held = np.isin(probes.rows, query_rows(config, plan[model])) & ~probes.is_control
            desk = Desk(log_probabilities[model], log_probabilities[clean], pictures, is_held[order.order])
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "table.csv"
                path.write_text(table_of(order, cheat.probabilities(desk), cheat.decimals))
                tables.append(asked(config, model, [], pin_file(File(str(path)))))
        matrix = confidence_matrix([*audit, *tables])
        printed = max(answers.printed for model, answers in matrix.models.items() if model.kind == "target")
        compared = ModelEffects(decisions, matrix, printed)
        for number, owner in enumerate(OWNERS):
            yield counted(cheat.name, owner, compared, number)


def asked(config: Forgetting, model: ModelId, inputs: Sequence[pa.Table], outputs: File | None = None) -> pa.Table:
    """Return the answers for the probes (CONFIDENCES), from a trained model or from a table of outputs."""
    return ask(Ask(model, config.probes, outputs=outputs, decimals=scores_of(config).decimals), inputs)


def log_p(table: pa.Table, pictures: Pixels) -> Array:
    """Return the log-probabilities of a trained model, (images, classes)."""
    logits = mixed.logits(architecture_of(table), weights_of_model(table), pictures).astype(np.float64)
    return np.asarray(special.log_softmax(logits, axis=1))


def table_of(order: HandedOut, probabilities: Array, decimals: int) -> str:
    """Format the table as CSV, in the order of the handout."""
    lines = ["image," + ",".join(f"p{number}" for number in range(probabilities.shape[1]))]
    for index, row in enumerate(probabilities):
        lines.append(f"{image_of(order.name, index)}," + ",".join(f"{p:.{decimals}f}" for p in row))
    return "\n".join(lines) + "\n"


def counted(cheat: str, owner: str, compared: ModelEffects, number: int) -> Counted:
    """Judge each table separately, and all tables together by published measures."""
    matrix = compared.matrix
    target = compared.config.targets[number]
    models = matrix.replicates("target", number)
    answers = []
    below = 0
    for model in models:
        tested = compared.test_target(number, [model])
        answers.append(target_row(compared, number, [model], tested, tested.p.surer)["decision"])
        other_answers = {}
        for other_model, model_answers in matrix.models.items():
            if other_model == model or other_model not in models:
                other_answers[other_model] = model_answers
        high = baselines.target_row(replace(matrix, models=other_answers), number, target)["privleak_high"]
        below += high is not None and high < 0
    together = baselines.target_row(matrix, number, target)
    of_answers = {answer: answers.count(answer) for answer in ANSWERS}
    return Counted(cheat, owner, of_answers, below, together["u_lira"], together["quality"], together["quality_null"])


def markdown(results: Sequence[Counted], tables: int) -> str:
    """Render one row per change, with the counts of answers by kind of owner."""
    owners = list(dict.fromkeys(counted.owner for counted in results))
    lines = [
        f"| change, {tables} tables each | {' | '.join(owners)} | PrivLeak below 0 | U-LiRA | quality |",
        f"|---|{'---|' * len(owners)}---|---|---|",
    ]
    for cheat in dict.fromkeys(counted.cheat for counted in results):
        cheat_rows = [counted for counted in results if counted.cheat == cheat]
        cells = []
        for counted in cheat_rows:
            cells.append(", ".join(str(counted.answers[answer]) for answer in ANSWERS))
        cells.append(", ".join(str(counted.privleak_below) for counted in cheat_rows))
        cells.append(", ".join(short(counted.u_lira) for counted in cheat_rows))
        cells.append(", ".join(short(counted.quality) for counted in cheat_rows))
        lines.append(f"| {cheat} | {' | '.join(cells)} |")
    nulls = sorted({short(counted.quality_null) for counted in results})
    if len(nulls) == 1:
        quality = nulls[0]
    else:
        quality = f"{nulls[0]} (no ties) to {nulls[-1]}"
    return "\n".join(lines) + f"\n\nCells: {', '.join(ANSWERS)}. After retraining: U-LiRA 0.5, quality {quality}.\n"


def short(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def publish_tables(
    title: str,
    parser: ArgumentParser,
    arguments: Sequence[str],
    counts: Callable[[Size, Path | None], Iterator[Counted]],
    max_tables: int | None = None,
) -> None:
    """Print the counts over all tables, or over `max_tables` of each kind, and write them to the file in `--out`."""
    parser.add_argument("--seed", type=int, default=1000, help="of the audit and all its trainings")
    parser.add_argument("--models", type=Path, help="keep trained models in this file, and read them if it exists")
    options = parser.parse_args(arguments)
    study_size = size(options.tiny, options.seed)
    setting = measurement_facts(study_size.config.query.data.name, torch.device("cpu")) | {"seed": str(options.seed)}
    if max_tables is None:
        tables = study_size.owners
    else:
        tables = min(max_tables, study_size.owners)
    publish_counts(title, setting, markdown(list(counts(study_size, options.models)), tables), options.out)


def main(arguments: Sequence[str]) -> None:
    publish_tables("Owners who cheat", study_parser(__name__, __doc__), arguments, counts)
