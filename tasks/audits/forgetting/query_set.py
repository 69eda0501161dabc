"""The pool of images of which a query set is drawn, and the control set that is held back or given beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tasks import seeds
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder
from tasks.ranges import at_least, share

if TYPE_CHECKING:
    from tasks.datasets.images import Images


@dataclass(frozen=True)
class QuerySet:
    """The query set D_Q, and the control set: images of the same source that nobody was given and none trains on.

    `data`, `first` and `examples` say which images there are, as in `Part`. Of them a random share `held_back`, whole
    groups such as patients where there are groups, is the control set, and D_Q the rest; 0: there is none, and what
    models say of D_Q cannot be told from what they say of any image of its source. `control` is a control set of its
    own, drawn as D_Q was, of which all is then D_Q.
    """

    data: Dataset
    first: int = 0
    examples: int = 0
    control: Part | None = None
    held_back: float = 0.5

    def __post_init__(self) -> None:
        at_least(self, {"first": 0, "examples": 0})
        share(self, "held_back", one=False)
        if self.control is not None:
            object.__setattr__(self, "held_back", 0.0)  # nothing of it is held back where control images are given

    @property
    def pool(self) -> Part:
        """The images that are D_Q or held back of it."""
        return Part(self.data, self.first, self.examples)

    @property
    def is_controlled(self) -> bool:
        """Whether there is a control set."""
        return self.control is not None or self.held_back > 0

    def plainly(self, images: Images, control: Images | None) -> QuerySet:
        """The same images written as few numbers as need be, so that equal sets have equal keys."""
        given = self.control if self.control is None or control is None else self.control.plainly(control)
        return replace(self, examples=self.pool.plainly(images).examples, control=given)

    def trained_on(self, seed: int) -> Part | Remainder:
        """D_Q, of which a run with this seed trains."""
        if not self.held_back:
            return self.pool
        return Remainder(self.pool, self.held_back, seeds.derive(seed, "control"))
