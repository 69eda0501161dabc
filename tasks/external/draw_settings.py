"""Settings of a draw between two parties, shared by the audits that send texts or images to a model's owner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import Ranged
from tasks.external.blinding import withheld
from tasks.external.bound_draw import OTHER_PARTY, check_secret, derive_secret_seed
from tasks.worker.files import WITHHELD


@dataclass(frozen=True)
class BoundDraw(Ranged):
    """Secret, nonce and commitment of a draw between two parties."""

    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld, OUTSIDE_COMMITMENT: True})
    """Ours: text that no one can guess. With `seed`, it determines the draw and the order in the owner's files; without
    it, an owner who tries seeds can find both."""
    nonce: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: text that the other party named after receiving the commitment (`engram probes --commit`). The draw and the
    order also depend on it, so neither party can choose them."""
    nonce_by: str = field(default=OTHER_PARTY, metadata={OUTSIDE_COMMITMENT: True, ANSWER_ONLY: True})
    """Ours: the party that named the nonce: the model's owner, or a public beacon after the commitment."""
    commitment: str = field(default="", metadata={OUTSIDE_COMMITMENT: True, ANSWER_ONLY: True})
    """Ours: the commitment that the nonce was named after. It covers the whole configuration except the nonce, the
    secret and the other party's answers; a run with another configuration is refused."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        check_secret(self.secret, self.nonce, self.nonce_by)

    def derive_seed(self, seed: int, name: str) -> int:
        """Derive the seed of a draw between two parties."""
        return derive_secret_seed(seed, name, self.secret, self.nonce)
