"""The tables of docs/benchmarks.md, rendered from the result files in bench/results.

    python -m bench.benchmark_page    # writes the tables into the page, between its markers

Values, processor, ceiling and date come from the result files. A fact missing from a file is shown as `not recorded`. A
claim has one row per machine that measured it, with the range over these machines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
UNRECORDED = "not recorded"
HEADER = (
    "| what | Engram | compared with | Engram is | over all machines | processor | float32 product | date |",
    "|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class ResultFile:
    """The facts at the top of a result file and the cells of its table rows."""

    facts: Mapping[str, str]
    rows: tuple[tuple[str, ...], ...]

    def row(self, label: str, rival: str = "") -> tuple[str, ...]:
        """Return the first row with this label whose third cell contains `rival`.

        Raises LookupError if there is none.
        """
        for cells in self.rows:
            if cells[0] == label and rival in (cells[2] if len(cells) > 2 else ""):
                return cells
        raise LookupError(f"no row {label!r} compared with {rival!r}")

    def ceiling(self, label: str) -> str:
        """Return the ceiling for the row's subject if the file has one, otherwise the ceiling of the whole run."""
        for cells in self.rows:
            subject, share, _ = cells[0].partition(": share of ")
            if share and "(the ceiling)" in cells[0] and label.startswith(subject):
                return cells[2]
        products = [cells[1] for cells in self.rows if cells[0] == "ceiling: matrix product, float32"]
        return next(iter(products), self.facts.get("ceiling", UNRECORDED))

    @property
    def processor(self) -> str:
        device = self.facts.get("device", "CPU")
        if device != "CPU":
            return device
        return self.facts.get("processor", self.facts.get("machine", UNRECORDED))


@cache
def read_result(name: str) -> ResultFile:
    """Read the result file of this name in bench/results."""
    lines = (RESULTS / name).read_text(encoding="utf-8").splitlines()
    pairs = [re.fullmatch(r"- ([^:]+): (.*)", line) for line in lines]
    facts = {pair[1]: pair[2] for pair in pairs if pair}
    rows = []
    for line in lines:
        if line.startswith("|"):
            rows.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
    return ResultFile(facts, tuple(rows))


@dataclass(frozen=True)
class Measurement:
    """A claim measured on one machine.

    `ratio` is the rival's time divided by Engram's, so it is above 1 if Engram is faster. It is None if there is no
    rival.
    """

    engram: str
    rival: str
    ratio: float | None
    processor: str
    ceiling: str
    date: str


@dataclass(frozen=True)
class Compared:
    """A row in a file that contains Engram, the rival and the ratio. `rival` is part of the rival's cell."""

    file: str
    label: str
    rival: str = ""

    def measure(self) -> Measurement:
        result = read_result(self.file)
        cells = result.row(self.label, self.rival)
        ratio = None
        if cells[3].endswith("x"):
            ratio = float(cells[3].removesuffix("x"))
        return measurement(result, self.label, cells[1], cells[2], ratio)


@dataclass(frozen=True)
class Divided:
    """Two rows in a file with a time in the second cell: Engram's and the rival's.

    `rival` is empty if there is none.
    """

    file: str
    engram: str
    rival: str
    unit: str

    def measure(self) -> Measurement:
        result = read_result(self.file)
        engram_time = result.row(self.engram)[1]
        if not self.rival:
            return measurement(result, self.engram, f"{engram_time} {self.unit}", "", None)
        rival_time = result.row(self.rival)[1]
        ratio = float(rival_time) / float(engram_time)
        return measurement(
            result, self.engram, f"{engram_time} {self.unit}", f"{rival_time} {self.unit}, {self.rival}", ratio
        )


def measurement(result: ResultFile, label: str, engram: str, rival: str, ratio: float | None) -> Measurement:
    date = result.facts.get("date", UNRECORDED)
    return Measurement(engram, rival, ratio, result.processor, result.ceiling(label), date)


@dataclass(frozen=True)
class Claim:
    """A comparison on the page and the sources of its measurements."""

    subject: str
    sources: tuple[Compared | Divided, ...]


def claim_of(subject: str, *sources: Compared | Divided) -> Claim:
    return Claim(subject, sources)


ORCHESTRATION = "orchestration.md"
TRAINING = "training-cpu.md"
GPU = "training-h200.md"
STEP = "mlp1's step, 1 thread, CPU time"
LOG_P = "log p of a point, 256 codes, 1 thread, CPU time"
SHADOW = "shadow model, mlp1 on half of 10,000 records, 5 epochs, 16 models, 1 thread, CPU time"
ENCODER = "small-resnet#16, 32 x 32, 300 images, batch 100"
T5 = "tiny-t5#64x2, 1,024 questions, batch 32"
LARGE_T5 = "tiny-t5#512x6, 32 questions, batch 16"
GPT = "tiny-gpt#64x2, 256 questions, batch 32"
LORA = "tiny-gpt#64x2 by lora, 256 questions, batch 32"
LANGUAGE = "language-models-cpu.md"
GPTS = "language-models-gpt-cpu.md"
CPU_CLAIMS = (
    claim_of(
        "a no-op job with a durable result",
        Divided(ORCHESTRATION, "engram run, everything", "bare Ray + one atomic, synced Arrow file", "ms"),
        Compared("orchestration-zen4.md", "a no-op job with a durable result"),
    ),
    claim_of(
        "the same, compared with Ray Tune, which does not sync files",
        Divided(ORCHESTRATION, "engram run, everything", "Ray Tune, cheapest settings", "ms"),
        Compared("orchestration-zen4.md", "a no-op job, Ray Tune at its cheapest settings"),
    ),
    claim_of(
        "a training step of mlp1, one thread, compared with PyTorch with DataLoader(TensorDataset) and Adam",
        Compared(TRAINING, STEP, "tensors"),
        Compared("training-zen4.md", STEP, "tensors"),
    ),
    claim_of(
        "a training step of mlp1, two cores, compared with PIL and transforms in the DataLoader",
        Compared(TRAINING, "mlp1's step, 2 cores, wall", "PIL"),
    ),
    claim_of(
        "a training step of the autoencoder, one thread, compared with the same loop",
        Compared(TRAINING, "autoencoder's step, 1 thread, CPU time", "tensors"),
    ),
    claim_of(
        "log p of an image, 256 samples, one thread, compared with the paper's form by 2 points",
        Compared(TRAINING, LOG_P, "by 2 points"),
        Compared("training-zen4.md", LOG_P, "by 2 points"),
    ),
    claim_of(
        "the same, compared with the paper's form by 64 points",
        Compared(TRAINING, LOG_P, "by 64 points"),
        Compared("training-zen4.md", LOG_P, "by 64 points"),
    ),
    claim_of(
        "100 neighbours of 500 among 50,000 x 8,192, one thread",
        Compared(TRAINING, "neighbours, 500 x 50,000 x 8,192, k = 100, 1 thread, CPU time", "faiss"),
    ),
    claim_of(
        "100 neighbours of 500 among 10,000 x 8,192, one thread",
        Compared(TRAINING, "neighbours, 500 x 10,000 x 8,192, k = 100, 1 thread, CPU time", "faiss"),
    ),
    claim_of(
        "a shadow model of `membership`, mlp1 on 5,000 images, 5 epochs, compared with one process per model",
        Compared("shadow-models-cpu.md", SHADOW, "tensors"),
    ),
    claim_of(
        "the same, compared with one process per model whose DataLoader creates PIL images",
        Compared("shadow-models-cpu.md", SHADOW, "PIL"),
    ),
    claim_of("fine-tuning a tiny T5", Compared(LANGUAGE, f"training, {T5}")),
    claim_of("its answers, greedy", Compared(LANGUAGE, f"answering, {T5}")),
    claim_of("fine-tuning of T5-small's size", Compared(LANGUAGE, f"training, {LARGE_T5}")),
    claim_of("its answers, greedy", Compared(LANGUAGE, f"answering, {LARGE_T5}")),
    claim_of("fine-tuning a tiny GPT", Compared(GPTS, f"training, {GPT}")),
    claim_of("the same by LoRA", Compared(GPTS, f"training, {LORA}")),
    claim_of("its answers, greedy", Compared(GPTS, f"answering, {GPT}")),
    claim_of("its answers by LoRA, greedy", Compared(GPTS, f"answering, {LORA}")),
    claim_of(
        "500 candidates of a secret by the same, `scoring=shared`",
        Compared(GPTS, f"scoring 500 candidates, {GPT}"),
    ),
    claim_of("the same by LoRA", Compared(GPTS, f"scoring 500 candidates, {LORA}")),
    claim_of("VICReg's training of a small ResNet", Compared("self-supervised-cpu.md", f"training, {ENCODER}")),
    claim_of("its views alone, two of each image", Compared("self-supervised-cpu.md", f"two views alone, {ENCODER}")),
    claim_of(
        "a linear model's learning and memorization, n = d = 1,000, 20 trainings",
        Compared(
            "linear-memorization-cpu.md",
            "curves, n = 1000, d = 1000, 20 trainings, to t = 10000, 1 thread, CPU time",
        ),
    ),
    claim_of(
        "a trial of a search whose trainings are stored, whole",
        Divided(
            "searches-cpu.md",
            "a search whose trainings are stored",
            "Ray Tune at its defaults, a function that does nothing",
            "s",
        ),
    ),
    claim_of(
        "resume a finished run of 10,000 jobs, whole command",
        Divided(ORCHESTRATION, "resume when finished, whole command, s", "", "s"),
    ),
)
GPU_CLAIMS = (
    claim_of(
        "a training step of a model of mlp1, of 64 in a stack", Compared(GPU, "mlp1, 64 stacked, captured: model-step")
    ),
    claim_of("the same, of 512 in a stack", Compared(GPU, "mlp1, 512 stacked, captured: model-step")),
    claim_of("the same, alone", Compared(GPU, "mlp1, 1 stacked, captured: model-step")),
    claim_of(
        "a training step of an autoencoder, of 100 in a stack",
        Compared(GPU, "autoencoders, 100 stacked, captured: model-step, wall time"),
    ),
    claim_of(
        "log p of 100 models, float32, points x samples a second",
        Compared(GPU, "log p of 100 models, float32: points x samples a second, wall time"),
    ),
    claim_of(
        "the same, TF32",
        Compared(GPU, "log p of 100 models, TF32: points x samples a second, wall time"),
    ),
    claim_of(
        "100 neighbours of 20,000 among 50,000 x 8,192",
        Compared(GPU, "neighbours, 20,000 x 50,000 x 8,192, k = 100, rows on the device, wall time"),
    ),
)
TABLES: Mapping[str, Sequence[Claim]] = {"processors": CPU_CLAIMS, "gpu": GPU_CLAIMS}


def render_table(claims: Sequence[Claim]) -> str:
    lines = list(HEADER)
    for claim in claims:
        lines += render_claim(claim)
    return "\n".join(lines)


def render_claim(claim: Claim) -> list[str]:
    """Return one table row per machine that measured the claim."""
    measurements = [source.measure() for source in claim.sources]
    ratios = [measured.ratio for measured in measurements if measured.ratio is not None]
    spread = "one machine"
    if len(measurements) > 1:
        spread = describe_range(ratios)
    return [render_row(claim.subject, measured, spread) for measured in measurements]


def render_row(subject: str, measured: Measurement, spread: str) -> str:
    if measured.ratio is None:
        ratio = ""
    else:
        ratio = describe_ratio(measured.ratio)
    machine = (measured.processor, measured.ceiling, measured.date)
    return f"| {' | '.join((subject, measured.engram, measured.rival, ratio, spread, *machine))} |"


def describe_range(ratios: Sequence[float]) -> str:
    """Describe a range of ratios, such as `1.45x to 2.47x faster`. A ratio of 0.92 is `1.09x slower`."""
    words = [describe_ratio(ratio) for ratio in sorted(ratios)]
    low, high = words[0], words[-1]
    same_word = low.endswith(" faster") and high.endswith(" faster")
    return f"{low.removesuffix(' faster') if same_word else low} to {high}"


def describe_ratio(ratio: float) -> str:
    if ratio >= 1:
        factor = ratio
        word = "faster"
    else:
        factor = 1 / ratio
        word = "slower"
    if factor < 10:
        return f"{factor:.2f}x {word}"
    return f"{factor:.0f}x {word}"


def update_page(text: str) -> str:
    """Replace the tables on the page with those from the result files. Raises LookupError if a marker is missing."""
    for name, claims in TABLES.items():
        begin = f"<!-- {name}: from bench/results -->"
        end = f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise LookupError(f"{PAGE.name} has no markers {begin} and {end}")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{render_table(claims)}\n\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
