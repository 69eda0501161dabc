"""Verdicts and processor time of Engram and other tools on the same records and models.

    python -m bench.rivals [--tiny] [--seed 41000] [--cases 20] [--folder DIR] [--rival NAME=PYTHON ...] [--out FILE]
        [--figure FILE]

There are `--cases` cases of each kind. A case consists of records from scikit-learn's digits in random order, and 16
small networks, each trained on half of the records with plain torch, so that all tools judge the same models. An
*overfit* case has 200 records. An *exposed* case has 800, of which 2 % have a wrong label and are therefore the most
exposed. A *null* case tests the networks from *overfit* on 200 other digits, with the same number of declared members.
Engram applies the exact test and the attacks of `membership` to all 16 networks, as `engram run membership` does after
training. A rival audits the first network, with the other 15 as shadow models if it supports them. NAME is a module in
`rival_scripts/` with the code that a user of the tool would write. PYTHON is the interpreter of an environment with the
tool installed.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn

from bench.measuring import bench_parser
from dashboards.chart import Axis, Chart, Figure, marks, row_panel, upright
from dashboards.drawing import SERIES
from dashboards.layout import rows
from dashboards.legend import series_entry
from measurement.report import measurement_facts, publish_counts
from tasks.audits.membership.answer import verdict
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import Matching, attacks
from tasks.audits.membership.measures.records import ExactTest, records
from tasks.audits.membership.presets import HALVES
from tasks.audits.membership.trainings import ANSWERS, log_odds
from tasks.numerics.ranks import area_under_curve
from tasks.numerics.statistics import exact_interval

SCRIPTS = Path(__file__).parent / "rival_scripts"
KINDS = ("null", "overfit", "exposed")
MISLABELLED = 0.02
PASSES = 0.55  # pass mark for the area under the curve in common report templates
RIVALS: Mapping[str, str] = {
    "privacyguard": "PrivacyGuard, LiRA online: its 95 % interval of the AUC is above .5",
    "art_black_box": "ART, black-box attack: no rule",
    "art_shapr": "ART, SHAPr: a value above 0, as its documentation says",
    "privacymeter": "ML Privacy Meter, reference metric: no rule",
}


@dataclass(frozen=True)
class Training:
    """Configuration: number of networks, records and training steps."""

    models: int = HALVES.models
    overfit: int = 200  # records
    exposed: int = 800
    units: int = 64
    steps: int = 100
    exposed_steps: int = 50
    learning_rate: float = 0.01


@dataclass(frozen=True, eq=False)
class Case:
    """Records, models, and membership (models, records): actual membership or, in a null, declared membership."""

    kind: str
    seed: int
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    member: NDArray[np.bool_]
    networks: Sequence[nn.Sequential]

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}"


@dataclass(frozen=True)
class Judgement:
    """A tool's verdict on a case. `accuses` is None for a tool without a decision rule.

    Engram may neither accuse nor clear.
    """

    case: str
    seconds: float
    accuses: bool | None = None
    clears: bool | None = None
    auc: float | None = None

    @property
    def kind(self) -> str:
        return self.case.partition("-")[0]


def digits(seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return all 1,797 digits in the seed's random order: pixels from 0 to 1, and labels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng((seed, 0)).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)


def draw_halves(models: int, count: int, stream: np.random.Generator) -> NDArray[np.bool_]:
    """Draw membership (models, records). The two records of a pair are in opposite halves of the models."""
    first = np.stack([stream.permutation(models) < models // 2 for _ in range(count // 2)], axis=1)
    member = np.concatenate([first, ~first], axis=1)
    return member[:, stream.permutation(count)]


def train(
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    member: NDArray[np.bool_],
    config: Training,
    steps: int,
    seed: int,
) -> list[nn.Sequential]:
    """Train a network with one hidden layer on each half with Adam, using all its records in every step."""
    networks = []
    for number in range(len(member)):
        torch.manual_seed(seed * 1000 + number)
        networks.append(nn.Sequential(nn.Linear(images.shape[1], config.units), nn.ReLU(), nn.Linear(config.units, 10)))
    x = torch.tensor(np.stack([images[is_member] for is_member in member]))
    y = torch.tensor(np.stack([labels[is_member] for is_member in member]))
    weights, _ = torch.func.stack_module_state(networks)
    optimiser = torch.optim.Adam(weights.values(), config.learning_rate)

    def loss(own_weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(networks[0], own_weights, (x,)), y)

    for _ in range(steps):
        optimiser.zero_grad()
        torch.vmap(loss)(weights, x, y).sum().backward()
        optimiser.step()
    for number, network in enumerate(networks):
        network.load_state_dict({name: stacked[number].detach() for name, stacked in weights.items()})
    return networks


def make_cases(config: Training, seed: int) -> Iterator[Case]:
    """Yield one case of each kind."""
    images, labels = digits(seed)
    for kind, count, steps in (
        ("overfit", config.overfit, config.steps),
        ("exposed", config.exposed, config.exposed_steps),
    ):
        stream = np.random.default_rng((seed, KINDS.index(kind)))
        case_images = images[:count]
        case_labels = labels[:count].copy()
        if kind == "exposed":
            rows = stream.choice(count, round(MISLABELLED * count), replace=False)
            case_labels[rows] = (case_labels[rows] + stream.integers(1, 10, len(rows))) % 10
        member = draw_halves(config.models, count, stream)
        networks = train(case_images, case_labels, member, config, steps, seed)
        yield Case(kind, seed, case_images, case_labels, member, networks)
        if kind == "overfit":
            null_rows = slice(count, 2 * count)
            yield Case("null", seed, images[null_rows], labels[null_rows], member, networks)


def read_cases(folder: Path, seed: int) -> list[Case]:
    """Return the cases of this seed that the folder contains."""
    cases = []
    for kind in ("overfit", "null", "exposed"):
        case_folder = folder / f"{kind}-{seed}"
        if (case_folder / "records.npz").exists():
            arrays = np.load(case_folder / "records.npz")
            networks = []
            for path in sorted(case_folder.glob("*.pt")):
                networks.append(torch.load(path, weights_only=False))
            cases.append(Case(kind, seed, arrays["images"], arrays["labels"], arrays["member"], networks))
    return cases


def judge_by_engram(case: Case) -> Judgement:
    """Return Engram's answer by the audit's own rule, and its processor time."""
    start = time.process_time()
    question = replace(HALVES, models=len(case.networks), examples=len(case.labels), is_null=case.kind == "null")
    tables = [answer_table(case, number) for number in range(len(case.networks))]
    measured = [
        records(ExactTest(question.level, question.draws, case.seed), tables),
        attacks(Matching(case.seed), tables),
    ]
    answer = verdict(Membership(question), summary(About(question.level), measured)).answer
    seconds = time.process_time() - start
    return Judgement(case.name, seconds, answer == "memorised", answer == "not detected")


def answer_table(case: Case, number: int) -> pa.Table:
    """Return a network's answers for all records (ANSWERS)."""
    with torch.no_grad():
        scores = case.networks[number](torch.tensor(case.images)).numpy()
    correct = scores.argmax(axis=1) == case.labels
    columns = [np.arange(len(case.labels)), case.member[number], log_odds(scores, case.labels), correct]
    return pa.table(columns, schema=ANSWERS)


def write_case(case: Case, folder: Path) -> Path:
    """Write the case for the rivals and return its folder."""
    case_folder = folder / case.name
    case_folder.mkdir(parents=True, exist_ok=True)
    for number, network in enumerate(case.networks):
        torch.save(network, case_folder / f"{number:02d}.pt")
    np.savez(case_folder / "records.npz", images=case.images, labels=case.labels, member=case.member)
    return case_folder


def run_rival(name: str, python: str, folders: Sequence[Path], results: Path) -> tuple[list[Judgement], str]:
    """Let a rival judge the cases. Also returns the last line of its error output, if any.

    The rival's lines are appended to the file `results`. Cases that already have a line are not judged again. Without
    `python`, no case is judged.
    """
    judged_cases: set[str] = set()
    if results.exists():
        judged_cases = {parse_line(line).case for line in results.read_text().splitlines()}
    remaining = [str(folder) for folder in folders if folder.name not in judged_cases]
    error = ""
    if python and remaining:
        with open(results, "a") as lines:
            command = [python, str(SCRIPTS / "run.py"), name, *remaining]
            run = subprocess.run(command, stdout=lines, stderr=subprocess.PIPE, text=True)
        error = ""
        if run.returncode:
            error = run.stderr.strip().splitlines()[-1]
    return [parse_line(line) for line in results.read_text().splitlines()], error


def by_loss(case: Case) -> Judgement:
    """Judge by the area under the curve of the first network's loss, without any tool."""
    phi = answer_table(case, 0)["log_odds"].to_numpy()
    is_member = case.member[0]
    return Judgement(case.name, 0.0, auc=area_under_curve(phi[is_member], phi[~is_member]))


def parse_line(line: str) -> Judgement:
    """Parse a line printed by `run.py`."""
    result = json.loads(line)
    accuses = result.get("accuses")
    clears = None if accuses is None else not accuses
    return Judgement(result["case"], result["seconds"], accuses, clears, result.get("auc"))


def script_lines(name: str) -> int:
    """Count the lines of code that a user of a rival writes, without blank lines and docstrings."""
    lines = (SCRIPTS / f"{name}.py").read_text().splitlines()
    return sum(bool(line.strip()) and not line.startswith('"""') for line in lines)


def share(count: int, total: int) -> str:
    """Format a count and the interval of its share: `3 of 20 [3, 38] %`."""
    if not total:
        return ""
    low, high = (100 * end for end in exact_interval(count, total))
    return f"{count} of {total} [{low:.0f}, {high:.0f}] %"


def table_rows(tools: Mapping[str, tuple[str, Sequence[Judgement], int]]) -> Iterator[str]:
    """Yield the table of the tools' own rules, then the table of areas under the curve."""
    yield (
        "| tool and when it accuses | nulls accused | overfit accused | overfit cleared | exposed accused | "
        "exposed cleared | processor seconds a null | lines |"
    )
    yield "|---" * 8 + "|"
    for rule, judgements, lines in tools.values():
        cells = [verdict_share(judgements, kind, "accuses") for kind in KINDS]
        cleared = [verdict_share(judgements, kind, "clears") for kind in KINDS]
        if not lines:  # the loss alone, without a tool
            continue
        seconds = np.median([judgement.seconds for judgement in judgements if judgement.kind == "null"])
        yield (
            f"| {rule} | {cells[0]} | {cells[1]} | {cleared[1]} | {cells[2]} | {cleared[2]} | {seconds:.2g} | {lines} |"
        )
    yield ""
    yield f"By the template *an AUC below {PASSES:g} passes*:"
    yield ""
    yield "| AUC of | nulls that fail | overfit that pass | **exposed that pass** | mean AUC: null, overfit, exposed |"
    yield "|---" * 5 + "|"
    for rule, judgements, _ in tools.values():
        areas = {kind: known_areas(judgements, kind) for kind in KINDS}
        if all(areas.values()):
            fail = share(sum(area >= PASSES for area in areas["null"]), len(areas["null"]))
            passed = []
            for kind in KINDS[1:]:
                passed.append(share(sum(area < PASSES for area in areas[kind]), len(areas[kind])))
            means = ", ".join(f"{np.mean(areas[kind]):.3f}" for kind in KINDS)
            yield f"| {rule.partition(':')[0]} | {fail} | {passed[0]} | {passed[1]} | {means} |"


def known_areas(judgements: Sequence[Judgement], kind: str) -> list[float]:
    """Return the areas under the curve for the cases of one kind."""
    areas = []
    for judgement in judgements:
        if judgement.kind == kind and judgement.auc is not None:
            areas.append(judgement.auc)
    return areas


def draw_areas(tools: Mapping[str, tuple[str, Sequence[Judgement], int]]) -> Figure:
    """Draw each tool's area under the curve for every case, and the template's pass mark."""
    drawn_tools = {}
    for rule, judgements, _ in tools.values():
        if judgements[0].auc is not None:
            drawn_tools[rule.partition(",")[0]] = judgements
    tool_rows = rows(list(drawn_tools), 0.5)
    layers = [upright(PASSES)]
    for row_height, judgements in zip(tool_rows.y, drawn_tools.values(), strict=True):
        for number, (kind, (colour, marker, _)) in enumerate(zip(KINDS, SERIES, strict=False)):
            areas = [judgement.auc for judgement in judgements if judgement.kind == kind]
            height = row_height + 0.22 * (1 - number)
            layers.append(marks(areas, [height] * len(areas), colour, marker, 5, alpha=0.6))
    entries = [series_entry(kind, look) for kind, look in zip(KINDS, SERIES, strict=False)]
    panel = row_panel(tool_rows, layers, Axis(f"area under the curve; below {PASSES:g} passes", (0.3, 1.0)))
    title = "An average hides who is most exposed"
    return Chart("rivals", title, "", title, tool_rows.height, [panel], entries, columns=3).figure()


def verdict_share(judgements: Sequence[Judgement], kind: str, field: str) -> str:
    """Return the share of cases of a kind for which this field is true, or `no verdict` for a tool without a rule."""
    answers = [getattr(judgement, field) for judgement in judgements if judgement.kind == kind]
    if None not in answers:
        return share(sum(answers), len(answers))
    return "no verdict"


def main() -> None:
    parser = bench_parser(__doc__)
    parser.add_argument("--seed", type=int, default=41000, help="of the first case of each kind")
    parser.add_argument("--cases", type=int, default=20, help="of each kind")
    parser.add_argument("--folder", type=Path, help="keep the cases and answers here")
    parser.add_argument(
        "--rival", action="append", default=[], metavar="NAME=PYTHON", help=f"one of {', '.join(RIVALS)}"
    )
    parser.add_argument("--figure", type=Path, help="draw the areas under the curve into this SVG file")
    options = parser.parse_args()
    config = Training()
    if options.tiny:
        config = Training(models=4, overfit=40, exposed=60, steps=20, exposed_steps=20)
        options.cases = 1
    with TemporaryDirectory() as temporary_folder:
        folder = (options.folder or Path(temporary_folder)).absolute()
        judgements = []
        losses = []
        folders = []
        for seed in range(options.seed, options.seed + options.cases):
            for case in read_cases(folder, seed) or make_cases(config, seed):
                judgements.append(judge_by_engram(case))
                losses.append(by_loss(case))
                folders.append(write_case(case, folder))
        engram = "Engram, `membership`: *memorised*, and clears by *not detected*"
        tools: dict[str, tuple[str, Sequence[Judgement], int]] = {
            "engram": (engram, judgements, 1),
            "loss": ("the loss alone, without a tool", losses, 0),
        }
        errors = []
        for name, _, python in (rival.partition("=") for rival in options.rival):
            results, error = run_rival(name, python, folders, folder / f"{name}.jsonl")
            if error:
                errors.append(f"- {name} ended after {len(results)} of {len(folders)} cases: {error}")
            if results:
                tools[name] = (RIVALS[name], results, script_lines(name))
    setting: dict[str, Any] = measurement_facts(
        "scikit-learn's digits, each case in a random order", torch.device("cpu")
    )
    setting["networks"] = (
        f"{config.models} a case with {config.units} hidden units, each on half of {config.overfit} records (exposed: "
        f"{config.exposed}), {config.steps} ({config.exposed_steps}) steps of Adam at {config.learning_rate:g}"
    )
    setting["seeds"] = f"{options.seed} to {options.seed + options.cases - 1}"
    if options.figure:
        options.figure.write_text(draw_areas(tools).svg + "\n")
    publish_counts("The same verdict?", setting, "\n".join([*table_rows(tools), "", *errors]) + "\n", options.out)


if __name__ == "__main__":
    main()
