"""`engram show`: what an audit can be asked for, before anything is paid."""

from __future__ import annotations

import re

from tests.support.shell import Here

OWN = ("deja_vu", "density", "forgetting", "membership", "relational", "text", "unique_feature")


def test_an_audit_shows_its_presets_and_fields_in_80_columns(engram: Here) -> None:
    said = engram("show", "unique_feature").stdout
    assert max(map(len, said.splitlines())) <= 80
    assert "  quickstart: 24 trainings, " in said
    one = " ".join(said.split())
    time = r"(from )?[\d.]+ (s|min|h) [^;]*"
    cost = rf"table1-mnist: 200 trainings, {time}; data missing: mnist, cifar10 \(ENGRAM_DATA\) the "
    assert re.search(cost, one)
    assert "  question = pairs\n      Question: pairs" in said
    assert not (engram.folder / "engram-store").exists()


def test_an_audit_shows_by_which_rules_it_answers(engram: Here) -> None:
    said = " ".join(engram("show", "relational").stdout.split())
    assert "Memorised: the 95 % interval of relational m (resampled over contexts) is entirely above 2 perc" in said
    rule = "Not assessable (only for returned answers): on the corrupted contexts of one part, more than 95 %"
    assert f"{rule} of the answers" in said
    assert "Undecided: none of these conditions holds. " in said


def test_a_field_shows_what_is_below_it_and_which_presets_have_which_value(engram: Here) -> None:
    said = engram("show", "forgetting", "query.control").stdout
    assert "  query.control.images = held-back\n" in said
    assert "  query.control.images.data (required)\n      The data set.\n      of named: data set, " in said
    values = engram("show", "unique_feature", "question.seeds").stdout
    assert "          5 in figure3a, figure5, figure6\n" in values


def test_a_preset_shows_what_it_needs_sets_and_costs(engram: Here) -> None:
    said = engram("show", "density", "quickstart").stdout
    assert "  quickstart: 31 trainings, " in said
    assert "needs: digits (available)" in said
    assert "repetitions = 6" in said
    (preset,) = engram.json("show", "density", "quickstart")["presets"]
    assert (preset["jobs"], preset["trainings"], preset["data"]) == (39, 31, {"digits": True})
    assert preset["price"]["seconds_low"] < preset["price"]["expected_seconds"] < preset["price"]["seconds_high"]


def test_a_preset_tells_its_trainings_and_their_links(engram: Here) -> None:
    assert "  quickstart: 2 trainings in 6 links, " in engram("show", "deja_vu", "quickstart").stdout
    (preset,) = engram.json("show", "deja_vu", "quickstart")["presets"]
    assert (preset["trainings"], preset["links"]) == (2, 6)


def test_every_audit_is_shown_as_json(engram: Here) -> None:
    for audit in OWN:
        shown = engram.json("show", audit, "question.seed" if audit == "density" else "seed")
        (seed,) = shown["fields"]
        assert (seed["default"], seed["allowed"], seed["published"]) == ("0", "at least 0", None)


def test_an_unknown_name_is_refused_with_the_nearest(engram: Here) -> None:
    for arguments, line in (
        (("unique_featur",), "unknown audit 'unique_featur'; the audits are"),
        (("density", "quickstat"), "density has no field or preset 'quickstat'; did you mean 'quickstart'?"),
        (("density", "epoch"), "density has no field or preset 'epoch'; did you mean 'question.training.epochs'?"),
        (("text", "epoch"), "text has no field or preset 'epoch'; did you mean 'question.tuning.epochs'?"),
    ):
        said = engram("show", *arguments, code=2).stderr
        assert line in said
        assert len(said.splitlines()) == 1
