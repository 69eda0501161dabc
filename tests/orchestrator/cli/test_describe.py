"""`engram show` describes the settings of an audit before any computation."""

from __future__ import annotations

import re

from tests.support.shell import Here

AUDITS = ("deja_vu", "density", "forgetting", "membership", "relational", "text", "unique_feature")


def test_audit_shows_presets_and_fields_in_80_columns(engram: Here) -> None:
    text = engram("show", "unique_feature", "--all").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "  quickstart: 24 trainings, " in text
    one = " ".join(text.split())
    time = r"(from )?[\d.]+ (s|min|h) [^;]*"
    cost = rf"table1-mnist: 200 trainings, {time}; data missing: mnist, cifar10 \(ENGRAM_DATA\) the "
    assert re.search(cost, one)
    assert "  question = pairs\n      Question: pairs" in text
    assert not (engram.folder / "engram-store").exists()


def test_audit_shows_its_usual_presets_and_fields(engram: Here) -> None:
    for audit in AUDITS:
        text = engram("show", audit).stdout
        assert max(map(len, text.splitlines())) <= 80
        described = engram.json("show", audit)
        usual = [field for field in described["fields"] if field["usual"]]
        assert 8 <= len(usual) <= 12
        assert f"\nPresets (3 of {len(described['presets'])})\n  quickstart: " in text
        assert f"\nUsual fields ({len(usual)} of {len(described['fields'])}), with their defaults\n" in text
        for field in usual:
            assert re.search(rf"^  ([\w.]+\.)?{field['path'].rpartition('.')[2]}\b", text, flags=re.M), field["path"]
        assert "\nAnswers: " in text
    assert "(with question=halves or canaries or pairs)" in " ".join(engram("show", "membership").stdout.split())


def test_listed_names_of_fields_are_shown(engram: Here) -> None:
    assert engram("show", "membership", "epochs").stdout.startswith("  training.epochs = 20\n")
    assert engram("show", "unique_feature", "given.shape").stdout.startswith("  question.shape")
    for audit in AUDITS:
        text = engram("show", audit).stdout.partition("\nUsual fields")[2].partition("\nAnswers")[0]
        for name in re.findall(r"^  ([\w.]+)", text, flags=re.M):
            assert engram("show", audit, name).stdout


def test_audit_without_usual_fields_shows_all(engram: Here) -> None:
    assert engram("show", "toys").stdout == engram("show", "toys", "--all").stdout


def test_papers_lists_tables_and_figures(engram: Here) -> None:
    lines = engram("list", "--papers").stdout.splitlines()
    assert lines[0].split() == ["audit", "preset", "repeats", "runs"]
    assert any(re.match(r"unique_feature +table2 +Table 2: .* 6 runs$", line) for line in lines)
    assert not any("quickstart" in line for line in lines)
    (first, *_) = engram("show", "density", "--papers").stdout.splitlines()[1:]
    assert first.startswith("density  mnist3 ")


def test_options_of_one_audit_need_its_name(engram: Here) -> None:
    for option in ("--all", "--schema"):
        assert f"name one: engram show AUDIT {option}" in engram("show", option, code=2).stderr


def test_audit_shows_the_rules_of_its_answers(engram: Here) -> None:
    text = " ".join(engram("show", "relational", "--all").stdout.split())
    assert "Memorised: the 95 % interval of relational m (resampled over contexts) is entirely above 2 perc" in text
    rule = "Not assessable (only for returned answers): on the corrupted contexts of one part, more than 95 %"
    assert f"{rule} of the answers" in text
    assert "Undecided: none of these conditions holds. " in text


def test_field_shows_nested_fields_and_preset_values(engram: Here) -> None:
    text = engram("show", "forgetting", "query.control").stdout
    assert "  query.control.images = held-back\n" in text
    assert "  query.control.images.data (required)\n      The data set.\n      of named: data set, " in text
    values = engram("show", "unique_feature", "question.seeds").stdout
    assert "          5 in figure3a, figure5, figure6\n" in values


def test_preset_shows_data_settings_and_price(engram: Here) -> None:
    text = engram("show", "density", "quickstart").stdout
    assert "  quickstart: 31 trainings, " in text
    assert "needs: digits (available)" in text
    assert "repetitions = 6" in text
    (preset,) = engram.json("show", "density", "quickstart")["presets"]
    assert preset["jobs"] == 39
    assert preset["trainings"] == 31
    assert preset["data"] == {"digits": True}
    assert preset["price"]["seconds_low"] < preset["price"]["expected_seconds"] < preset["price"]["seconds_high"]


def test_preset_shows_its_trainings_and_links(engram: Here) -> None:
    assert "  quickstart: 2 trainings in 6 links, " in engram("show", "deja_vu", "quickstart").stdout
    (preset,) = engram.json("show", "deja_vu", "quickstart")["presets"]
    assert preset["trainings"] == 2
    assert preset["links"] == 6


def test_every_audit_is_shown_as_json(engram: Here) -> None:
    for audit in AUDITS:
        description = engram.json("show", audit, "question.seed" if audit == "density" else "seed")
        (seed,) = description["fields"]
        assert seed["default"] == "0"
        assert seed["allowed"] == "at least 0"
        assert seed["published"] is None


def test_unknown_name_is_refused_with_nearest_name(engram: Here) -> None:
    for arguments, line in (
        (("unique_featur",), "unknown audit 'unique_featur'; available audits are"),
        (("density", "quickstat"), "density has no field or preset 'quickstat'; did you mean 'quickstart'?"),
        (("density", "epoch"), "density has no field or preset 'epoch'; did you mean 'question.training.epochs'?"),
        (("text", "epoch"), "text has no field or preset 'epoch'; did you mean 'question.tuning.epochs'?"),
    ):
        text = engram("show", *arguments, code=2).stderr
        assert line in text
        assert len(text.splitlines()) == 1
