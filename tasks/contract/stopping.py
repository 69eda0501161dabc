"""How an audit ends once it is decided: by a path of evidence over its pairs, which may be looked at after each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Stopping:
    """What a run of the audit needs to end early.

    `level` and `pairs` are fields of the config: the error rate, 0 for a run that goes to its end, and how many pairs
    are planned at most. Fewer pairs must be the first of more. `table` is the root whose job reads a table of each
    pair, in this order, and writes a row for each with the columns `evidence` and `decided`; a pair's row may depend
    on those before it alone.
    """

    level: str
    pairs: str
    table: str

    def is_asked(self, config: Any) -> bool:
        return bool(getattr(config, self.level))

    def planned(self, config: Any) -> int:
        """The pairs that are planned at most."""
        return int(getattr(config, self.pairs))

    def first(self, config: Any, pairs: int) -> Any:
        """The config of the first so many pairs."""
        return replace(config, **{self.pairs: pairs})

    def settings(self, level: float, most: int | None) -> Mapping[str, Any]:
        """The fields of a run that ends early, after so many pairs at most (None: as many as the config has)."""
        return {self.level: level} | ({} if most is None else {self.pairs: most})
