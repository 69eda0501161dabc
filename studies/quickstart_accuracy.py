"""How often is the answer of a quickstart right?

    python -m studies quickstart_accuracy AUDIT [FIELD=VALUE ...] [--preset NAME] [--first 100] [--seeds 20]
                                          [--runs FILE] [--out FILE]

The training data of a quickstart is known, so its answer is either right or wrong. `forgetting` decides on each of its
targets and reports the number of correct decisions. Every other audit gives one answer about models trained on the
audited data. A seed counts as right if all its answers are right. Runs are sequential, each in a separate store. With
`--runs`, outcomes are stored in this file, one line per seed, and stored seeds are not repeated.
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
Ask = Callable[..., Any]  # runs an engram command and returns its JSON


@dataclass(frozen=True)
class Outcome:
    """A run's answers by subject, and the number of correct ones."""

    seed: int
    answers: Mapping[str, str]
    right: int
    seconds: float  # processor time

    @property
    def all_right(self) -> bool:
        return self.right == len(self.answers)


def outcome(audit: str, preset: str, seed: int, settings: Sequence[str] = ()) -> Outcome:
    """Run the preset at this seed and return the outcome. Raises CalledProcessError if the run fails."""
    with tempfile.TemporaryDirectory() as store:
        before = processor_seconds()

        def engram(*arguments: str) -> Any:
            process = subprocess.run(
                [*ENGRAM, *arguments, "--store", store, "--json"], check=True, stdout=subprocess.PIPE, text=True
            )
            return json.loads(process.stdout)

        run_arguments = (audit, "--preset", preset, f"seed={seed}", *settings)
        run = engram("run", *run_arguments, "--address", "none", "--no-report", "--mlflow", "off")["run"]
        seconds = processor_seconds() - before
        answers, right = decided(audit, run, engram)
    return Outcome(seed, answers, right, seconds)


def decided(audit: str, run: str, engram: Ask) -> tuple[dict[str, str], int]:
    """Return the answers of a run by subject, and the number of correct ones."""
    if audit != "forgetting":
        (answer,) = [run_row["answer"] for run_row in engram("runs") if run_row["run"] == run]
        return {"run": answer}, int(answer == FOUND[audit])
    targets = engram("results", run, "decisions")
    return {run_row["name"]: run_row["decision"] for run_row in targets}, sum(
        run_row["right"] == "right" for run_row in targets
    )


def processor_seconds() -> float:
    """Return the processor seconds of all finished commands."""
    spent = os.times()
    return spent.children_user + spent.children_system


def outcomes(
    audit: str, preset: str, seeds: Sequence[int], settings: Sequence[str] = (), path: Path | None = None
) -> Iterator[Outcome]:
    """Yield the outcome at each seed. It is read from the file if stored; otherwise it is measured and stored."""
    lines = []
    if path is not None and path.exists():
        lines = path.read_text().splitlines()
    stored_outcomes = {}
    for line in lines:
        stored = Outcome(**json.loads(line))
        stored_outcomes[stored.seed] = stored
    for seed in seeds:
        if seed not in stored_outcomes:
            stored_outcomes[seed] = outcome(audit, preset, seed, settings)
            if path is not None:
                with path.open("a") as file:
                    file.write(json.dumps(asdict(stored_outcomes[seed])) + "\n")
        yield stored_outcomes[seed]


def markdown(results: Sequence[Outcome]) -> str:
    """Render the counts of answers by subject, and the fraction of seeds with only correct answers."""
    lines = ["| decided | answers | seeds |", "|---|---|---|"]
    for name in results[0].answers:
        counts = Counter(outcome.answers[name] for outcome in results).most_common()
        lines.append(f"| {name} | {', '.join(f'{answer} {count}' for answer, count in counts)} | {len(results)} |")
    right = sum(outcome.all_right for outcome in results)
    seeds = len(results)
    low, high = exact_interval(right, seeds)
    wrong_seeds = [str(outcome.seed) for outcome in results if not outcome.all_right]
    things = [sum(outcome.right for outcome in results), sum(len(outcome.answers) for outcome in results)]
    mean = sum(outcome.seconds for outcome in results) / seeds
    return (
        "\n".join(lines)
        + f"\n\nSeeds at which everything is right: {right} of {seeds}, {100 * right / seeds:.0f} % "
        + f"[{100 * low:.0f}, {100 * high:.0f}] (95 % Clopper-Pearson); answers that are right: {things[0]} of "
        + f"{things[1]}. Other seeds: {', '.join(wrong_seeds) or 'none'}. Processor time of a run: {mean:.0f} s.\n"
    )


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("audit", choices=("forgetting", *FOUND))
    parser.add_argument("settings", nargs="*", metavar="FIELD=VALUE", help="fields of the config")
    parser.add_argument("--preset", default="quickstart")
    parser.add_argument("--first", type=int, default=100, help="the first seed; the next is the next one")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds")
    parser.add_argument("--runs", type=Path, help="file that stores the outcomes of seeds")
    options = parser.parse_args(arguments)
    settings = [*options.settings, *(["scale=tiny"] if options.tiny else [])]
    seeds = range(options.first, options.first + options.seeds)
    setting = measurement_facts("embedded", torch.device("cpu"))
    command = ["python -m studies quickstart_accuracy", options.audit, *settings, f"--preset {options.preset}"]
    setting["command"] = " ".join([*command, f"--first {options.first} --seeds {options.seeds}"])
    results = list(outcomes(options.audit, options.preset, seeds, settings, options.runs))
    publish_counts(f"How often {options.audit}'s {options.preset} is right", setting, markdown(results), options.out)
