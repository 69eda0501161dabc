"""The guided start: with questions at a terminal, and with options in a script."""

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
    """The output and exit code of `engram ask` for a user who types these lines, one after each question."""
    master, slave = pty.openpty()
    run = shell.python("-m", "orchestrator", "ask", *arguments, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    os.write(master, "".join(f"{line}\n" for line in typed).encode() + END_OF_FILE)
    output = b""
    while True:
        try:
            more = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        output += more
    os.close(master)
    return output.decode().replace("\r\n", "\n"), run.wait(timeout=HANGING)


def test_questions_lead_to_a_priced_file(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    typed = ["dta", "data", "nothing", "image", "folder:none", "digits", "mlp9", "", "photos", "AB", "B", "no"]
    output, code = at_a_terminal(shell, typed)
    assert code == 0, output
    for refused in (
        "'dta' is not one of data, model, outputs; did you mean 'data'?",
        "'nothing' is not one of image, set, answer, secret, unknown",
        "no folder ",
        "network is 'mlp9'; it must be one of mlp1, ",
        "it must be one letter from A to Z",
    ):
        assert refused in output
    assert "unique_feature, written to audit.yaml: " in output
    assert " here, " in output
    text = (tmp_path / "audit.yaml").read_text()
    assert '  # Feature in that image? A letter, words:... or picture:FILE\n  feature: "B"\n' in text
    schema, situation, *_ = text.splitlines()
    assert schema.startswith("# yaml-language-server: $schema=https://")
    assert schema.endswith("/docs/schema/unique_feature.json")
    assert situation.startswith("# I have: the data, ")
    spec = read(tmp_path / "audit.yaml")
    assert spec.audit == "unique_feature"
    assert spec.preset == "quickstart"
    assert spec.set["feature"] == "B"


def test_options_replace_questions_in_a_script(engram: Here) -> None:
    reply = engram.json("ask", "--have", "data", "--fear", "set", *WHOLE, "--out", "set.yaml")
    assert reply["audit"] == "forgetting"
    assert reply["next"] == "engram run set.yaml"
    assert reply["expected_seconds"] > 0
    assert engram.json("plan", "set.yaml")["planned"] == 126


def test_outputs_only_case_starts_with_secret_probes(engram: Here) -> None:
    secrets = set()
    for name in ("one.yaml", "two.yaml"):
        output = engram("ask", "--have", "outputs", "--fear", "set", *WHOLE, "--out", name).stdout
        assert f"next: engram probes {name} --out probes" in output
        secrets.add(read(engram.folder / name).set["query.control.secret"])
        assert stat.filemode((engram.folder / name).stat().st_mode) == "-rw-------"  # readable only by its owner
    assert len(secrets) == 2
    assert "Keep this file private" in (engram.folder / "one.yaml").read_text()
    assert engram("probes", "one.yaml", "--out", "probes").returncode == 0


def test_invalid_options_give_one_line_and_no_file(engram: Here) -> None:
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
            "probs is not a field of this audit; the fields are question.data, question.training.network, probe, "
            "feature; did you mean 'probe'?",
        ),
        (data, "these answers are required: question.data=..., probe=..., feature=...; no file was written"),
        ((*data, "data=digits", "feature=A"), "these answers are required: probe=...; no file was written"),
        ((*data, "--out", f"{'x' * 300}.yaml"), "File name too long"),
        ((*data, "data=digits", "probe=photos", "feature=AB"), "text is 'AB'; it must be one letter from A to Z"),
        ((*data, "--out", "a.txt"), "--out a.txt: the file must end in .yaml"),
        ((*data, "--out", "no/a.yaml"), "--out no/a.yaml: the folder no does not exist"),
        (
            ("--have", "model", "--fear", "image"),
            "answers are required: question.shape=..., question.source.models=..., probe=..., feature=...",
        ),
    ):
        message = engram("ask", *arguments, code=2).stderr
        assert line in message, message
        assert len(message.splitlines()) == 1
    assert list(engram.folder.iterdir()) == []


def test_file_that_cannot_be_priced_is_removed(engram: Here) -> None:
    (engram.folder / "mine").mkdir()
    (engram.folder / "mine" / "letter.txt").write_text("no store")
    arguments = ("ask", "--have", "data", "--fear", "image", *IMAGE, "--store", "mine")
    assert "mine" in engram(*arguments, code=1).stderr
    assert [path.name for path in engram.folder.iterdir()] == ["mine"]
    shutil.rmtree(engram.folder / "mine")
    assert engram(*arguments).stdout.endswith("next: engram run audit.yaml --store mine\n")


def test_existing_file_is_not_overwritten(engram: Here) -> None:
    (engram.folder / "audit.yaml").write_text("mine")
    message = engram("ask", "--have", "data", "--fear", "image", code=2).stderr
    assert "--out audit.yaml: the file exists; give another name" in message
    assert (engram.folder / "audit.yaml").read_text() == "mine"


@pytest.mark.parametrize("have", HAVE)
def test_every_situation_asks_for_existing_fields(have: str) -> None:
    assert fears_with(have)
    for fear in fears_with(have):
        guide = find_guide(have, fear)
        guide.base_config()
        names = [question.field for question in guide.situation.asks]
        assert not guide.situation.table or guide.situation.table in names


def test_unanswerable_concerns_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.spec.audits.names", lambda: ["forgetting", "unique_feature"])
    with pytest.raises(SpecError, match="allowed with outputs alone: image, set"):
        find_guide("outputs", "unknown")
