"""The space of a search: the values that each field may take.

dropout=true,false           one of these
learning_rate=1e-4..1e-2     between these, each value as likely as any other
epochs=log(4..64)            between these, each order of magnitude as likely as any other
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec import specification
from orchestrator.spec.fields import coerce, split_list, text

SPAN = re.compile(r"(?P<log>log\()?\s*(?P<low>[^\s.,()][^\s,()]*?)\.\.(?P<high>[^\s,()]+?)\s*(?(log)\))")
HOW = "write it as a,b,c, as low..high or as log(low..high)"
DIGITS = 3  # significant ones of a value that is drawn from a range: more tell no two trainings apart


@dataclass(frozen=True)
class Choice:
    """One of some values, as they are written in a specification."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join(self.values)


@dataclass(frozen=True)
class Range:
    """A number from a range, ends included; `log`: uniform in its logarithm; `whole`: a whole number."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        low, high = (f"{int(end)}" if self.whole else f"{end:g}" for end in (self.low, self.high))
        return f"log({low}..{high})" if self.log else f"{low}..{high}"

    def round_value(self, value: float) -> float | int:
        """A value drawn from the range, with as many digits as matter."""
        return int(value) if self.whole else min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


Domain = Choice | Range
Space = Mapping[str, Domain]


def parse_domains(texts: Iterable[str]) -> dict[str, str]:
    """The domains of `--over FIELD=DOMAIN`, as text by field. Raises SpecError where a field is given twice."""
    return specification.settings(texts)


def space(domains: Mapping[str, Any], types: Mapping[str, type | None]) -> dict[str, Domain]:
    """The space from each field's domain as text, or as the list of values of a YAML file.

    `types` has the type of each field's value where it is a number. Raises SpecError for what is no domain.
    """
    if not domains:
        raise SpecError("a search needs a field to vary: --over FIELD=A,B,C, or over: in the file")
    return {name: domain(name, value, types.get(name)) for name, value in domains.items()}


def domain(name: str, value: Any, of: type | None = None) -> Domain:
    """The domain of a field whose value is a number of type `of` (None: of any other type)."""
    if isinstance(value, str) and (match := SPAN.fullmatch(value.strip())):
        return _parse_range(name, value, match, of)
    values = _values(name, value)
    if len(values) < 2:
        raise SpecError(f"over {name} has the one value {text(values[0]):.80}; {HOW}")
    if len(set(values)) < len(values):
        raise SpecError(f"over {name} has a value twice: {', '.join(values)}")
    return Choice(values)


def size(of: Space) -> int | None:
    """How many points a space has; None where it is continuous, or a range."""
    counts = [len(domain.values) if isinstance(domain, Choice) else None for domain in of.values()]
    return None if None in counts else math.prod(count for count in counts if count is not None)


def _parse_range(name: str, value: str, match: re.Match[str], of: type | None) -> Range:
    if of not in (int, float):
        raise SpecError(f"over {name} is {value}; a range is for numbers, and this field takes others: {HOW}")
    low, high = (coerce(match[end], of, f"over {name}") for end in ("low", "high"))
    if not low < high:
        raise SpecError(f"over {name} is {value}; its first end must be below its second")
    if match["log"] and low <= 0:
        raise SpecError(f"over {name} is {value}; the ends of a logarithmic range must be above 0")
    try:
        return Range(float(low), float(high), bool(match["log"]), of is int)
    except OverflowError:
        raise SpecError(f"over {name} is {value:.40}...; its ends must be below 1e308") from None


def _values(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        values = [text(each) for each in value]
    elif isinstance(value, str):
        values = split_list(f"[{value}]")
    else:
        raise SpecError(f"over {name} is {value!r}; {HOW}")
    if not values:
        raise SpecError(f"over {name} has no values; {HOW}")
    return tuple(values)
