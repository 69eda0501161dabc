"""The long form of a simulation: any number of seeds, in several processes. A broken rule does not end it early."""

from __future__ import annotations

import argparse
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial

Counts = Counter[str]
BATCH = 50  # seeds that a process takes at a time
LINE_SECONDS = 60.0  # between lines on the way


def try_seeds(description: str, count: int, one: Callable[[int], Counts]) -> None:
    """Run `one` for the seeds given on the command line, print the counts, and exit with 1 if a rule was broken."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    sums: Counts = Counter()
    broken: list[int] = []
    tried = 0
    began = time.monotonic()
    last_line = 0.0
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        seeds = range(options.seed, options.seed + options.count)
        for seed, counts, error in pool.imap_unordered(partial(_outcome, one), seeds, BATCH):
            tried += 1
            sums += counts
            if error:
                broken.append(seed)
                print(f"seed {seed} broke a rule:\n{error}", flush=True)  # noqa: T201
            seconds = time.monotonic() - began
            if seconds - last_line > LINE_SECONDS or tried == options.count:
                last_line = seconds
                print(f"{tried} tried, {tried / seconds:.0f} a second, {len(broken)} broken: {dict(sums)}", flush=True)  # noqa: T201
    if broken:
        raise SystemExit(f"broken by {', '.join(map(str, sorted(broken)))}")


def _outcome(one: Callable[[int], Counts], seed: int) -> tuple[int, Counts, str]:
    """The seed, its counts, and the traceback of a broken rule, or an empty text."""
    try:
        return seed, one(seed), ""
    except Exception:
        return seed, Counter(), traceback.format_exc()
