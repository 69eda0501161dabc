"""Faults of files at rest: a file of any kind is truncated, deleted, swapped with a similar one or changed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from orchestrator.store.entry import RESULTS
from tests.chaos.rounds import Round

# The differences between the names of files of one kind, and their replacements.
KIND = ((re.compile(r"^runs/[^/.][^/]*/"), "runs/RUN/"), (re.compile(r"[0-9a-f]{8,}"), "*"), (re.compile(r"\d+"), "N"))


def kind_of(name: str) -> str:
    if name.startswith(f"{RESULTS}/"):
        return RESULTS
    for pattern, instead in KIND:
        name = pattern.sub(instead, name)
    return name


def damage(change: Callable[[Round, str, list[str]], str]) -> Callable[[Round], str]:
    """The fault that changes one file of a run that is finished or was killed."""

    def fault(campaign_round: Round) -> str:
        when = campaign_round.rng.choice(("ended", "killed"))
        if when == "ended":
            campaign_round.copy_reference()
        else:
            driver = campaign_round.start()
            campaign_round.await_share(driver)
            driver.kill()
            driver.wait()
        kinds = defaultdict(list)
        for name in campaign_round.files.names():
            kinds[kind_of(name)].append(name)
        kind = campaign_round.rng.choice(sorted(kinds))
        name = campaign_round.rng.choice(kinds[kind])
        description = change(campaign_round, name, [candidate for candidate in kinds[kind] if candidate != name])
        return f"{when}, {kind}{description}"

    return fault


def destroy(campaign_round: Round, *names: str) -> None:
    """Record that the content of these files has changed."""
    campaign_round.destroyed |= {Path(name).stem for name in names if name.startswith(f"{RESULTS}/")}


def truncate(campaign_round: Round, name: str, similar_names: list[str]) -> str:
    data = campaign_round.files.get(name)
    campaign_round.files.put(name, data[: campaign_round.rng.randrange(max(1, len(data)))])
    destroy(campaign_round, name)
    return ""


def delete(campaign_round: Round, name: str, similar_names: list[str]) -> str:
    campaign_round.files.delete(name)
    destroy(campaign_round, name)
    return ""


def swap(campaign_round: Round, name: str, similar_names: list[str]) -> str:
    """Swap with a file of the same kind, or with any file if there is none."""
    another = campaign_round.rng.choice(
        similar_names or [each_name for each_name in campaign_round.files.names() if each_name != name]
    )
    first, second = campaign_round.files.get(name), campaign_round.files.get(another)
    if first == second:
        return ", alike"
    campaign_round.files.put(name, second)
    campaign_round.files.put(another, first)
    destroy(campaign_round, name, another)
    return f" with {kind_of(another)}"


def flip(campaign_round: Round, name: str, similar_names: list[str]) -> str:
    data = bytearray(campaign_round.files.get(name))
    bits = campaign_round.rng.choice((1, 1, 1, 8))
    for _ in range(bits if data else 0):
        bit = campaign_round.rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
    campaign_round.files.put(name, bytes(data))
    destroy(campaign_round, name)
    return f", {bits} bits"
