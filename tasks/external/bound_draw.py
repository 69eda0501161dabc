"""A random draw that two parties make together, so that neither of them can choose its result.

1. The auditor fixes a secret and the whole configuration, and shares their commitment, a SHA-256
   (`orchestrator.planning.commitment`).
2. The other party, or later a public beacon, names a nonce that no one could have foreseen.
3. The draw follows from the secret and the nonce.

The secret hides the draw from the other party. The nonce prevents the auditor from trying secrets until one is
favourable: to anyone who does not know the nonce, the draw is random for every secret.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tasks.numerics import seeds

LEAST_SECRET = 16  # characters; 64 bits as hexadecimal digits
LONGEST_NAME = 80  # characters in the name of the party that named a nonce
OTHER_PARTY = "the other party"
SCHEME = "engram draw 1"  # scheme of earlier commitments, which cover the pool of the draw but not the analysis


@dataclass(frozen=True)
class Draw:
    """The inputs of a draw, and the configuration that its commitment covers.

    `content()` returns the pool of the draw as numbers, text and sequences of these, with data represented by digests.
    It raises ValueError before these are known. It is None if no earlier version committed to the pool. `stated` is the
    commitment that the party had when it named the nonce. `config` is the whole configuration of the audit. `unused`
    are the dotted paths of its fields that have no effect once the other party's answers exist, or that follow from the
    draw. The commitment does not cover them.
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
        """The commitment used by earlier versions: the SHA-256 of the pool, the seed and the secret.

        Empty if the audit had none.
        """
        if self.content is None:
            return ""
        text = json.dumps([SCHEME, self.content(), self.seed, self.secret], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def describe_draw(subject: str, commitment: str, nonce: str, nonce_by: str) -> str:
    """Describe who chose the draw: both parties or one. `subject` is the drawn item, in the singular.

    The commitment is the stated one, since it cannot be computed while the secret is masked.
    """
    if not nonce:
        return (
            f"{subject} was random, but the auditor alone chose its seed. An auditor could repeat the draw until the "
            "result suits; the owner of an accused model has to trust that this did not happen. An auditor who commits "
            "to the draw before the audit can prove that it was not repeated (`engram probes --commit`)."
        )
    return (
        f"{subject} is bound: it follows from the commitment {commitment} and the nonce {nonce} of {nonce_by}. If this "
        "commitment, and no other, existed before the nonce, no party chose the draw."
    )


def check_secret(secret: str, nonce: str = "", nonce_by: str = OTHER_PARTY) -> None:
    """Raise ValueError if a secret or nonce could be guessed, or if there is a nonce but no secret."""
    for name, value in (("secret", secret), ("nonce", nonce)):
        if 0 < len(value) < LEAST_SECRET:
            raise ValueError(
                f"{name} has {len(value)} characters; expected at least {LEAST_SECRET} that no one can guess, such as "
                "$(openssl rand -hex 16)"
            )
    if nonce and not secret:
        raise ValueError("secret is empty, but nonce is set; expected the secret of the commitment")
    if not (nonce_by.isprintable() and 0 < len(nonce_by.strip()) <= LONGEST_NAME):
        raise ValueError(f"nonce_by is {nonce_by!r}; expected one line of 1 to {LONGEST_NAME} characters")


def derive_secret_seed(seed: int, name: str, secret: str, nonce: str = "") -> int:
    """Derive a seed that a model owner must not know: SHA-256 of the run's seed, the secret and the nonce.

    None of these can be recovered from the result. Without a secret, the seed follows from the run's seed alone.
    """
    return seeds.derive(seed, name, *([secret] if secret else []), *([nonce] if nonce else []))
