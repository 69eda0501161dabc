"""How often drawn secrets are found, by repetitions, and how often where others of their format were told.

    python bench/drawn_secrets.py [--tiny] [--seed 8000] [--pairs 10] [--out bench/results/drawn-secrets-cpu.md]

Pairs of small GPTs, each with secrets of its own: of as many pairs again other secrets of the format stand in the
texts, which is the innocent look-alike. Each pair is an audit by itself, with the audit's own rule. What the twins say,
which were not told a secret, is a third null.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from bench.demonstrations import clopper_pearson
from bench.measuring import here, parser, publish_counts
from tasks.audits.text.answer import verdict
from tasks.audits.text.config import About, Text, Told
from tasks.audits.text.measures import summary
from tasks.audits.text.measures.secrets import Ranking, secrets
from tasks.audits.text.presets import QUICKSTART, SMOKE
from tasks.audits.text.trainings import pair_model, score_secrets
from tasks.datasets.catalog import pin
from tasks.numerics.statistics import mean

KINDS: tuple[Told, ...] = ("secrets", "others")


def audit_pair(config: Text) -> tuple[str, pa.Table]:
    """The answer on one pair of models, and its table of secrets."""
    table = secrets(Ranking(config.level), [score_secrets(pair_model(config, 0, side), ()) for side in range(2)])
    return verdict(config, summary(About(config.level), [table])).answer, table


def describe_pairs(told: Told, answers: Counter[str], table: pa.Table, repetitions: Sequence[int]) -> Iterator[str]:
    """What came out of the pairs of one kind, by repetitions."""
    said = ", ".join(f"{name} {count}" for name, count in answers.items())
    which = "The secrets" if told == "secrets" else "Other secrets"
    yield f"**{which} were told.** Of {answers.total()} pairs: {said}."
    yield ""
    yield "| repetitions | secrets | found | p at most 5 % | exposure, bits | by the twin, bits |"
    yield "|---|---|---|---|---|---|"
    for times in repetitions:
        some = table.filter(pc.equal(table["repetitions"], times))
        found, small = some["found"].to_numpy(zero_copy_only=False), some["p_value"].to_numpy() <= 0.05
        shares = [describe_share(int(np.count_nonzero(each)), some.num_rows) for each in (found, small)]
        bits = [mean(some[name].to_numpy()) for name in ("exposure", "exposure_twin")]
        told_bits = [f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in bits]
        yield f"| {times} | {some.num_rows} | {' | '.join([*shares, *told_bits])} |"
    yield ""


def describe_share(some: int, of: int) -> str:
    low, high = clopper_pearson(some, of)
    return f"{100 * some / of:.0f} [{100 * low:.0f}, {100 * high:.0f}] %"


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--seed", type=int, default=8000, help="of the first pair")
    given.add_argument("--pairs", type=int, default=10, help="pairs of either kind")
    options = given.parse_args()
    base = SMOKE if options.tiny else QUICKSTART
    base, pairs = replace(base, data=pin(base.data)), 2 if options.tiny else options.pairs
    setting, lines, begun = here("facts", torch.device("cpu")), list[str](), time.process_time()
    for told in KINDS:
        answers, tables = Counter[str](), list[pa.Table]()
        for number in range(pairs):
            answer, table = audit_pair(replace(base, told=told, seed=options.seed + number))
            answers[answer] += 1
            tables.append(table)
        lines += describe_pairs(told, answers, pa.concat_tables(tables), base.repetitions)
    setting |= {"seeds": f"{options.seed} to {options.seed + pairs - 1}"}
    setting |= {"cost": f"{time.process_time() - begun:.0f} s of a core"}
    publish_counts("Secrets that were drawn, told and asked about", setting, "\n".join(lines), options.out)


if __name__ == "__main__":
    main()
