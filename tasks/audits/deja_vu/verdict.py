"""The audit's answer in words, read off its summary.

It rests on one row that was chosen beforehand: the deja vu score of the most confident pictures, after the last epoch,
at the first layer and of the first number of neighbours that were asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tasks.audit import ANSWERS, Answer, Meaning, Verdict
from tasks.audits.deja_vu.config import DejaVu

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Row]
LEVEL = 0.025  # of the one-sided test
MEANINGS: Mapping[Answer, Meaning] = {name: ANSWERS[name] for name in ("memorised", "not seen", "undecided")}
LIMITS = (
    "The audit speaks of this one pair of trainings and of what the nearest public pictures give away: an attacker who "
    "knows more may learn more. It asks for the class of the object alone. Where A and B are not drawn by chance from "
    "the same pictures, as near duplicates within one of them, the score has another null."
)
ERROR = "Of 100 pairs of models that keep nothing of single pictures, at most 2 or 3 would be called so"
SAYS_ALONE = 0.5  # of the objects that a background gives away to anyone: above it correlation hides memory


def last_epoch(config: DejaVu) -> int:
    """The epochs that the models are trained for, fine-tuning among them."""
    return config.epochs + config.fine_tuning


def setting(config: DejaVu, percent: int, **more: Any) -> str:
    """The setting of a row of the decisive epoch, layer and number of neighbours."""
    about = {"epoch": last_epoch(config), "k": config.k[0], "layer": config.asked_layers[0], "percent": percent}
    return json.dumps({**about, **more}, sort_keys=True)


def verdict(config: DejaVu, summary: pa.Table) -> Verdict:
    """Memorised: p of the randomisation test is at most 0.025, which it is for at most 2.5 % of pairs that keep nothing
    of single pictures, and the interval of the score lies above 0. Not seen: the interval lies below `negligible`.
    Undecided: neither.
    """
    rows = {(row["metric"], row["setting"]): row for row in summary.to_pylist()}
    decisive = ("deja vu score", setting(config, config.confident))
    if decisive not in rows or rows[decisive]["estimate"] is None:
        return Verdict("undecided", "Undecided: the labels of too few pictures were inferred.", LIMITS, tuple(rows)[:1])
    score = rows[decisive]
    answer, reason = answered(config, score)
    sentence = f"{answer.capitalize()}: {evidence(config, rows, score)}{reason}."
    return Verdict(answer, " ".join([sentence, *correlated(config, rows), *of_null(config)]), LIMITS, (decisive,))


def answered(config: DejaVu, score: Row) -> tuple[Answer, str]:
    """The answer, and what is added to the evidence."""
    p = score["p_value"]
    if p is not None and p <= LEVEL and score["low"] > 0:
        return "memorised", f". {ERROR}"
    if score["high"] < config.negligible:
        return "not seen", f"; {config.negligible:g} or more is unlikely"
    return "undecided", f"; as much as {score['high']:.2g} cannot be excluded: attack more pictures"


def evidence(config: DejaVu, rows: Rows, score: Row) -> str:
    """Both models' accuracies and the score with its interval and p, in words."""
    target, reference = (rows["accuracy", setting(config, config.confident, model=model)] for model in MODELS)
    crop = "the lower left corner" if config.crop == "corner" else "a part of the picture without its object"
    most = "" if config.confident == 100 else f", of the {config.confident} % of pictures it is most sure of,"
    return (
        f"from {crop}, the neighbours by a model that was trained on the picture{most} name "
        f"{percent(target['estimate'])} of objects rightly, those by a model that was not "
        f"{percent(reference['estimate'])}; the difference, the deja vu score, is {score['estimate']:.3f} "
        f"(95 % interval {score['low']:.3f} to {score['high']:.3f}, p = {score['p_value']:.2g}, over {score['n']:,} "
        "pictures, both ways averaged; 0 where nothing is memorised)"
    )


MODELS = ("target", "reference")


def percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def correlated(config: DejaVu, rows: Rows) -> Iterator[str]:
    """A word where backgrounds give most objects away to any model."""
    reference = rows["accuracy", setting(config, config.confident, model="reference")]["estimate"]
    if reference is not None and reference > SAYS_ALONE:
        yield (
            f"A model that never saw the pictures names {percent(reference)} of the objects rightly, so that their "
            "backgrounds tell them; what is known anyway cannot be shown to be remembered."
        )


def of_null(config: DejaVu) -> Iterator[str]:
    if config.trained == "other":
        yield "Neither model was trained on the pictures that are asked about: this is a null."
