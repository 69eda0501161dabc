"""The long form of a simulation: any number of seeds, in several processes, to the last one whatever breaks."""

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
    """Run `one` for the seeds that the command line asks for; print what happened, and exit 1 if a rule was broken."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    seen: Counts = Counter()
    broken: list[int] = []
    tried, began, said = 0, time.monotonic(), 0.0
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        seeds = range(given.seed, given.seed + given.count)
        for seed, counts, error in pool.imap_unordered(partial(_outcome, one), seeds, BATCH):
            tried += 1
            seen += counts
            if error:
                broken.append(seed)
                print(f"seed {seed} broke a rule:\n{error}", flush=True)  # noqa: T201
            seconds = time.monotonic() - began
            if seconds - said > LINE_SECONDS or tried == given.count:
                said = seconds
                print(f"{tried} tried, {tried / seconds:.0f} a second, {len(broken)} broken: {dict(seen)}", flush=True)  # noqa: T201
    if broken:
        raise SystemExit(f"broken by {', '.join(map(str, sorted(broken)))}")


def _outcome(one: Callable[[int], Counts], seed: int) -> tuple[int, Counts, str]:
    """The seed, what was counted, and how a rule was broken; empty if none was."""
    try:
        return seed, one(seed), ""
    except Exception:
        return seed, Counter(), traceback.format_exc()
