"""How often is the answer of a quickstart right?

    python -m studies quickstart_accuracy AUDIT [FIELD=VALUE ...] [--preset NAME] [--first 100] [--seeds 20]
                                          [--runs FILE] [--out FILE]

What a quickstart trains is known, so its answer is right or wrong. `forgetting` decides each of its targets, and says
itself how many of them it decided rightly; the other audits give one answer, and a quickstart trains on what the audit
is to find. A seed counts where everything is right. Runs are one after another, each in a store of its own; with
`--runs` what is known of a seed is kept in that file, a line each, and not run again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.numerics.statistics import exact_interval

ENGRAM = (sys.executable, "-m", "orchestrator")
FOUND = {"unique_feature": "memorised", "density": "memorised", "deja_vu": "memorised", "relational": "memorised"}
Ask = Callable[..., Any]  # a command of engram, whose JSON it gives back


@dataclass(frozen=True)
class Outcome:
    """What a run answered on each thing that it decides, by its name, and on how many of these it was right."""

    seed: int
    answers: Mapping[str, str]
    right: int
    seconds: float  # of processor time

    @property
    def all_right(self) -> bool:
        return self.right == len(self.answers)


def outcome(audit: str, preset: str, seed: int, settings: Sequence[str] = ()) -> Outcome:
    """What the preset answers at this seed; CalledProcessError where the run fails."""
    with tempfile.TemporaryDirectory() as store:
        before = processor_seconds()

        def engram(*arguments: str) -> Any:
            said = subprocess.run(
                [*ENGRAM, *arguments, "--store", store, "--json"], check=True, stdout=subprocess.PIPE, text=True
            )
            return json.loads(said.stdout)

        asked = (audit, "--preset", preset, f"seed={seed}", *settings)
        run = engram("run", *asked, "--address", "none", "--no-report", "--mlflow", "off")["run"]
        seconds = processor_seconds() - before
        answers, right = decided(audit, run, engram)
    return Outcome(seed, answers, right, seconds)


def decided(audit: str, run: str, engram: Ask) -> tuple[dict[str, str], int]:
    """The answers of a run by what they are on, and how many are right."""
    if audit != "forgetting":
        (answer,) = [of["answer"] for of in engram("runs") if of["run"] == run]
        return {"run": answer}, int(answer == FOUND[audit])
    targets = engram("results", run, "decisions")
    return {of["name"]: of["decision"] for of in targets}, sum(of["right"] == "right" for of in targets)


def processor_seconds() -> float:
    """Seconds of processor time of the commands that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


def outcomes(
    audit: str, preset: str, seeds: Sequence[int], settings: Sequence[str] = (), kept: Path | None = None
) -> Iterator[Outcome]:
    """The outcome at each seed, read from the file where it is there, and else added to it."""
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    known = {of.seed: of for of in (Outcome(**json.loads(line)) for line in lines)}
    for seed in seeds:
        if seed not in known:
            known[seed] = outcome(audit, preset, seed, settings)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(asdict(known[seed])) + "\n")
        yield known[seed]


def markdown(found: Sequence[Outcome]) -> str:
    """How often each thing was answered how, and at how many seeds everything was right."""
    lines = ["| decided | answers | seeds |", "|---|---|---|"]
    for name in found[0].answers:
        counts = Counter(of.answers[name] for of in found).most_common()
        lines.append(f"| {name} | {', '.join(f'{answer} {count}' for answer, count in counts)} | {len(found)} |")
    right, seeds = sum(of.all_right for of in found), len(found)
    low, high = exact_interval(right, seeds)
    others = [str(of.seed) for of in found if not of.all_right]
    things = [sum(of.right for of in found), sum(len(of.answers) for of in found)]
    mean = sum(of.seconds for of in found) / seeds
    return (
        "\n".join(lines)
        + f"\n\nSeeds at which everything is right: {right} of {seeds}, {100 * right / seeds:.0f} % "
        + f"[{100 * low:.0f}, {100 * high:.0f}] (95 % Clopper-Pearson); answers that are right: {things[0]} of "
        + f"{things[1]}. Other seeds: {', '.join(others) or 'none'}. Processor time of a run: {mean:.0f} s.\n"
    )


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("audit", choices=("forgetting", *FOUND))
    parser.add_argument("settings", nargs="*", metavar="FIELD=VALUE", help="fields of the config")
    parser.add_argument("--preset", default="quickstart")
    parser.add_argument("--first", type=int, default=100, help="the first seed; the next is the next one")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--runs", type=Path, help="what is known of a seed is kept here, and read where it is there")
    options = parser.parse_args(arguments)
    settings = [*options.settings, *(["scale=tiny"] if options.tiny else [])]
    seeds = range(options.first, options.first + options.seeds)
    setting = measurement_facts("embedded", torch.device("cpu"))
    command = ["python -m studies quickstart_accuracy", options.audit, *settings, f"--preset {options.preset}"]
    setting["command"] = " ".join([*command, f"--first {options.first} --seeds {options.seeds}"])
    found = list(outcomes(options.audit, options.preset, seeds, settings, options.runs))
    publish_counts(f"How often {options.audit}'s {options.preset} is right", setting, markdown(found), options.out)
