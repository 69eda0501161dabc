"""The same verdict? Engram and other tools on the same records and models: who is accused or cleared, at what cost.

    python -m bench.rivals [--tiny] [--seed 41000] [--cases 20] [--folder DIR] [--rival NAME=PYTHON ...] [--out FILE]
        [--figure FILE]

Of each kind there are so many cases. A case is records from scikit-learn's digits in an order of its own, and 16 small
networks, each trained on a half of them by plain torch, so that all tools judge the very same. *Overfit* asks about 200
records; *exposed* about 800, of which 2 % have a wrong label, so that these are given away above all; a *null* asks the
networks of *overfit* about 200 other digits, of which as many are said to be members. Engram judges by the exact test
and the attacks of `membership` over all 16 networks, as `engram run membership` does once it has trained them. A rival
audits the first network, with the other 15 as shadow models if it takes any. `rival_scripts/` has what its user writes,
and NAME is a module there; PYTHON is the interpreter of an environment in which that tool is installed.
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
PASSES = 0.55  # an area under the curve below it passes, by templates in use
RIVALS: Mapping[str, str] = {
    "privacyguard": "PrivacyGuard, LiRA online: its 95 % interval of the AUC lies above .5",
    "art_black_box": "ART, black-box attack: no rule",
    "art_shapr": "ART, SHAPr: a value above 0, as its documentation says",
    "privacymeter": "ML Privacy Meter, reference metric: no rule",
}


@dataclass(frozen=True)
class Training:
    """How many networks are trained, each on half of so many records, in how many steps."""

    models: int = HALVES.models
    overfit: int = 200  # records
    exposed: int = 800
    units: int = 64
    steps: int = 100
    exposed_steps: int = 50
    learning_rate: float = 0.01


@dataclass(frozen=True, eq=False)
class Case:
    """Records, which models were trained on which (models, records), or are said to be, and the models."""

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
class Said:
    """What a tool says of a case. `accuses` is None where it has no rule; Engram may also leave a case open."""

    case: str
    seconds: float
    accuses: bool | None = None
    clears: bool | None = None
    auc: float | None = None

    @property
    def kind(self) -> str:
        return self.case.partition("-")[0]


def digits(seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All 1,797 digits in an order of this seed: their pixels from 0 to 1, and their labels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng((seed, 0)).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)


def draw_halves(models: int, count: int, stream: np.random.Generator) -> NDArray[np.bool_]:
    """Who is trained on what (models, records): two records of a pair have opposite halves of the models."""
    first = np.stack([stream.permutation(models) < models // 2 for _ in range(count // 2)], axis=1)
    member = np.concatenate([first, ~first], axis=1)
    return member[:, stream.permutation(count)]


def train(
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    member: NDArray[np.bool_],
    how: Training,
    steps: int,
    seed: int,
) -> list[nn.Sequential]:
    """A network with one hidden layer for each half, by Adam, with all records of the half in every step."""
    networks = []
    for number in range(len(member)):
        torch.manual_seed(seed * 1000 + number)
        networks.append(nn.Sequential(nn.Linear(images.shape[1], how.units), nn.ReLU(), nn.Linear(how.units, 10)))
    x, y = (torch.tensor(np.stack([of_all[mine] for mine in member])) for of_all in (images, labels))
    weights, _ = torch.func.stack_module_state(networks)
    optimiser = torch.optim.Adam(weights.values(), how.learning_rate)

    def loss(its: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(networks[0], its, (x,)), y)

    for _ in range(steps):
        optimiser.zero_grad()
        torch.vmap(loss)(weights, x, y).sum().backward()
        optimiser.step()
    for number, network in enumerate(networks):
        network.load_state_dict({name: stacked[number].detach() for name, stacked in weights.items()})
    return networks


def make_cases(how: Training, seed: int) -> Iterator[Case]:
    """A case of each kind."""
    images, labels = digits(seed)
    for kind, count, steps in (("overfit", how.overfit, how.steps), ("exposed", how.exposed, how.exposed_steps)):
        stream = np.random.default_rng((seed, KINDS.index(kind)))
        asked, its = images[:count], labels[:count].copy()
        if kind == "exposed":
            rows = stream.choice(count, round(MISLABELLED * count), replace=False)
            its[rows] = (its[rows] + stream.integers(1, 10, len(rows))) % 10
        member = draw_halves(how.models, count, stream)
        networks = train(asked, its, member, how, steps, seed)
        yield Case(kind, seed, asked, its, member, networks)
        if kind == "overfit":
            others = slice(count, 2 * count)
            yield Case("null", seed, images[others], labels[others], member, networks)


def read_cases(folder: Path, seed: int) -> list[Case]:
    """The cases of this seed that lie in the folder."""
    cases = []
    for kind in ("overfit", "null", "exposed"):
        place = folder / f"{kind}-{seed}"
        if (place / "records.npz").exists():
            read = np.load(place / "records.npz")
            networks = [torch.load(path, weights_only=False) for path in sorted(place.glob("*.pt"))]
            cases.append(Case(kind, seed, read["images"], read["labels"], read["member"], networks))
    return cases


def judge_by_engram(case: Case) -> Said:
    """Engram's answer by the audit's own rule, and its processor time."""
    began = time.process_time()
    question = replace(HALVES, models=len(case.networks), examples=len(case.labels), is_null=case.kind == "null")
    tables = [answer_table(case, number) for number in range(len(case.networks))]
    measured = [
        records(ExactTest(question.level, question.draws, case.seed), tables),
        attacks(Matching(case.seed), tables),
    ]
    answer = verdict(Membership(question), summary(About(question.level), measured)).answer
    seconds = time.process_time() - began
    return Said(case.name, seconds, answer == "memorised", answer == "not detected")


def answer_table(case: Case, number: int) -> pa.Table:
    """What a network says of all records (ANSWERS)."""
    with torch.no_grad():
        scores = case.networks[number](torch.tensor(case.images)).numpy()
    correct = scores.argmax(axis=1) == case.labels
    columns = [np.arange(len(case.labels)), case.member[number], log_odds(scores, case.labels), correct]
    return pa.table(columns, schema=ANSWERS)


def hand_out(case: Case, folder: Path) -> Path:
    """Write the case as rivals take it; its folder."""
    place = folder / case.name
    place.mkdir(parents=True, exist_ok=True)
    for number, network in enumerate(case.networks):
        torch.save(network, place / f"{number:02d}.pt")
    np.savez(place / "records.npz", images=case.images, labels=case.labels, member=case.member)
    return place


def ask_rival(name: str, python: str, folders: Sequence[Path], told: Path) -> tuple[list[Said], str]:
    """What a rival says of the cases, and the last line of its error where it ended with one.

    Its lines go into the file `told`; of cases that are there it is not asked again, and without `python` of none.
    """
    there = {parse_line(line).case for line in told.read_text().splitlines()} if told.exists() else set()
    left = [str(folder) for folder in folders if folder.name not in there]
    error = ""
    if python and left:
        with open(told, "a") as lines:
            command = [python, str(SCRIPTS / "run.py"), name, *left]
            run = subprocess.run(command, stdout=lines, stderr=subprocess.PIPE, text=True)
        error = run.stderr.strip().splitlines()[-1] if run.returncode else ""
    return [parse_line(line) for line in told.read_text().splitlines()], error


def by_loss(case: Case) -> Said:
    """What the loss alone tells of the first network, without any tool."""
    phi = answer_table(case, 0)["log_odds"].to_numpy()
    mine = case.member[0]
    return Said(case.name, 0.0, auc=area_under_curve(phi[mine], phi[~mine]))


def parse_line(line: str) -> Said:
    """A line of `run.py`."""
    told = json.loads(line)
    accuses = told.get("accuses")
    return Said(told["case"], told["seconds"], accuses, None if accuses is None else not accuses, told.get("auc"))


def script_lines(name: str) -> int:
    """Lines of code that the user of a rival writes, without blank lines and docstrings."""
    lines = (SCRIPTS / f"{name}.py").read_text().splitlines()
    return sum(bool(line.strip()) and not line.startswith('"""') for line in lines)


def share(some: int, of: int) -> str:
    """A count with its interval: `3 of 20 [3, 38] %`."""
    if not of:
        return ""
    low, high = (100 * end for end in exact_interval(some, of))
    return f"{some} of {of} [{low:.0f}, {high:.0f}] %"


def table_rows(tools: Mapping[str, tuple[str, Sequence[Said], int]]) -> Iterator[str]:
    """A row for each tool by its own rule, then one for each area under the curve by the template."""
    yield (
        "| tool and when it accuses | nulls accused | overfit accused | overfit cleared | exposed accused | "
        "exposed cleared | processor seconds a null | lines |"
    )
    yield "|---" * 8 + "|"
    for rule, said, lines in tools.values():
        cells = [judged(said, kind, "accuses") for kind in KINDS]
        cleared = [judged(said, kind, "clears") for kind in KINDS]
        if not lines:  # the loss, which is no tool
            continue
        seconds = np.median([each.seconds for each in said if each.kind == "null"])
        yield (
            f"| {rule} | {cells[0]} | {cells[1]} | {cleared[1]} | {cells[2]} | {cleared[2]} | {seconds:.2g} | {lines} |"
        )
    yield ""
    yield f"By the template *an AUC below {PASSES:g} passes*:"
    yield ""
    yield "| AUC of | nulls that fail | overfit that pass | **exposed that pass** | mean AUC: null, overfit, exposed |"
    yield "|---" * 5 + "|"
    for rule, said, _ in tools.values():
        areas = {kind: [each.auc for each in said if each.kind == kind and each.auc is not None] for kind in KINDS}
        if all(areas.values()):
            fail = share(sum(area >= PASSES for area in areas["null"]), len(areas["null"]))
            passed = [share(sum(a < PASSES for a in areas[kind]), len(areas[kind])) for kind in KINDS[1:]]
            means = ", ".join(f"{np.mean(areas[kind]):.3f}" for kind in KINDS)
            yield f"| {rule.partition(':')[0]} | {fail} | {passed[0]} | {passed[1]} | {means} |"


def draw_areas(tools: Mapping[str, tuple[str, Sequence[Said], int]]) -> Figure:
    """Each tool's area under the curve of every case, beside the template's limit."""
    shown = {rule.partition(",")[0]: said for rule, said, _ in tools.values() if said[0].auc is not None}
    drawn = rows(list(shown), 0.5)
    layers = [upright(PASSES)]
    for at, said in zip(drawn.y, shown.values(), strict=True):
        for number, (kind, (colour, marker, _)) in enumerate(zip(KINDS, SERIES, strict=False)):
            areas = [each.auc for each in said if each.kind == kind]
            height = at + 0.22 * (1 - number)
            layers.append(marks(areas, [height] * len(areas), colour, marker, 5, alpha=0.6))
    entries = [series_entry(kind, look) for kind, look in zip(KINDS, SERIES, strict=False)]
    panel = row_panel(drawn, layers, Axis(f"area under the curve; below {PASSES:g} passes", (0.3, 1.0)))
    title = "An average hides who is most exposed"
    return Chart("rivals", title, "", title, drawn.height, [panel], entries, columns=3).figure()


def judged(said: Sequence[Said], kind: str, field: str) -> str:
    answers = [getattr(each, field) for each in said if each.kind == kind]
    return share(sum(answers), len(answers)) if None not in answers else "no verdict"


def main() -> None:
    given = bench_parser(__doc__)
    given.add_argument("--seed", type=int, default=41000, help="of the first case of each kind")
    given.add_argument("--cases", type=int, default=20, help="of each kind")
    given.add_argument("--folder", type=Path, help="keep the cases and answers here")
    given.add_argument(
        "--rival", action="append", default=[], metavar="NAME=PYTHON", help=f"one of {', '.join(RIVALS)}"
    )
    given.add_argument("--figure", type=Path, help="draw the areas under the curve into this SVG file")
    options = given.parse_args()
    how = Training()
    if options.tiny:
        how, options.cases = Training(models=4, overfit=40, exposed=60, steps=20, exposed_steps=20), 1
    with TemporaryDirectory() as aside:
        folder = (options.folder or Path(aside)).absolute()
        said, losses, folders = [], [], []
        for seed in range(options.seed, options.seed + options.cases):
            for case in read_cases(folder, seed) or make_cases(how, seed):
                said.append(judge_by_engram(case))
                losses.append(by_loss(case))
                folders.append(hand_out(case, folder))
        engram = "Engram, `membership`: *memorised*, and clears by *not detected*"
        tools: dict[str, tuple[str, Sequence[Said], int]] = {
            "engram": (engram, said, 1),
            "loss": ("the loss alone, without a tool", losses, 0),
        }
        errors = []
        for name, _, python in (rival.partition("=") for rival in options.rival):
            found, error = ask_rival(name, python, folders, folder / f"{name}.jsonl")
            if error:
                errors.append(f"- {name} ended after {len(found)} of {len(folders)} cases: {error}")
            if found:
                tools[name] = (RIVALS[name], found, script_lines(name))
    setting: dict[str, Any] = measurement_facts(
        "scikit-learn's digits, each case in an order of its own", torch.device("cpu")
    )
    setting["networks"] = (
        f"{how.models} a case with {how.units} hidden units, each on half of {how.overfit} records (exposed: "
        f"{how.exposed}), {how.steps} ({how.exposed_steps}) steps of Adam at {how.learning_rate:g}"
    )
    setting["seeds"] = f"{options.seed} to {options.seed + options.cases - 1}"
    if options.figure:
        options.figure.write_text(draw_areas(tools).svg + "\n")
    publish_counts("The same verdict?", setting, "\n".join([*table_rows(tools), "", *errors]) + "\n", options.out)


if __name__ == "__main__":
    main()
