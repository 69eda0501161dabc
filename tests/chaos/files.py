"""Faults of files at rest: any kind of file of a store is cut short, deleted, swapped with its like or changed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from orchestrator.store.entry import RESULTS
from tests.chaos.rounds import Round

# A name with what differs between files of one kind replaced.
KIND = ((re.compile(r"^runs/[^/.][^/]*/"), "runs/RUN/"), (re.compile(r"[0-9a-f]{8,}"), "*"), (re.compile(r"\d+"), "N"))


def kind_of(name: str) -> str:
    if name.startswith(f"{RESULTS}/"):
        return RESULTS
    for pattern, instead in KIND:
        name = pattern.sub(instead, name)
    return name


def damage(change: Callable[[Round, str, list[str]], str]) -> Callable[[Round], str]:
    """The fault that changes one file of a run that has ended, or of one that was killed in the middle."""

    def fault(each: Round) -> str:
        when = each.rng.choice(("ended", "killed"))
        if when == "ended":
            each.copy_reference()
        else:
            driver = each.start()
            each.await_share(driver)
            driver.kill()
            driver.wait()
        kinds = defaultdict(list)
        for name in each.files.names():
            kinds[kind_of(name)].append(name)
        kind = each.rng.choice(sorted(kinds))
        name = each.rng.choice(kinds[kind])
        told = change(each, name, [other for other in kinds[kind] if other != name])
        return f"{when}, {kind}{told}"

    return fault


def destroy(each: Round, *names: str) -> None:
    """Note that these files are not what they were."""
    each.destroyed |= {Path(name).stem for name in names if name.startswith(f"{RESULTS}/")}


def truncate(each: Round, name: str, others: list[str]) -> str:
    data = each.files.get(name)
    each.files.put(name, data[: each.rng.randrange(max(1, len(data)))])
    destroy(each, name)
    return ""


def delete(each: Round, name: str, others: list[str]) -> str:
    each.files.delete(name)
    destroy(each, name)
    return ""


def swap(each: Round, name: str, others: list[str]) -> str:
    """With its like; one that has none gets the bytes of any other file."""
    other = each.rng.choice(others or [each_name for each_name in each.files.names() if each_name != name])
    first, second = each.files.get(name), each.files.get(other)
    if first == second:
        return ", alike"
    each.files.put(name, second)
    each.files.put(other, first)
    destroy(each, name, other)
    return f" with {kind_of(other)}"


def flip(each: Round, name: str, others: list[str]) -> str:
    data = bytearray(each.files.get(name))
    bits = each.rng.choice((1, 1, 1, 8))
    for _ in range(bits if data else 0):
        bit = each.rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
    each.files.put(name, bytes(data))
    destroy(each, name)
    return f", {bits} bits"
