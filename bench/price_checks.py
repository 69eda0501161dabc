"""Compares prices that follow from operations with the timed trainings and evaluations in `bench/results`.

Each figure is read from its file, so that the comparison repeats without timing anything. The rates of
`orchestrator/pricing/device_rates.json` were calibrated on the rows that say so, and on the reference timings, which
are not in `bench/results`. All other rows check them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.pricing.hardware import CPU, load_rates
from tasks.contract.operations import BYTES, PRODUCT, Operations, Step, add, scale
from tasks.counting.traced_steps import trace
from tasks.datasets.dataset import Dataset
from tasks.language_models.fine_tuning_config import FineTuning
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.token_operations import (
    SHARED,
    continuing_operations,
    reading_operations,
    training_operations,
)
from tasks.linear_memorization.gradient_flow import REDUCTION
from tasks.self_supervised.described_steps import EncoderStep
from tasks.self_supervised.pretraining_config import EncoderConfig, VICReg
from tasks.training.described_steps import ClassifierStep, CodesStep, DensityStep

RESULTS = Path(__file__).with_name("results")
MICROSECOND = 1e-6
ZEN4 = 206 / 107  # ratio of the ceilings in training-cpu.md and training-zen4.md
UNMEASURED = 2.0  # error factor of a machine whose speed was not measured

Counted = Callable[[], Operations]


@dataclass(frozen=True)
class Figure:
    """A timed computation: where it is stored, its kind, and its operations.

    `pattern` finds the number in the cell of the row whose first cell is `subject`. The measured seconds are the number
    times `unit`, or `unit` divided by the number if `is_rate`. `slower` is the speed of the reference processor
    relative to the machine, and `spread` the error factor if it is not known.
    """

    file: str
    subject: str
    kind: str
    operations: Counted
    pattern: str = r"([\d.]+) us"
    unit: float = MICROSECOND
    is_rate: bool = False
    device: str = CPU
    together: float = 1.0
    slower: float = 1.0
    spread: float = 1.0
    is_calibration: bool = False

    @property
    def measured(self) -> float:
        """The measured seconds, from the file."""
        number = float(re.search(self.pattern, _cell(self.file, self.subject))[1].replace(",", ""))  # type: ignore[index]
        return self.unit / number if self.is_rate else self.unit * number

    @property
    def predicted(self) -> float:
        return self.slower * load_rates()[self.device].seconds(self.operations(), self.together)

    @property
    def factor(self) -> float:
        """The error factor of the prediction."""
        return load_rates()[self.device].factor * self.spread

    @property
    def is_hit(self) -> bool:
        """Whether the measured time is within the interval."""
        return 1 / self.factor <= self.measured / self.predicted <= self.factor


def _cell(file: str, subject: str) -> str:
    """Return the second cell of the first row with this subject."""
    for line in (RESULTS / f"{file}.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] == subject:
            return cells[1]
    raise LookupError(f"{file}.md has no row {subject!r}")


def of_step(step: Step, amount: float) -> Counted:
    return lambda: scale(trace(step).operations, amount)


def of_operations(*parts: Operations | None) -> Counted:
    return lambda: add(*(part for part in parts if part is not None))


MLP1 = ClassifierStep("mlp1", (28, 28, 1), 10)
VAE = DensityStep("vae", (28, 28, 1))
CODES = CodesStep("vae", (28, 28, 1))
NEIGHBOURS = {PRODUCT: 3.0}  # for each pair of rows and each of their columns


def neighbours(file: str, subject: str, asked: int, rows: int, columns: int, device: str = CPU) -> Figure:
    operations = add(scale(NEIGHBOURS, asked * rows * columns), {BYTES: 12.0 * asked * rows})
    return Figure(file, subject, "neighbours", of_operations(operations), r"([\d.]+) s", 1.0, device=device)


def stacked(network: str, models: int, step: Step, batch: int, wall: str = "", is_calibration: bool = False) -> Figure:
    subject = f"{network}, {models} stacked, captured: model-step{wall}"
    kind = "dense stacks" if models > 1 else "single small models"
    return Figure(
        "training-h200",
        subject,
        kind,
        of_step(step, batch),
        device="H200",
        together=models,
        is_calibration=is_calibration,
    )


def encoder(subject: str, backbone: str, side: int, batch: int, width: int) -> Figure:
    config = EncoderConfig(backbone, (width, width, width), side)
    step = EncoderStep(VICReg(), config, 10, batch, 1, "lars", "float32")
    return Figure(
        "self-supervised-cpu", subject, "convolutions", of_step(step, 1.0), r"([\d,]+) images/s", 1.0, is_rate=True
    )


def language(
    file: str, name: str, batch: int, questions: str, prompt: float, answer: float, lora: bool
) -> list[Figure]:
    """Return the rows of a language model, per token: training and answering."""
    model = LanguageModel(name)
    config = FineTuning(Dataset("facts"), model, batch=batch, adaptation="lora" if lora else "full")
    size = f"{name}{' by lora' if lora else ''}, {questions} questions, batch {batch}"
    rate = r"([\d,]+) tokens/s"
    tokens = prompt + answer
    trained = of_operations(training_operations(config, prompt, answer))
    answered = of_operations(continuing_operations(config, prompt, answer))
    rows = [
        Figure(file, f"training, {size}", "language models", trained, rate, tokens, is_rate=True),
        Figure(file, f"answering, {size}", "language models, evaluation", answered, rate, prompt, is_rate=True),
    ]
    if name.startswith("tiny-gpt"):
        scored = of_operations(reading_operations(config, CANDIDATE / SHARED))
        kind = "language models, evaluation"
        rows.append(Figure(file, f"scoring 500 candidates, {size}", kind, scored, rate, CANDIDATE, is_rate=True))
    return rows


CANDIDATE = 24.0  # tokens of a candidate of bench.language_models
T5 = "language-models-cpu"
GPT = "language-models-gpt-cpu"
SHADOW = "shadow model, mlp1 on half of 10,000 records, 5 epochs, 16 models, 1 thread, CPU time"

FIGURES: Sequence[Figure] = (
    Figure("training-cpu", "mlp1's step, 1 thread, CPU time", "single small models", of_step(MLP1, 128)),
    Figure("training-cpu", "autoencoder's step, 1 thread, CPU time", "single small models", of_step(VAE, 64)),
    Figure(
        "training-cpu",
        "log p of a point, 256 codes, 1 thread, CPU time",
        "log p",
        of_step(CODES, 256),
        r"([\d.]+) ms",
        1e-3,
    ),
    neighbours("training-cpu", "neighbours, 2,000 x 20,000 x 784, k = 1, 1 thread, CPU time", 2_000, 20_000, 784),
    neighbours("training-cpu", "neighbours, 2,000 x 50,000 x 784, k = 100, 1 thread, CPU time", 2_000, 50_000, 784),
    neighbours("training-cpu", "neighbours, 500 x 50,000 x 8,192, k = 100, 1 thread, CPU time", 500, 50_000, 8_192),
    neighbours("training-cpu", "neighbours, 500 x 10,000 x 8,192, k = 100, 1 thread, CPU time", 500, 10_000, 8_192),
    Figure("training-zen4", "mlp1's step, 1 thread, CPU time", "single small models", of_step(MLP1, 128), slower=ZEN4),
    Figure(
        "training-zen4",
        "log p of a point, 256 codes, 1 thread, CPU time",
        "log p",
        of_step(CODES, 256),
        r"([\d.]+) ms",
        1e-3,
        slower=ZEN4,
    ),
    Figure(
        "shadow-models-cpu",
        SHADOW,
        "single small models",
        of_step(MLP1, 5_000 * 5),
        r"([\d.]+) s",
        1.0,
        spread=UNMEASURED,
    ),
    stacked("mlp1", 1, MLP1, 128, is_calibration=True),
    *(stacked("mlp1", models, MLP1, 128) for models in (4, 16, 64, 128, 256)),
    stacked("mlp1", 512, MLP1, 128, is_calibration=True),
    *(stacked("autoencoders", models, VAE, 64, ", wall time") for models in (1, 16, 64, 100)),
    Figure(
        "training-h200",
        "log p of 100 models, float32: points x samples a second, wall time",
        "log p",
        of_step(CODES, 1.0),
        r"([\d.]+) M",
        MICROSECOND,
        is_rate=True,
        device="H200",
        together=100,
    ),
    neighbours(
        "training-h200",
        "neighbours, 20,000 x 50,000 x 8,192, k = 100, rows on the device, wall time",
        20_000,
        50_000,
        8_192,
        "H200",
    ),
    neighbours(
        "training-h200",
        "neighbours, 20,000 x 50,000 x 8,192, k = 100, rows from arrays, wall time",
        20_000,
        50_000,
        8_192,
        "H200",
    ),
    encoder("training, small-resnet#16, 32 x 32, 300 images, batch 100", "small-resnet#16", 32, 100, 256),
    encoder("training, resnet18, 96 x 96, 32 images, batch 16", "resnet18", 96, 16, 512),
    *language(T5, "tiny-t5#64x2", 32, "1,024", 67.6, 2.0, lora=False),
    *language(T5, "tiny-t5#512x6", 16, "32", 68.6, 2.0, lora=False),
    *language(GPT, "tiny-gpt#64x2", 32, "256", 298.6, 3.9, lora=False),
    *language(GPT, "tiny-gpt#64x2", 32, "256", 298.6, 3.9, lora=True),
    *(
        Figure(
            "linear-memorization-cpu",
            f"curves, n = {n}, d = {d}, 20 trainings, to t = {t}, 1 thread, CPU time",
            "linear",
            of_operations({PRODUCT: REDUCTION * 20 * n * d * min(n, d + 1)}),
            r"([\d.]+) s",
            1.0,
        )
        for n, d, t in ((300, 2000, 10), (1000, 1000, 10000))
    ),
)


@dataclass(frozen=True)
class Tally:
    """The number of figures within their intervals, and of all."""

    hits: int
    figures: int

    def __str__(self) -> str:
        return f"{self.hits} of {self.figures}"


def tally(figures: Sequence[Figure]) -> Tally:
    return Tally(sum(figure.is_hit for figure in figures), len(figures))


def tally_by_kind(figures: Sequence[Figure]) -> dict[str, Tally]:
    kinds = Counter(figure.kind for figure in figures)
    return {kind: tally([figure for figure in figures if figure.kind == kind]) for kind in kinds}


def print_checks() -> None:
    """Print a row for each figure, and the share within the interval by kind."""
    print("| file | figure | kind | predicted, s | factor | measured, s | measured / predicted | within |")
    print("|---|---|---|---|---|---|---|---|")
    for figure in FIGURES:
        use = ", calibration" if figure.is_calibration else ""
        ratio = figure.measured / figure.predicted
        print(
            f"| {figure.file} | {figure.subject}{use} | {figure.kind} | {figure.predicted:.3g} | {figure.factor:.2g} "
            f"| {figure.measured:.3g} | {ratio:.2f} | {'yes' if figure.is_hit else 'no'} |"
        )
    print()
    print("| kind | within the interval, without calibration |")
    print("|---|---|")
    checks = [figure for figure in FIGURES if not figure.is_calibration]
    for kind, count in {**tally_by_kind(checks), "all": tally(checks)}.items():
        print(f"| {kind} | {count} |")
