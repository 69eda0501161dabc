"""A draw that two parties make: the commitment is a known SHA-256, and whoever tries secrets gains nothing by it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.exchangeability import effect, p_values
from tasks.external.bound_draw import Draw, check_secret, derive_secret_seed, describe_draw
from tasks.numerics import seeds

SECRET, NONCE = "0123456789abcdef", "fedcba9876543210"
DRAW = Draw(lambda: (("digits", 0, 40), 0.5), None, 3, SECRET)


def test_pool_commitment_is_sha256_without_nonce() -> None:
    text = '["engram draw 1",[["digits",0,40],0.5],3,"0123456789abcdef"]'
    assert DRAW.pool_commitment == hashlib.sha256(text.encode()).hexdigest()
    assert replace(DRAW, nonce=NONCE).pool_commitment == DRAW.pool_commitment
    others = (
        replace(DRAW, seed=4),
        replace(DRAW, secret=NONCE),
        replace(DRAW, content=lambda: (("digits", 0, 41), 0.5)),
    )
    assert len({DRAW.pool_commitment, *(other.pool_commitment for other in others)}) == 4
    assert SECRET not in repr(DRAW)


def test_a_bound_draw_says_by_what_and_by_whom_and_another_that_one_party_chose_it() -> None:
    bound = describe_draw("The order", DRAW.pool_commitment, NONCE, "drand round 12")
    assert (
        f"The order is bound: it follows from the commitment {DRAW.pool_commitment} and the nonce {NONCE} of dr"
        in bound
    )
    assert "The order was chosen by the auditor alone" in describe_draw("The order", "", "", "drand round 12")


def test_the_seed_follows_from_all_and_is_as_it_was_without_a_nonce() -> None:
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
def test_what_could_be_guessed_is_refused(secret: str, nonce: str, nonce_by: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_secret(secret, nonce, nonce_by)


def test_a_provider_that_tries_secrets_accuses_an_innocent_and_at_the_stated_rate_once_a_nonce_binds_it() -> None:
    """The worst that can be: the provider knows the innocent model's scores of 40 images, and tries 100 secrets."""
    of_images = np.random.default_rng(7).normal(size=40)

    def is_control(secret: str, nonce: str = "") -> np.ndarray:
        drawn = seeds.generator(derive_secret_seed(0, "control", secret, nonce), "held back").permutation(40)
        return np.isin(np.arange(40), drawn[:20])

    def p_value(control: np.ndarray) -> float:
        return p_values(of_images, control, 199, np.random.default_rng(8)).surer

    secrets = [f"{number:032x}" for number in range(100)]
    chosen = max(secrets, key=lambda secret: effect(of_images, is_control(secret)))
    assert p_value(is_control(chosen)) <= 0.025
    accused = sum(p_value(is_control(chosen, f"{nonce:032x}")) <= 0.025 for nonce in range(400))
    # Without the nonce all would be; at the stated rate more than 25 of 400 come once in 20,000 times.
    assert stats.binom.sf(25, 400, 0.025) < 5e-5
    assert accused <= 25
