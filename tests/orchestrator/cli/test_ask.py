"""The guided start: by questions at a terminal, and by options without one."""

from __future__ import annotations

import os
import pty
import shutil
import stat
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.guide import fears_with, find_guide
from orchestrator.spec.spec_file import read
from tasks.contract.situation import HAVE
from tests.support.shell import Here, Shell
from tests.support.waiting import HANGING

IMAGE = ("data=digits", "probe=photos", "feature=A")
END_OF_FILE = b"\x04"
WHOLE = ("query.data=digits", "calibration.data=digits-on-photos", "question.training.network=mlp1")


def at_a_terminal(shell: Shell, typed: list[str], *arguments: str) -> tuple[str, int]:
    """What `engram ask` says to somebody who types these lines, each after a question, and its exit code."""
    master, slave = pty.openpty()
    run = shell.python("-m", "orchestrator", "ask", *arguments, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    os.write(master, "".join(f"{line}\n" for line in typed).encode() + END_OF_FILE)
    said = b""
    while True:
        try:
            more = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        said += more
    os.close(master)
    return said.decode().replace("\r\n", "\n"), run.wait(timeout=HANGING)


def test_questions_lead_to_a_commented_file_and_its_price(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    typed = ["dta", "data", "nothing", "image", "folder:none", "digits", "mlp9", "", "photos", "AB", "B", "no"]
    said, code = at_a_terminal(shell, typed)
    assert code == 0, said
    for refused in (
        "'dta' is not one of data, model, outputs; did you mean 'data'?",
        "'nothing' is not one of image, set, answer, secret, unknown",
        "no folder ",
        "network is 'mlp9'; it must be one of mlp1, ",
        "it must be one letter from A to Z",
    ):
        assert refused in said
    assert "unique_feature, written to audit.yaml: " in said
    assert " here, " in said
    text = (tmp_path / "audit.yaml").read_text()
    assert '  # Feature in that image? A letter, words:... or picture:FILE\n  feature: "B"\n' in text
    schema, situation, *_ = text.splitlines()
    assert schema.startswith("# yaml-language-server: $schema=https://")
    assert schema.endswith("/docs/schema/unique_feature.json")
    assert situation.startswith("# I have: the data, ")
    spec = read(tmp_path / "audit.yaml")
    assert (spec.audit, spec.preset, spec.set["feature"]) == ("unique_feature", "quickstart", "B")


def test_options_and_answers_say_it_all_to_a_script(engram: Here) -> None:
    found = engram.json("ask", "--have", "data", "--fear", "set", *WHOLE, "--out", "set.yaml")
    assert (found["audit"], found["next"]) == ("forgetting", "engram run set.yaml")
    assert found["expected_seconds"] > 0
    assert engram.json("plan", "set.yaml")["planned"] == 126


def test_for_outputs_alone_probes_come_first_with_a_secret_of_ones_own(engram: Here) -> None:
    secrets = set()
    for name in ("one.yaml", "two.yaml"):
        said = engram("ask", "--have", "outputs", "--fear", "set", *WHOLE, "--out", name).stdout
        assert f"next: engram probes {name} --out probes" in said
        secrets.add(read(engram.folder / name).set["query.control.secret"])
        assert stat.filemode((engram.folder / name).stat().st_mode) == "-rw-------"  # nobody else reads it
    assert len(secrets) == 2
    assert "Keep this file private" in (engram.folder / "one.yaml").read_text()
    assert engram("probes", "one.yaml", "--out", "probes").returncode == 0


def test_all_that_is_wrong_is_told_in_one_line_and_nothing_is_written(engram: Here) -> None:
    data = ("--have", "data", "--fear", "image")
    for arguments, line in (
        ((), "--have is missing; it must be one of data, model, outputs"),
        (("--have", "dta"), "have is 'dta'; allowed: data, model, outputs; did you mean 'data'?"),
        (("--have", "data"), "--fear is missing; it must be one of image, set, answer, secret, unknown"),
        (
            ("--have", "model", "--fear", "unkown"),
            "fear is 'unkown'; allowed: image, set, answer, secret, unknown; did you mean",
        ),
        (
            (*data, "probs=x"),
            "probs answers no question; the fields are question.data, question.training.network, probe, feature; "
            "did you mean 'probe'?",
        ),
        (data, "these answers are required: question.data=..., probe=..., feature=...; nothing was written"),
        ((*data, "data=digits", "feature=A"), "these answers are required: probe=...; nothing was written"),
        ((*data, "--out", f"{'x' * 300}.yaml"), "File name too long"),
        ((*data, "data=digits", "probe=photos", "feature=AB"), "text is 'AB'; it must be one letter from A to Z"),
        ((*data, "--out", "a.txt"), "--out a.txt: the file must end in .yaml"),
        ((*data, "--out", "no/a.yaml"), "--out no/a.yaml: the folder no does not exist"),
        (
            ("--have", "model", "--fear", "image"),
            "answers are required: question.shape=..., question.source.models=..., probe=..., feature=...",
        ),
    ):
        said = engram("ask", *arguments, code=2).stderr
        assert line in said, said
        assert len(said.splitlines()) == 1
    assert list(engram.folder.iterdir()) == []


def test_a_file_that_cannot_be_priced_does_not_stay_in_the_way_of_the_next_try(engram: Here) -> None:
    (engram.folder / "mine").mkdir()
    (engram.folder / "mine" / "letter.txt").write_text("no store")
    asked = ("ask", "--have", "data", "--fear", "image", *IMAGE, "--store", "mine")
    assert "mine" in engram(*asked, code=1).stderr
    assert [path.name for path in engram.folder.iterdir()] == ["mine"]
    shutil.rmtree(engram.folder / "mine")
    assert engram(*asked).stdout.endswith("next: engram run audit.yaml --store mine\n")


def test_a_file_that_is_there_is_not_written_over(engram: Here) -> None:
    (engram.folder / "audit.yaml").write_text("mine")
    said = engram("ask", "--have", "data", "--fear", "image", code=2).stderr
    assert "--out audit.yaml: the file exists; give another name" in said
    assert (engram.folder / "audit.yaml").read_text() == "mine"


@pytest.mark.parametrize("have", HAVE)
def test_every_situation_has_an_audit_with_fields_that_it_has(have: str) -> None:
    assert fears_with(have)
    for fear in fears_with(have):
        guide = find_guide(have, fear)
        guide.base_config()
        names = [asked.field for asked in guide.situation.asks]
        assert not guide.situation.table or guide.situation.table in names


def test_nobody_is_asked_for_what_no_audit_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.spec.audits.names", lambda: ["forgetting", "unique_feature"])
    with pytest.raises(SpecError, match="allowed with outputs alone: image, set"):
        find_guide("outputs", "unknown")
