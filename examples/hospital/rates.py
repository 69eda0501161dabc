"""Count how often the audits detect a name in one training image, and how often they accuse of an absent name.

python rates.py --out rates.csv              20 hospitals with a name in their data and 20 without
python rates.py --table rates.csv            the rates, with 95 % Wilson intervals

Every seed is a hospital with its own X-rays, its own patient, whose name is drawn from the names of the comparison (so
that the rank is exact), and models trained by train_model.py. Hospitals with and without the name differ only in the
name and in the models' seeds. The audits are the files in this folder:

    model file      one model, and several of one hospital as a panel (model_file.yaml)
    outputs         the table of the first model's outputs, for the first few seeds (outputs.yaml)
    trained here    the same number of models, trained by Engram on the hospital's folder (trained_here.yaml)
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import answer
import make_xrays
import train_model

import orchestrator
from orchestrator.inspection.probes import hand_out
from orchestrator.quantities import format_count
from orchestrator.spec.resolve import read_spec
from orchestrator.spec.specification import Spec
from tasks.audits.unique_feature.measures.family import PUSH
from tasks.datasets.features import Family, Words
from tasks.datasets.features.family import draw_member
from tasks.numerics import seeds
from tasks.numerics.statistics import proportion

HERE = Path(__file__).resolve().parent
COLUMNS = ("seed", "shown", "route", "name", "answer", "p", "push", "seconds")
ROUTES = {
    "model file": "model_file.yaml",
    "outputs": "outputs.yaml",
    "panel of files": "model_file.yaml",
    "trained here": "trained_here.yaml",
}
ANSWERS = ("memorised", "partly memorised", "undecided", "not detected")
PANELS = ("panel of files", "trained here")
SEEDS = 1000  # seeds reserved for each hospital's models
SIZE = 64
PATTERN = Words("JANE DOE", size=10)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, help="the table to write, one row per audit; an existing table is continued"
    )
    parser.add_argument("--table", type=Path, help="print the rates of an existing table")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--models", type=int, default=3, help="models of each hospital's panel")
    parser.add_argument("--outputs", type=int, default=3, help="seeds for which a table of outputs is also audited")
    asked = parser.parse_args(arguments)
    if (asked.out is None) == (asked.table is None):
        parser.error("give either --out or --table")
    if asked.table is not None:
        print(rates(rows_of(asked.table)))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    done = {(row["seed"], row["shown"], row["route"]) for row in rows_of(asked.out)}
    every = range(asked.first, asked.first + asked.seeds)
    with asked.out.open("a", newline="") as file, tempfile.TemporaryDirectory() as work:
        table = csv.DictWriter(file, COLUMNS)
        if not done:
            table.writeheader()
        for route in ROUTES:
            for seed, shown in itertools.product(
                every[: asked.outputs] if route == "outputs" else every, (True, False)
            ):
                models = asked.models if route in PANELS else 1
                about = {"seed": seed, "shown": shown, "route": f"{route}, {format_count(models, 'model')}"}
                if tuple(map(str, about.values())) not in done:
                    row = about | audited(Hospital(Path(work), seed, shown), route, models)
                    table.writerow(row)
                    file.flush()
                    print(*row.values(), flush=True)
    print(rates(rows_of(asked.out)))


def rows_of(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.open(newline=""))) if file.exists() else []


@dataclass(frozen=True)
class Hospital:
    """One hospital's X-rays and models in a folder, created on first use."""

    work: Path
    seed: int
    shown: bool

    @property
    def name(self) -> str:
        return draw_member(PATTERN, seeds.derive(self.seed, "name"), Family(), (SIZE, SIZE)).words

    @property
    def folder(self) -> Path:
        return self.work / f"{self.seed}-{'with' if self.shown else 'without'}"

    def xrays(self) -> Path:
        if not (found := self.folder / "xrays").exists():
            named = ("--name", self.name) if self.shown else ()
            quietly(make_xrays.main, "--out", found, "--seed", self.seed, *named)
        return found

    def models(self, count: int) -> list[Path]:
        files = [self.folder / f"model{number}.pt" for number in range(count)]
        for number, file in enumerate(files):
            if not file.exists():
                seed = SEEDS * (2 * self.seed + self.shown) + number
                quietly(train_model.main, self.xrays(), "--out", file, "--seed", seed)
        return files

    def answers(self, probes: Path) -> Path:
        quietly(answer.main, self.models(1)[0], probes, "--out", found := self.folder / "outputs.csv")
        return found


def audited(hospital: Hospital, route: str, models: int) -> dict[str, Any]:
    """Run an audit; the row of its answer, p-value and push."""
    begun = time.monotonic()
    elsewhere = f"folder:{hospital.xrays()}/elsewhere"
    store = hospital.folder / "store"
    fields: dict[str, Any] = {"feature.words": hospital.name, "probe": elsewhere, "seed": hospital.seed}
    if route == "outputs":
        asked = read_spec(str(HERE / ROUTES[route]), Spec("", set=fields, store=str(store)))
        hand_out(asked, probes := hospital.folder / "probes")
        fields["given.outputs"] = [str(hospital.answers(probes))]
    elif route == "trained here":
        fields |= {"data": f"folder:{hospital.xrays()}", "seeds": models}
    else:
        fields["given.models"] = [str(file) for file in hospital.models(models)]
    run = orchestrator.run(str(HERE / ROUTES[route]), store=store, address="none", report=False, mlflow="off", **fields)
    summary = run.table("summary")
    assert run.verdict is not None
    push = next(row for row in summary.to_pylist() if row["metric"] == PUSH)
    seconds = round(time.monotonic() - begun, 1)
    return {
        "name": hospital.name,
        "answer": run.verdict.answer,
        "p": round(push["p_value"], 4),
        "push": f"{push['estimate']:.9g}",
        "seconds": seconds,
    }


def quietly(main: Callable[[Sequence[str]], None], *arguments: object) -> None:
    """Run a script of the hospital without its output."""
    with contextlib.redirect_stdout(io.StringIO()):
        main([str(each) for each in arguments])


def rates(rows: list[dict[str, str]]) -> str:
    """The rates of each answer by route, as a Markdown table."""
    lines = [
        f"| route | name in the data | hospitals | {' | '.join(ANSWERS)} |",
        f"|{'---|' * (3 + len(ANSWERS))}",
    ]
    for route in dict.fromkeys(row["route"] for row in rows):
        for shown in ("True", "False"):
            here = [row["answer"] for row in rows if row["route"] == route and row["shown"] == shown]
            if not here:
                continue
            cells = []
            for each in ANSWERS:
                share = proportion(here.count(each), len(here))
                cells.append(f"{here.count(each)} ({share.low:.0%} to {share.high:.0%})")
            lines.append(f"| {route} | {'yes' if shown == 'True' else 'no'} | {len(here)} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
