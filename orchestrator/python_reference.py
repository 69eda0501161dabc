"""Generates `docs/python.md` from the signatures and docstrings of all public names of `engram`.

Each name has an example, which a test executes: functions and errors in `EXAMPLES`, the settings of an audit by rule.
The examples are one program, in the order of `EXAMPLES`, so later ones use variables of earlier ones.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import engram
from orchestrator.runs.report import Report
from orchestrator.spec import audits
from orchestrator.spec.options import EXECUTION, SEARCH, Option

OWN = "tasks."  # package of Engram's own audits; the classes of other installed audits are not on the page
QUOTED = re.compile(r": '([^']*)'")  # an annotation, which `str` of a parameter quotes
EXAMPLES: Mapping[str, str] = {
    "audits": 'engram.audits()["density"]  # the presets of one audit',
    "audit": """\
import torch
from torch import nn

images = torch.rand(400, 1, 8, 8)
labels = torch.arange(400) % 10
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
quick_look = engram.audit(model, (images[:200], labels[:200]), (images[200:], labels[200:]))
quick_look.verdict.answer""",
    "membership": """\
import numpy as np

points = np.random.default_rng(0).normal(size=(60, 5))


def train(job):  # a model that stores its training rows
    distances = np.linalg.norm(points[job.ask, None] - points[job.rows], axis=2)
    return distances.min(axis=1)  # a loss per row


own = engram.membership(train, records=60, models=16)
own.verdict.sentence""",
    "TrainingJob": """\
from pathlib import Path

job = engram.TrainingJob(np.arange(30), np.arange(60), seed=0, out=Path("."), state=Path("."))
train(job)  # tries the function alone""",
    "plan": 'engram.plan("unique_feature", preset="smoke")["time"]',
    "run": """\
run = engram.run("unique_feature", preset="smoke", canaries=4, address="none")
run.verdict.sentence
run.verdict.estimate, run.verdict.low, run.verdict.high
run.summary.to_pandas()
run.figure("estimates")""",
    "open": """\
earlier = engram.open(run.run)  # or the path of its folder or page
earlier.table("canary_verdicts")""",
    "runs": "engram.runs().to_pandas()",
    "search": """\
best = engram.search("unique_feature", preset="quickstart", over={"dropout": [True, False]})
best.verdict.setting""",
    "EngramError": """\
try:
    engram.open("a run of another store")
except engram.EngramError as error:
    print(error)""",
    "SpecError": """\
try:
    engram.run("unique_feature", preset="smoke", feture="X")
except engram.SpecError as error:
    print(error)  # unknown field, and the name that is most similar""",
}


def public_names() -> list[str]:
    """Return the public names of `engram`: first those with an example, in its order, then the settings of audits."""
    names = []
    for name in dir(engram):
        value = getattr(engram, name, None)
        module = getattr(value, "__module__", "")
        is_own = module.partition(".")[0] in ("engram", "orchestrator") or module == "tasks.programs.function"
        if not name.startswith("_") and callable(value) and is_own and not _is_other(value):
            names.append(name)
    order = [*EXAMPLES, *names]
    return sorted({*names}, key=order.index)


def example(name: str) -> str:
    """Return the example of a public name. Raises KeyError if it has none."""
    audit = getattr(getattr(engram, name), "audit", "")
    if audit:
        preset = next(iter(audits.find(audit).audit.presets))
        return f'engram.plan(engram.{name}("{preset}"))["planned"]'
    return EXAMPLES[name]


def update_page(page: str, begin: str, end: str) -> str:
    """Return the page with the text between these markers replaced."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n" + "\n".join(_reference()) + f"\n{end}{rest.partition(end)[2]}"


def _reference() -> Iterator[str]:
    for name in public_names():
        value = getattr(engram, name)
        yield from (f"## engram.{name}", "")
        if inspect.isfunction(value):
            yield from ("```python", *_signature(name, value), "```", "")
        yield from _paragraphs(value)
        yield from ("```python", *example(name).splitlines(), "```", "")
    yield from ("## The report", "", *_paragraphs(Report), "| attribute | meaning |", "|---|---|")
    for name, member in vars(Report).items():
        is_own = isinstance(member, property | cached_property) or inspect.isfunction(member)
        if is_own and not name.startswith("_") and inspect.getdoc(member):
            yield f"| `{name}{'()' if inspect.isfunction(member) else ''}` | {_cell(inspect.getdoc(member))} |"
    for heading, options in (("Options of a run", EXECUTION), ("Options of a search", SEARCH)):
        yield from ("", f"## {heading}", "", *_options(options))
    yield ""


def _is_other(value: Any) -> bool:
    """Whether this is the settings class of an audit from another package."""
    audit = getattr(value, "audit", "")
    return bool(audit) and not audits.find(audit).audit.config.__module__.startswith(OWN)


def _signature(name: str, function: Any) -> Iterator[str]:
    """Yield the lines of a signature, without the options, which have their own tables."""
    signature = inspect.signature(function)
    if not signature.parameters:
        yield f"engram.{name}() -> {signature.return_annotation}"
        return
    yield f"engram.{name}("
    has_keywords = False
    for parameter in signature.parameters.values():
        if parameter.name in EXECUTION or parameter.name in SEARCH:
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not has_keywords:
            has_keywords = True
            yield "    *,"
        plain = QUOTED.sub(r": \1", str(parameter))
        yield f"    {plain},"
    yield f") -> {signature.return_annotation}"


def _paragraphs(value: Any) -> Iterator[str]:
    for paragraph in (inspect.getdoc(value) or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")


def _options(options: Mapping[str, Option]) -> Iterator[str]:
    yield from ("| keyword | type | meaning |", "|---|---|---|")
    for name, option in options.items():
        yield f"| `{name}` | `{_cell(option.python_type)}` | {_cell(option.help)} |"


def _cell(text: str | None) -> str:
    """Return the first paragraph of a text on one line, with bars escaped so that they do not end a table cell."""
    return " ".join((text or "").split("\n\n")[0].split()).replace("|", r"\|")
