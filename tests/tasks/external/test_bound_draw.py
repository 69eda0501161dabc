"""A draw by two parties: the commitment is a known SHA-256, and trying many secrets has no effect."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.exchangeability import effect, p_values
from tasks.external.bound_draw import Draw, check_secret, derive_secret_seed, describe_draw
from tasks.numerics import seeds

SECRET = "0123456789abcdef"
NONCE = "fedcba9876543210"
DRAW = Draw(lambda: (("digits", 0, 40), 0.5), None, 3, SECRET)


def test_pool_commitment_is_sha256_without_nonce() -> None:
    text = '["engram draw 1",[["digits",0,40],0.5],3,"0123456789abcdef"]'
    assert DRAW.pool_commitment == hashlib.sha256(text.encode()).hexdigest()
    assert replace(DRAW, nonce=NONCE).pool_commitment == DRAW.pool_commitment
    changed_draws = (
        replace(DRAW, seed=4),
        replace(DRAW, secret=NONCE),
        replace(DRAW, content=lambda: (("digits", 0, 41), 0.5)),
    )
    assert len({DRAW.pool_commitment, *(changed_draw.pool_commitment for changed_draw in changed_draws)}) == 4
    assert SECRET not in repr(DRAW)


def test_bound_draw_names_its_commitment_and_nonce() -> None:
    bound = describe_draw("The order", DRAW.pool_commitment, NONCE, "drand round 12")
    assert (
        f"The order is bound: it follows from the commitment {DRAW.pool_commitment} and the nonce {NONCE} of dr"
        in bound
    )
    assert "The order was random, but the auditor alone chose its seed" in describe_draw(
        "The order", "", "", "drand round 12"
    )


def test_seed_follows_from_secret_and_nonce() -> None:
    assert seeds.derive(1, "order") == derive_secret_seed(1, "order", "")
    assert seeds.derive(1, "order", SECRET) == derive_secret_seed(1, "order", SECRET)
    assert seeds.derive(1, "order", SECRET, NONCE) == derive_secret_seed(1, "order", SECRET, NONCE)


@pytest.mark.parametrize(
    ("secret", "nonce", "nonce_by", "message"),
    [
        ("abc", "", "x", "secret has 3 characters; expected at least 16 that no one can guess"),
        (SECRET, "abc", "x", "nonce has 3 characters; expected at least 16 that no one can guess"),
        ("", NONCE, "x", "secret is empty, but nonce is set; expected the secret of the commitment"),
        (SECRET, NONCE, "\n", r"nonce_by is '\\n'; expected one line of 1 to 80 characters"),
    ],
)
def test_guessable_secrets_are_refused(secret: str, nonce: str, nonce_by: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_secret(secret, nonce, nonce_by)


def test_nonce_prevents_choosing_a_secret() -> None:
    """Worst case: the provider knows the innocent model's scores of 40 images and tries 100 secrets."""
    of_images = np.random.default_rng(7).normal(size=40)

    def is_control(secret: str, nonce: str = "") -> np.ndarray:
        order = seeds.generator(derive_secret_seed(0, "control", secret, nonce), "held back").permutation(40)
        return np.isin(np.arange(40), order[:20])

    def p_value(control: np.ndarray) -> float:
        return p_values(of_images, control, 199, np.random.default_rng(8)).surer

    secrets = [f"{number:032x}" for number in range(100)]
    best_secret = max(secrets, key=lambda secret: effect(of_images, is_control(secret)))
    assert p_value(is_control(best_secret)) <= 0.025
    accused = sum(p_value(is_control(best_secret, f"{nonce:032x}")) <= 0.025 for nonce in range(400))
    # Without the nonce all 400 would be accused; at the stated rate, more than 25 occur once in 20,000 cases.
    assert stats.binom.sf(25, 400, 0.025) < 5e-5
    assert accused <= 25
