"""The pool of images of which a query set is drawn, and the control set that is held back or given beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder
from tasks.external.blinding import check_secret, derive_secret_seed, withheld
from tasks.files import WITHHELD
from tasks.ranges import check_minimums, share

if TYPE_CHECKING:
    from tasks.datasets.images import Images

GUESSABLE = (
    "Warning: which pictures are D_Q follows from the run's seed, and an owner who tries seeds can tell them apart: "
    "set query.secret=$(openssl rand -hex 16) before any picture is given, and keep it."
)


@dataclass(frozen=True)
class QuerySet:
    """The query set D_Q, and the control set: images of the same source that nobody was given and none trains on.

    Without a control set, what models say of D_Q cannot be told from what they say of any image of its source.
    """

    data: Dataset
    """The data set of which they are training images."""
    first: int = 0
    """Their first row."""
    examples: int = 0
    """How many there are; 0: all that follow."""
    control: Part | None = None
    """A control set of its own, drawn at random from the pool that D_Q was drawn from; none: see `held_back`."""
    held_back: float = 0.5
    """The random share that is held back as the control set, in whole groups such as patients where there are
    groups; 0: there is no control set, and nobody is judged."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld})
    """Text that nobody can guess, which says together with `seed` what is held back and in which order images are
    handed out; without one, who tries seeds finds it."""

    def __post_init__(self) -> None:
        check_minimums(self, {"first": 0, "examples": 0})
        share(self, "held_back", one=False)
        check_secret(self.secret)
        if self.control is not None:
            object.__setattr__(self, "held_back", 0.0)  # nothing of it is held back where control images are given

        if not self.is_controlled:
            object.__setattr__(self, "secret", "")  # there is nothing to tell apart, and so nothing to hide

    @property
    def pool(self) -> Part:
        """The images that are D_Q or held back of it."""
        return Part(self.data, self.first, self.examples)

    @property
    def is_controlled(self) -> bool:
        """Whether there is a control set."""
        return self.control is not None or self.held_back > 0

    @property
    def is_guessable(self) -> bool:
        """Whether who tries the seeds of runs can find out which images are the control set."""
        return self.is_controlled and not self.secret

    def plainly(self, images: Images, control: Images | None) -> QuerySet:
        """The same images written as few numbers as need be, so that equal sets have equal keys."""
        given = self.control if self.control is None or control is None else self.control.plainly(control)
        return replace(self, examples=self.pool.plainly(images).examples, control=given)

    def query_part(self, seed: int) -> Part | Remainder:
        """D_Q, of which a run with this seed trains."""
        if not self.held_back:
            return self.pool
        return Remainder(self.pool, self.held_back, self.derive_seed(seed, "control"))

    def derive_seed(self, seed: int, name: str) -> int:
        """The seed of what an owner must not know: of a run's seed and the secret, which a SHA-256 does not give back.

        That of the run's seed alone where there is no secret.
        """
        return derive_secret_seed(seed, name, self.secret)
