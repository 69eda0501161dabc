"""The audit's answer in words, read off its summary.

It rests on one row that was chosen beforehand: the deja vu score of the most confident pictures, after the last epoch,
at the first layer and of the first number of neighbours that were asked for. Of a given encoder it is the corrected
score, and only where its reference is as often right on A as on B.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.deja_vu.config import DejaVu
from tasks.summaries import index_rows, p_in_words
from tasks.verdict import ANSWERS, Answer, Meaning, Verdict

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Row]
LEVEL = 0.025  # of the one-sided test
NOT_ALIKE = 0.01  # of the two-sided test that a reference tells A and B apart
MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not seen", "undecided")},
    "not judged": Meaning("a model that was trained on neither set tells the two apart, so nothing follows"),
}
LIMITS = (
    "The audit speaks of this one pair of trainings and of what the nearest public pictures give away: an attacker who "
    "knows more may learn more. It asks for the class of the object alone. Where A and B are not drawn by chance from "
    "the same pictures, as near duplicates within one of them, the score has another null."
)
ERROR = "Of 100 pairs of models that keep nothing of single pictures, at most 2 or 3 would be called so"
GIVEN = (
    "The audit speaks of this encoder, of these pictures, and of what the nearest public pictures give away: an "
    "attacker who knows more may learn more. It asks for the class of the object alone, and takes its owner's word for "
    "which pictures it was trained on: A and B must have been drawn by chance from the same pictures."
)
ERROR_OF_GIVEN = "Of 100 encoders that keep nothing of single pictures, at most 2 or 3 would be called so"
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

    A given encoder is judged so by its corrected score, unless the reference's accuracies on A and B differ at the
    level of 1 %, two-sided: not judged, since then the two sets were not drawn alike, which the test needs.
    """
    rows = index_rows(summary)
    if config.given.there:
        return verdict_of_given(config, rows)
    decisive = ("deja vu score", setting(config, config.confident))
    if decisive not in rows or rows[decisive]["estimate"] is None:
        return Verdict("undecided", "Undecided: the labels of too few pictures were inferred.", LIMITS, tuple(rows)[:1])
    score = rows[decisive]
    answer, reason = answered(config, score)
    sentence = f"{answer.capitalize()}: {evidence(config, rows, score)}{reason}."
    return Verdict(answer, " ".join([sentence, *correlated(config, rows), *of_null(config)]), LIMITS, (decisive,))


def verdict_of_given(config: DejaVu, rows: Rows) -> Verdict:
    decisive = ("deja vu score, corrected", setting(config, config.confident))
    if decisive not in rows or rows[decisive]["estimate"] is None:
        return Verdict("undecided", "Undecided: the labels of too few pictures were inferred.", GIVEN, tuple(rows)[:1])
    score, said = rows[decisive], evidence_of_given(config, rows)
    p = of_reference(config, rows)
    if p is not None and p <= NOT_ALIKE:
        told = ("accuracy gain", gain_setting(config, "reference"))
        return Verdict("not judged", f"Not judged: {said}. {not_alike(p)}", GIVEN, (decisive, told))
    answer, reason = answered(config, score)
    error = reason.replace(ERROR, ERROR_OF_GIVEN)
    sentences = [f"{answer.capitalize()}: {said}{error}.", *ranked(rows), *correlated_with_given(config, rows)]
    return Verdict(answer, " ".join(sentences), GIVEN, (decisive,))


def evidence_of_given(config: DejaVu, rows: Rows) -> str:
    """What was asked of which model, its accuracies, and the corrected score with its interval and p, in words."""
    score = rows["deja vu score, corrected", setting(config, config.confident)]
    shares = {
        (model, name): rows["accuracy", setting(config, config.confident, model=model, set=name)]["estimate"]
        for model in MODELS
        for name in "AB"
    }
    whose = "the given reference" if config.given.has_reference else "a reference that was trained here"
    return (
        f"{shown(config)}, the given encoder finds public pictures of the same object{surest(config)} in "
        f"{percent(shares['target', 'A'])} of cases where it was trained on the picture and in "
        f"{percent(shares['target', 'B'])} where it was not; {whose}, on neither, in "
        f"{percent(shares['reference', 'A'])} and {percent(shares['reference', 'B'])}; what the encoder tells more "
        "than the reference, less that of held-out pictures, the corrected deja vu score, is "
        f"{score['estimate']:.3f} (95 % interval {score['low']:.3f} to {score['high']:.3f}, "
        f"{p_in_words(score['p_value'])}, over {score['n']:,} pictures; 0 where nothing is memorised)"
    )


def shown(config: DejaVu) -> str:
    """What a model sees of a picture."""
    what = "the lower left corner of a picture" if config.crop == "corner" else "a part of a picture without its object"
    return f"shown {what}"


def surest(config: DejaVu) -> str:
    """Which pictures count."""
    if config.confident == 100:
        return " by majority"
    return f" by majority, of the {config.confident} % of pictures that its neighbours agree on most,"


def gain_setting(config: DejaVu, model: str) -> str:
    return json.dumps({"model": model, "percent": config.confident}, sort_keys=True)


def of_reference(config: DejaVu, rows: Rows) -> float | None:
    """The p of the reference's gain on A; None where it is not told."""
    found = rows.get(("accuracy gain", gain_setting(config, "reference")))
    return None if found is None else found["p_value"]


def not_alike(p: float) -> str:
    return (
        f"But the reference, too, is right more often of one set than of the other ({p_in_words(p)}): they were not "
        "drawn alike, or it was trained on some of them, and the score shows either as well as memory; give held-out "
        "pictures that were drawn together with the training pictures."
    )


def ranked(rows: Rows) -> Iterator[str]:
    """The encoder's rank among references, where there are several."""
    for (metric, _), row in rows.items():
        if metric == "rank among references":
            yield (
                f"By what it tells more of its training pictures it is number {row['estimate']:.0f} of {row['n']} "
                f"models, the others references ({p_in_words(row['p_value'])})."
            )


def correlated_with_given(config: DejaVu, rows: Rows) -> Iterator[str]:
    share = rows["accuracy", setting(config, config.confident, model="reference", set="A")]["estimate"]
    yield from told_by_backgrounds(share)


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
    return (
        f"{shown(config)}, a model that was trained on it finds public pictures of the same object{surest(config)} in "
        f"{percent(target['estimate'])} of cases, a model that was not in {percent(reference['estimate'])}; the "
        f"difference, the deja vu score, is {score['estimate']:.3f} "
        f"(95 % interval {score['low']:.3f} to {score['high']:.3f}, {p_in_words(score['p_value'])}, over "
        f"{score['n']:,} pictures, both ways averaged; 0 where nothing is memorised)"
    )


MODELS = ("target", "reference")


def percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def correlated(config: DejaVu, rows: Rows) -> Iterator[str]:
    """A word where backgrounds give most objects away to any model."""
    yield from told_by_backgrounds(rows["accuracy", setting(config, config.confident, model="reference")]["estimate"])


def told_by_backgrounds(reference: float | None) -> Iterator[str]:
    if reference is not None and reference > SAYS_ALONE:
        yield (
            f"A model that never saw the pictures names {percent(reference)} of the objects rightly, so that their "
            "backgrounds tell them; what is known anyway cannot be shown to be remembered."
        )


def of_null(config: DejaVu) -> Iterator[str]:
    if config.is_null:
        yield "Neither model was trained on the pictures that are asked about: this is a null."
