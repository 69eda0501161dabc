"""How often does `forgetting` find a known share of D_Q, and accuse models that hold none of it?

    python -m studies forgetting_error_rates [--tiny] [--worlds 6] [--seed 2000] [--models FILE] [--out FILE]

Each world is a separate audit. It has 2,000 MNIST images, randomly divided into D_Q and the control set, 1,000 other
digits on photographs as D_C, five calibration models, and five models for each share in `partial`. Its targets were
trained on D_C and a share of D_Q, on D_C alone, or on D_C and other MNIST digits outside D_Q and the control set. Each
target is judged separately. Some targets return a table of probabilities with logits divided by a temperature.

With `--tiny`, digits are used. With `--models`, the trained models are stored in this file and reused.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from measurement.report import measurement_facts, publish_counts
from studies.forgetting_evasion import (
    ANSWERS,
    APART,
    Desk,
    asked,
    decisions_of,
    heated,
    log_p,
    of_audit,
    table_of,
    trained,
    training_of,
)
from studies.interface import study_parser
from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.classifier import Classifier
from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.measures.decisions import target_row
from tasks.audits.forgetting.measures.power import REQUIRED_POWER, smallest_detected_share
from tasks.audits.forgetting.model_effects import ModelEffects
from tasks.audits.forgetting.query_set import ControlSet, QuerySet, handout_order, load_probes
from tasks.audits.forgetting.target import NamedTarget, Target
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.summaries import Estimate
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.models.catalog import Network
from tasks.numerics.statistics import clustered_proportion, proportion
from tasks.training.mixed import Mixture
from tasks.worker.files import File
from tasks.worker.files import pin as pin_file

DECIMALS = 6  # decimals in a returned table


@dataclass(frozen=True)
class Kind:
    """Targets with the same training data, and the temperatures of their logits. Each world has `models` of them."""

    target: Target
    models: int
    temperatures: tuple[float, ...] = (1.0,)

    def called(self, temperature: float) -> str:
        heat = "" if temperature == 1 else f", T = {temperature:g}"
        return str(self.target).replace("out of domain", "others") + heat


NULL = Kind(Target(calibration=1.0), 7, (1.0, 1.5, 2.0))
KINDS = (
    NULL,
    *(Kind(Target(calibration=1.0, outside=share), 3) for share in (0.1, 0.25, 0.5, 1.0)),
    *(Kind(Target(query=share, calibration=1.0), 4) for share in (0.01, 0.02, 0.05)),
    Kind(Target(query=0.1, calibration=1.0), 4, (1.0, 1.5, 2.0)),
    *(Kind(Target(query=share, calibration=1.0), 4) for share in (0.25, 0.5)),
    Kind(Target(query=1.0, calibration=1.0), 4, (1.0, 2.0)),
)
Whose = tuple[int, ModelId]  # world number, and a model in that world


def worlds(tiny: bool, seed: int, count: int) -> list[Forgetting]:
    """Create the audits. Images and seeds differ between audits."""
    if tiny:
        data = "digits"
        pool = 120
        held_back = 60
        replicates = 3
        epochs = 5
    else:
        data = "mnist"
        pool = 2000
        held_back = 1000
        replicates = 5
        epochs = 30
    images_per_world = pool + 2 * held_back
    targets = tuple(kind.target for kind in KINDS)
    configs = []
    for number in range(count):
        first = number * images_per_world
        outside = Part(pin(Dataset(data)), first + pool + held_back, held_back)
        config = Forgetting(
            query=QuerySet(pin(Dataset(data)), first, pool, ControlSet(permutations=1999)),
            calibration=Part(pin(Dataset(f"{data}-on-photos")), first + pool, held_back),
            question=Scores(
                audited=Trained(targets, outside=outside),
                training=Classifier(Network("mlp1"), epochs=epochs, schedule=((epochs * 4 // 5, 0.1),)),
                replicates=replicates,
            ),
            seed=seed + number,
        )
        configs.append(config)
    return configs


def planned(configs: Sequence[Forgetting], kinds: Sequence[Kind] = KINDS) -> dict[Whose, Mixture]:
    """Return the trainings of all worlds, comparison models and targets, which run in one stack."""
    mixtures: dict[Whose, Mixture] = {}
    for world, config in enumerate(configs):
        mixtures.update({(world, model): mixture for model, mixture in of_audit(config).items()})
        for number, kind in enumerate(kinds):
            for index in range(kind.models):
                mixture = training_of(config, kind.target, "target", APART + index)
                mixtures[world, ModelId("target", number, index)] = mixture
    return mixtures


@dataclass(frozen=True)
class Judged:
    """A judged target: world, kind, temperature, answer, and limits of the share (None if unknown)."""

    world: int
    kind: Kind
    temperature: float
    answer: str
    low: float | None
    high: float | None


def judged(
    world: int, config: Forgetting, models: Mapping[ModelId, pa.Table], kinds: Sequence[Kind] = KINDS
) -> Iterator[Judged]:
    """Judge each target in a world separately."""
    audit = [asked(config, model, [table]) for model, table in models.items() if model.kind != "target"]
    for number, kind in enumerate(kinds):
        kind_models = {
            model: table for model, table in models.items() if (model.kind, model.target) == ("target", number)
        }
        for temperature in kind.temperatures:
            answer_tables = [answers_of(config, model, table, temperature) for model, table in kind_models.items()]
            targets = tuple(
                NamedTarget(kind_of_target.called(1.0), "outputs") for kind_of_target in kinds
            )  # without their training data
            compared = ModelEffects(decisions_of(config, targets), confidence_matrix([*audit, *answer_tables]))
            for model in kind_models:
                tested = compared.test_target(number, [model])
                row = target_row(compared, number, [model], tested, tested.p.surer)
                yield Judged(world, kind, temperature, row["decision"], row["share_low"], row["share_high"])


def answers_of(config: Forgetting, model: ModelId, table: pa.Table, temperature: float) -> pa.Table:
    """Return a target's answers (CONFIDENCES), from its model or from the table returned by its owner."""
    if temperature == 1:
        return asked(config, model, [table])
    probes, order = load_probes(config.probes), handout_order(config.probes)
    pictures = probes.images[order.order]
    log_probabilities = log_p(table, pictures)
    desk = Desk(log_probabilities, log_probabilities, pictures, probes.is_control[order.order])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(table_of(order, heated(desk, temperature), DECIMALS))
        return asked(config, model, [], pin_file(File(str(path))))


@dataclass(frozen=True)
class Counted:
    """Counts for one kind of target at one temperature: answers, and correct limits of the share."""

    kind: Kind
    temperature: float
    answers: Mapping[str, int]
    below_high: int  # targets whose upper limit is at least their share
    above_low: int  # targets whose lower limit is at most their share

    @property
    def count(self) -> int:
        return sum(self.answers.values())


def counted(results: Sequence[Judged]) -> list[Counted]:
    """Count the results by kind and temperature."""
    rows = []
    for kind, temperature in dict.fromkeys((item.kind, item.temperature) for item in results):
        item = []
        for one in results:
            if (one.kind, one.temperature) == (kind, temperature):
                item.append(one)
        held_share = kind.target.query
        answers = [one.answer for one in item]
        rows.append(
            Counted(
                kind,
                temperature,
                {answer: answers.count(answer) for answer in ANSWERS},
                sum(one.high is not None and one.high >= held_share for one in item),
                sum(one.low is not None and one.low <= held_share for one in item),
            )
        )
    return rows


def markdown(results: Sequence[Judged]) -> str:
    """Render one row per kind of target, the smallest share found reliably, and the false accusation rate."""
    rows = counted(results)
    lines = [
        f"| target | {', '.join(ANSWERS)} | found | cleared | upper limit holds | lower limit holds |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = row.answers["not forgotten"], row.answers["forgotten"], row.below_high, row.above_low
        cells = [row.kind.called(row.temperature), ", ".join(str(row.answers[answer]) for answer in ANSWERS)]
        lines.append(f"| {' | '.join([*cells, *(percent(proportion(number, row.count)) for number in numbers)])} |")
    powers = {
        row.kind.target.query: row.answers["not forgotten"] / row.count
        for row in rows
        if row.temperature == 1 and row.kind.target.query
    }
    smallest = smallest_detected_share(powers)
    smallest_share = "none" if smallest is None else f"{100 * smallest:g} %"
    return (
        "\n".join(lines)
        + "\n\nFound: *not forgotten*; cleared: *forgotten*; percentages with 95 % Wilson intervals.\n"
        + f"The smallest share that is found in {100 * REQUIRED_POWER:.0f} % or more, "
        + f"as every greater one: {smallest_share}.\n"
        + accused(results)
    )


def accused(results: Sequence[Judged]) -> str:
    """Describe the false accusations of targets without D_Q.

    The targets in a world share the draw of the control set, so the interval is computed over worlds.
    """
    innocent = []
    for item in results:
        if item.temperature == 1 and not item.kind.target.query:
            innocent.append(item)
    by_world = []
    for world in {item.world for item in innocent}:
        by_world.append([item.answer == "not forgotten" for item in innocent if item.world == world])
    share = clustered_proportion([sum(item) / len(item) for item in by_world], len(by_world[0]))
    return (
        f"Targets that hold none of D_Q and are accused: {sum(map(sum, by_world))} of {len(innocent)}, "
        f"{percent(share)}, over {len(by_world)} worlds, in {sum(any(item) for item in by_world)} of which any is.\n"
    )


def percent(share: Estimate) -> str:
    assert share.value is not None
    assert share.low is not None
    assert share.high is not None
    return f"{100 * share.value:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--worlds", type=int, default=6, help="audits, each with its own images and seed")
    parser.add_argument("--seed", type=int, default=2000, help="of the first world; the next has the next one")
    parser.add_argument("--models", type=Path, help="file that stores the trained models, reused if it exists")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    configs = worlds(options.tiny, options.seed, options.worlds)
    setting = measurement_facts(configs[0].query.data.name, torch.device("cpu"))
    plan = planned(configs)
    has_models = options.models is not None and options.models.exists()
    start = time.perf_counter()
    cpu = time.process_time()
    models = trained(plan, options.models)
    training_cost = "read from a file" if has_models else cost(start, cpu)
    start = time.perf_counter()
    cpu = time.process_time()
    results = []
    for world, config in enumerate(configs):
        results += judged(world, config, {model: table for (owner, model), table in models.items() if owner == world})
    setting["seeds"] = f"{options.seed} to {options.seed + options.worlds - 1}, one for each of the worlds"
    setting["trainings"] = f"{len(plan)}; {training_cost}"
    setting["decisions"] = f"{len(results)}; {cost(start, cpu)}"
    publish_counts("Answers about models with a known share", setting, markdown(results), options.out)


def cost(start: float, cpu: float) -> str:
    """Describe the processor and wall time since the start."""
    return f"{time.process_time() - cpu:.0f} s of a core, {time.perf_counter() - start:.0f} s in all"
