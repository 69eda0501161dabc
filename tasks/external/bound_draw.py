"""A draw that two parties make together, so that neither of them chooses it.

1. The party that asks fixes a secret and its whole configuration, and gives away their commitment, a SHA-256
   (`orchestrator.planning.commitment`).
2. The other party, or a public beacon of a later time, names a nonce that nobody could foresee.
3. All that is drawn follows from the secret and the nonce.

The secret hides the draw from the other party. The nonce keeps the first one from trying secrets until one suits it:
whatever the secret was, the draw is as good as random to whoever did not know the nonce.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tasks.numerics import seeds

LEAST_SECRET = 16  # characters; of hexadecimal digits these are 64 bits
LONGEST_NAME = 80  # characters of the name of who named a nonce
OTHER_PARTY = "the other party"
SCHEME = "engram draw 1"  # of earlier commitments, which hold what is drawn from but not the analysis


@dataclass(frozen=True)
class Draw:
    """What a draw follows from, and the configuration that a commitment to it holds.

    `content()` says what it is drawn from, as numbers, text and sequences of these, data by their digests; ValueError
    before these are known; None if no earlier version committed to it. `stated` is the commitment that the party had
    who named the nonce. `config` is the whole configuration of the audit. `unused` are its fields, by their dotted
    paths, that have no effect once the other party's answers are there, or follow from the draw: a commitment does not
    hold them.
    """

    content: Callable[[], tuple[object, ...]] | None
    config: Any = field(repr=False)
    seed: int
    secret: str = field(repr=False)
    nonce: str = ""
    stated: str = ""
    unused: tuple[str, ...] = ()

    @property
    def pool_commitment(self) -> str:
        """The commitment of earlier versions: the SHA-256 of what is drawn from, the seed and the secret.

        Empty if the audit had none.
        """
        if self.content is None:
            return ""
        text = json.dumps([SCHEME, self.content(), self.seed, self.secret], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def describe_draw(what: str, commitment: str, nonce: str, nonce_by: str) -> str:
    """Who chose it, in sentences: both parties, or one alone. `what` is drawn begins them, in the singular.

    The commitment is the one that was stated: where the secret is masked it cannot be computed.
    """
    if not nonce:
        return (
            f"{what} was chosen by one party alone, the one that ran this audit: whoever is accused has to trust that "
            "it did not try several and keep the one that suits it (engram probes --commit binds it)."
        )
    return (
        f"{what} is bound: it follows from the commitment {commitment} and the nonce {nonce} of {nonce_by}. Whoever "
        "knows that this commitment, and no other, was there before the nonce knows that nobody chose the draw."
    )


def check_secret(secret: str, nonce: str = "", nonce_by: str = OTHER_PARTY) -> None:
    """ValueError where a secret or a nonce is given that could be guessed, or a nonce without a secret."""
    for name, value in (("secret", secret), ("nonce", nonce)):
        if 0 < len(value) < LEAST_SECRET:
            raise ValueError(
                f"{name} has {len(value)} characters; it must have at least {LEAST_SECRET}, which nobody can "
                "guess: $(openssl rand -hex 16)"
            )
    if nonce and not secret:
        raise ValueError("nonce is given and secret is empty; it must be that of the commitment")
    if not (nonce_by.isprintable() and 0 < len(nonce_by.strip()) <= LONGEST_NAME):
        raise ValueError(f"nonce_by is {nonce_by!r}; it must be one line of 1 to {LONGEST_NAME} characters")


def derive_secret_seed(seed: int, name: str, secret: str, nonce: str = "") -> int:
    """The seed of what an owner must not know, by SHA-256 of a run's seed, the secret and the nonce.

    None of them is given back by it. That of the run's seed alone where there is no secret.
    """
    return seeds.derive(seed, name, *([secret] if secret else []), *([nonce] if nonce else []))
