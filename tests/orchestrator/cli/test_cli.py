"""The command line from outside: exit codes, one line per error, and only JSON on stdout with --json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import questions
from PIL import Image

from orchestrator.cli import verdict
from orchestrator.store import open_store
from tests.conftest import DatabaseCopier
from tests.support.shell import PATHS, Here, Shell
from tests.support.waiting import HANGING

RUN = ("run", "toys", "--address", "none")


def test_help_names_all_commands_without_heavy_imports(shell: Shell) -> None:
    shell.fresh = True
    shell.env["PYTHONPROFILEIMPORTTIME"] = "1"
    completed = shell("--help")
    headings = {
        "Run an audit": ["audit", "ask", "show", "run", "resume", "search", "probes", "check-training"],
        "Look at results": ["runs", "results", "compare", "report", "ui"],
        "Maintain stores and solve problems": ["store", "debug"],
    }
    listed_commands = {}
    for heading, *lines in (
        part.splitlines() for part in completed.stdout.strip().split("Options:")[1].split("\n\n")[1:]
    ):
        listed_commands[heading.rstrip(":")] = [line.split()[0] for line in lines]
    assert headings == listed_commands
    loaded = set()
    for line in completed.stderr.splitlines():
        loaded.add(line.rpartition("|")[2].strip().partition(".")[0])
    assert "orchestrator" in loaded
    # Importing any of these takes longer than the whole answer.
    heavy = {"torch", "ray", "mlflow", "scipy", "pandas", "matplotlib", "sklearn", "transformers", "faiss"}
    assert set() == loaded & heavy


@pytest.mark.parametrize(
    ("number", "loading"),
    [
        (signal.SIGINT, "orchestrator"),
        (signal.SIGTERM, "orchestrator"),
        (signal.SIGINT, "orchestrator.errors"),
        (signal.SIGINT, "typer"),
        (signal.SIGINT, "orchestrator.cli.commands"),
        (signal.SIGINT, "numpy"),  # the command line has set its handlers
        (signal.SIGTERM, "numpy"),
    ],
)
def test_interrupt_during_imports_gives_exit_code_130(shell: Shell, loading: str, number: int) -> None:
    # Every import first asks a finder, which sends the signal when this module is imported.
    script = (
        "import os, sys; from engram_command import main\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {loading!r}: os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Interrupting()); main()"
    )
    command = [sys.executable, "-c", script, "list"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=shell.folder, env=shell.env)
    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr == "engram: stopped\n"


def test_early_interrupt_gives_message_or_pythons_own(shell: Shell) -> None:
    command = [sys.executable, "-c", "from engram_command import main; main()", "doctor"]
    for moment in range(0, 120, 20):  # milliseconds; on a slow machine each comes earlier, never too late
        started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=shell.folder, env=shell.env)
        time.sleep(moment / 1000)
        started.send_signal(signal.SIGINT)
        _, output = started.communicate()
        if "orchestrator" in output or "engram: " in output or started.returncode == 130:  # else Python was starting
            assert (started.returncode, output) == (130, "engram: stopped\n"), moment


def test_light_commands_load_no_heavy_packages(shell: Shell) -> None:
    script = (
        "import sys\n"
        "from orchestrator.cli.commands import app\n"
        "from orchestrator.pricing import reference\n"
        "reference.machine_speed = lambda folder: None\n"  # measuring it would start a process
        "for words in ('show', 'show unique_feature', 'run unique_feature --preset smoke --dry-run'):\n"
        "    app(words.split(), standalone_mode=False)\n"
        "print([m for m in ('torch', 'scipy', 'ray', 'mlflow', 'pandas') if m in sys.modules])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=shell.folder, env=shell.env, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert list(shell.folder.iterdir()) == []


def test_list_shows_question_and_presets(engram: Here) -> None:
    audits_by_name = {audit["name"]: audit for audit in engram.json("list")["audits"]}
    assert audits_by_name["toys"] == {
        "name": "toys",
        "question": "How far does a sum get when its parts are lost?",
        "presets": ["few", "many", "three", "partly", "absent"],
        "extras": {"few": [], "many": [], "three": [], "partly": [], "absent": []},
        "cells": {"few": 1, "many": 1, "three": 3, "partly": 3, "absent": 2},
    }
    assert "quickstart" in audits_by_name["unique_feature"]["presets"]
    assert "few, many, three (3 cells), and 2 more\n" in engram("list").stdout


def test_plan_counts_jobs_and_starts_nothing(engram: Here) -> None:
    plan = engram.json("plan", "toys", "parts=4", "--sweep", "label=a,b")
    assert plan["tasks"] == [
        {"task": "toys.part", "planned": 4, "stored": 0, "missing": 4},
        {"task": "toys.total", "planned": 2, "stored": 0, "missing": 2},
    ]
    assert plan["planned"] == 6
    assert plan["stored"] == 0
    assert plan["missing"] == 6
    assert plan["expected_seconds"] is None
    assert [cell["setting"] for cell in plan["cells"]] == [{"label": "a"}, {"label": "b"}]
    assert list(engram.folder.iterdir()) == []


def test_plan_counts_stored_jobs_and_predicts_time(engram: Here) -> None:
    engram(*RUN, "parts=3", "seconds=0.2")
    plan = engram.json("plan", "toys", "parts=8", "seconds=0.2", "--address", "none")
    assert plan["planned"] == 9
    assert plan["stored"] == 3
    assert plan["missing"] == 6
    assert plan["slots"] == 1
    assert 1.0 <= plan["expected_seconds"] < 60  # 5 parts of 0.2 s and their sum, and what starting costs


def test_run_prints_summary_and_run_name_last(engram: Here) -> None:
    done = engram(*RUN, "parts=4")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["metric", "estimate", "n"]
    assert lines[1].split() == ["sum", "6", "4", "parts"]
    (run,) = (engram.folder / "engram-store" / "runs").glob("[!.]*")
    assert lines[-1].startswith(f"{run.name} finished: 5 of 5 jobs stored, 5 computed now, 0 failed; ")
    assert "\x1b" not in done.stdout + done.stderr


def test_run_and_status_json_have_documented_shape(engram: Here) -> None:
    ended = engram.json(*RUN, "parts=4")
    run = ended["run"]
    jobs = {"planned": 5, "stored": 5, "done": 5, "failed": 0}
    shape = {"run": run, "audit": "toys", "state": "finished", "jobs": jobs, "report": None, "mlflow": None}
    shape |= {"answer": None, "effect": ended["effect"]}
    assert shape == ended
    assert ended["effect"]["estimate"] == 6.0
    assert shape == engram.json("status")
    assert shape == engram.json("status", run[:-3])
    assert shape | {"jobs": jobs | {"done": 0}} == engram.json("resume", run, "--address", "none")
    (listed_run,) = engram.json("runs")["runs"]
    assert (listed_run["run"], listed_run["effect"]) == (run, ended["effect"])


def test_version_is_the_packages(engram: Here) -> None:
    assert engram("--version").stdout == f"engram {version('engram-audit')}\n"


def test_runs_are_listed_with_their_answers(engram: Here) -> None:
    engram("run", "questions", "--address", "none", "--preset", "smoke")
    engram("run", "questions", "--address", "none", "--preset", "smoke", "--sweep", "enough=1,100")
    engram(*RUN)  # which gives no answer
    answers_by_audit = {}
    for row in engram.json("runs")["runs"]:
        if "-" in row["run"]:
            answers_by_audit[row["audit"]] = row["answer"]
    answers = [row["answer"] for row in engram.json("runs")["runs"]]
    assert answers_by_audit["toys"] is None
    assert set(answers) >= {"wordy", "short"}
    assert "1 wordy, 1 short" in answers or "1 short, 1 wordy" in answers
    assert "answer" in engram("runs").stdout.splitlines()[0]


def test_equal_failures_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    verdict.failures([("aaaa", "net.train", "no memory"), ("bbbb", "net.train", "no memory"), ("cccc", "sum", "nan")])
    assert capsys.readouterr().err.splitlines() == [
        "failed: net.train aaaa and 1 more job: no memory",
        "failed: sum cccc: nan",
        "to see the traceback and output of the first: engram runs logs aaaa",
    ]


def test_changed_input_files_change_the_advice(engram: Here, shell: Shell) -> None:
    records = engram.folder / "asked.jsonl"
    lines = Path(questions.__file__).with_suffix(".jsonl").read_text().splitlines()
    records.write_text("\n".join(lines))
    arguments = ("questions", "--preset", "smoke", "data=records:asked.jsonl", "--address", "none")
    engram("run", *arguments)
    for result in engram.results():
        result.unlink()
    records.write_text("\n".join(lines[:-1]))
    resumed = shell("resume", "--address", "none", code=3)  # a process that has not read it yet
    (advice,) = (line for line in resumed.stderr.splitlines() if "jobs failed" in line)
    assert "their input files have changed since the run began. To start a new run with the current files" in advice
    assert shell.json("run", *arguments)["state"] == "finished"


def test_file_and_flags_start_the_same_run(engram: Here) -> None:
    (engram.folder / "sums.yaml").write_text("audit: toys\nset: {parts: 3}\nexecution: {address: none}\n")
    assert engram.json("run", "sums.yaml")["run"] == engram.json(*RUN, "parts=3")["run"]
    assert [row["estimate"] for row in engram.json("results", engram.json("run", "sums.yaml", "parts=4")["run"])] == [
        6.0
    ]


def test_flag_overrides_environment_and_file(engram: Here) -> None:
    text = "audit: toys\nexecution: {address: none, store: of-the-file}\n"
    (engram.folder / "sums.yaml").write_text(text)
    for store_name, arguments, env in (
        ("of-the-file", (), {}),
        ("of-env", (), {"ENGRAM_STORE": "of-env"}),
        ("of-flag", ("--store", "of-flag"), {"ENGRAM_STORE": "of-env"}),
    ):
        engram.env = env
        engram("run", "sums.yaml", *arguments)
        assert (engram.folder / store_name / "runs").is_dir()


def test_sweep_runs_its_grid_with_settings(engram: Here) -> None:
    ended = engram.json(*RUN, "--sweep", "parts=2,3", "--sweep", "first=0,1")
    assert len(ended["cells"]) == 4
    rows = engram.json("results", ended["run"], "summary")
    assert [(row["parts"], row["first"], row["estimate"]) for row in rows] == [
        (2, 0, 1.0),
        (2, 1, 3.0),
        (3, 0, 3.0),
        (3, 1, 6.0),
    ]
    assert engram.json(*RUN, "--sweep", "parts=2,3", "--sweep", "first=0,1")["jobs"]["done"] == 0


def test_preset_with_several_cells_runs_as_sweep(engram: Here) -> None:
    ended = engram.json(*RUN, "--preset", "three")
    assert ended["jobs"] == {"planned": 7, "stored": 7, "done": 7, "failed": 0}
    assert len(ended["cells"]) == 3
    rows = engram.json("results", ended["run"], "summary")
    assert [(row["parts"], row["first"], row["label"], row["estimate"]) for row in rows] == [
        (2, 0, "", 1.0),
        (3, 1, "b", 6.0),
        (3, 1, "c", 6.0),
    ]
    header = engram("results", ended["run"], "summary").stdout.splitlines()[0].split()
    assert header == ["run", "label", "metric", "estimate", "n"]
    assert engram("results", ended["run"], "parts").stdout.splitlines()[0].split() == ["run", "label", "number", "pid"]
    assert engram.json("resume", ended["run"], "--address", "none")["jobs"]["done"] == 0
    runs_by_name = {row["run"]: row for row in engram.json("runs")["runs"]}
    assert set(runs_by_name) == {ended["run"], *(cell["run"] for cell in ended["cells"])}


def test_preset_reduced_to_one_cell_is_plain_run(engram: Here) -> None:
    one = engram.json(*RUN, "--preset", "three", "parts=3", "first=1", "label=b")
    assert "cells" not in one
    assert one["run"] == engram.json(*RUN, "parts=3", "first=1", "label=b")["run"]
    (cell,) = engram.json("plan", "toys", "--preset", "three", "scale=tiny", "label=", "first=0")["cells"]
    assert cell["setting"] == {}


def test_missing_data_are_named_once(engram: Here) -> None:
    for command in ("plan", "run"):
        message = engram(command, "toys", "--preset", "absent", code=1).stderr
        assert message.startswith("engram: data set 'mnist' not found: ENGRAM_DATA is not set; ")
        assert len(message.splitlines()) == 1
        assert message.count("not found") == 1
    assert engram.json("plan", "toys", "--preset", "three", "label=a", "parts=8")["planned"] - 2 == 9
    assert list(engram.folder.iterdir()) == []


def test_cells_without_data_are_skipped_and_named(engram: Here, tmp_path: Path) -> None:
    line = "skipped: parts=4: no folder "
    alone = []
    for parts, first in ((2, 0), (3, 1)):
        alone.append(engram.json("plan", "toys", f"parts={parts}", f"first={first}"))
    preview = engram.json("plan", "toys", "--preset", "partly")
    assert [plan["cells"][0]["run"] for plan in alone] == [cell["run"] for cell in preview["cells"]]
    assert [cell["setting"]["parts"] for cell in preview["left_out"]] == [4]
    assert engram("plan", "toys", "--preset", "partly").stdout.splitlines()[-1].startswith(line)
    for command in ("plan", "run"):
        refused = engram(command, "toys", "--preset", "partly", "--all", code=2).stderr
        assert refused.startswith("engram: all cells are required, but 1 of 3 cannot run: no folder ")
        assert len(refused.splitlines()) == 1
        engram(command, "toys", "--preset", "absent", "--all", code=2)
    assert list(tmp_path.iterdir()) == []
    ran = engram(*RUN, "--preset", "partly")
    before, last = ran.stdout.splitlines()[-2:]
    assert before.startswith(line)
    assert line in ran.stderr  # at the start, too
    assert " finished: 6 of 6 jobs stored, 6 computed now" in last
    repeated = engram.json(*RUN, "--preset", "partly")
    assert len(repeated["cells"]) == 2
    assert [cell["setting"]["parts"] for cell in repeated["left_out"]] == [4]
    assert repeated["run"] == engram.json("resume", repeated["run"], "--address", "none")["run"]
    assert engram("status", repeated["run"]).stdout.splitlines()[-1].startswith(line)
    (skipped,) = engram.json("status", repeated["run"])["left_out"]
    assert skipped.startswith(line)
    for label in ("a", "b"):
        (tmp_path / "late" / label).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(tmp_path / "late" / label / f"{number}.png")
    complete = engram.json(*RUN, "--preset", "partly", "--all")
    assert "left_out" not in complete
    assert "left_out" not in engram.json("status", complete["run"])
    assert {cell["run"] for cell in repeated["cells"]} < {cell["run"] for cell in complete["cells"]}
    assert len(complete["cells"]) == 3
    assert engram.json("plan", "toys", "--preset", "partly")["left_out"] == []


def test_audit_without_summary_rows_shows_other_tables(engram: Here, copy_database: DatabaseCopier) -> None:
    engram.env["ENGRAM_REPORT"] = "yes"
    ended = engram.json(*RUN, "trouble=nothing", "--mlflow", f"sqlite:///{copy_database(engram.folder)}")
    assert ended["state"] == "finished"
    assert ended["jobs"]["stored"] == 2
    assert ended["mlflow"] is not None
    assert engram.json("results", ended["run"]) == []
    assert [row["title"] for row in engram.json("results", ended["run"], "pictures")] == ["white"]
    assert "The summary of this run has no rows" in Path(ended["report"]).read_text()
    swept = engram.json(*RUN, "trouble=nothing", "--sweep", "label=a,b")
    assert swept["state"] == "finished"
    assert engram.json("results", swept["run"]) == []


def test_probes_are_exported_as_images_by_set(engram: Here) -> None:
    arguments = ("probes", "toys", "parts=3", "data=digits", "--out")
    reply = engram.json(*arguments, "handed")
    assert reply == {"folder": "handed", "images": 6, "sets": {"clean": 3, "inverted": 3}}
    assert len(list((engram.folder / "handed").rglob("*.png"))) == 6
    assert engram(*arguments, "other").stdout.splitlines()[-1] == "6 images in other, in 2 sets: clean, inverted"
    assert {path.name for path in engram.folder.iterdir()} == {"handed", "other"}
    (engram.folder / "file").touch()
    assert len(engram(*arguments, "file/below", code=2).stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("toys", "--preset", "three"),
            2,
            "the specification has 3 cells; select one by setting parts, first",
        ),
        (("toys", "data=mnist"), 1, "data set 'mnist' not found"),
    ],
)
def test_unavailable_probes_give_one_line_error(
    engram: Here, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = engram("probes", *arguments, "--out", "handed", code=code)
    assert (message in done.stderr, len(done.stderr.splitlines())) == (True, 1)
    assert list(engram.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "toyz"), "toys, trainings, tunable, unique_feature; did you mean 'toys'?"),
        (
            ("plan", "toys", "--preset", "fwe"),
            "unknown preset 'fwe' of toys; it has few, many, three, partly, absent; did you mean 'few'?",
        ),
        (("run", "toys", "part=3"), "did you mean 'parts'?"),
        (("run", "toys", "parts"), "'parts' is not a setting; write it as field=value"),
        (("run", "toys", "--sweep", "parts"), "'parts' is not a setting"),
        (("resume", "--way", "stak"), "did you mean 'stack'?"),
        (("plan", "toys", "--way", ""), "way is ''; it must be one of auto, loop, stack, graph"),
        (("run", "toys", "--until", "tired"), "until is 'tired'; it must be decided"),
        (("run", "toys", "--alpha", "0.1"), "--alpha requires --until decided"),
        (("plan", "toys", "--until", "decided", "--alpha", "1"), "alpha is 1; it must be between 0 and 1"),
        (("run", "toys", "--until", "decided", "--most", "0"), "most is 0; it must be at least 1"),
        (("run", "toys", "level=0.1", "--until", "decided"), "level is given, but --until decided sets it"),
        (("plan", "forgetting", "--until", "decided"), "forgetting cannot stop early"),
        (("plan", "membership", "question=halves", "--until", "decided"), "it is a field of question=pairs"),
        (("run", "relational", "--until", "decided"), "needs an audit that draws pairs of trainings at random"),
        (("run", "nowhere.yaml"), "file nowhere.yaml does not exist"),
        (("run", "unsafe.yaml"), "could not determine a constructor for the tag"),
        (("plan", "unique_feature", "--preset", "smoke", "canaries=301"), "it must be at most 300"),
        (("status", "nope"), "there is no store at ./engram-store"),
        (("run", "toys", "--nope"), "No such option: --nope"),
        (("nope",), "No such command 'nope'"),
        (("run", "toys", "--address", "a b"), "'a b' is not the address of a Ray cluster; use HOST:PORT"),
        (("run", "toys", "--mlflow", "http://[::1"), "the URI of the tracking store is invalid: Invalid IPv6 URL"),
        (("run", "toys", "--mlflow", "http://"), "the tracking store's URI names no server"),
        (("resume", "--mlflow", "https://x:y"), "the URI of the tracking store is invalid: "),
        (("run", "time.yaml"), "time.yaml, line 2, column 14: 'x' is not a valid timestamp"),
        (("probes", "toys", "data=digits", "--out", "~nobody-here/x"), "there is no user of that name"),
        (("run",), "Missing argument 'AUDIT|FILE'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(engram: Here, arguments: tuple[str, ...], message: str) -> None:
    (engram.folder / "unsafe.yaml").write_text("audit: !!python/object/apply:os.system ['touch owned']")
    (engram.folder / "time.yaml").write_text("audit: toys\nset: {label: !!timestamp x}")
    before = sorted(engram.folder.iterdir())
    done = engram(*arguments, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("engram: ")
    assert done.stdout == ""
    assert before == sorted(engram.folder.iterdir())


@pytest.mark.parametrize("command", ["status", "resume", "results", "explain", "rerun"])
def test_unknown_run_or_key_is_one_line(engram: Here, command: str) -> None:
    engram(*RUN)
    done = engram(command, "nope", code=2)
    assert len(done.stderr.splitlines()) == 1
    assert "nope" in done.stderr


def test_way_is_set_by_flag_file_or_python(engram: Here, shell: Shell) -> None:
    fields = ("parts=2", "trouble=choose", f"folder={engram.folder}")
    flagged = engram.json(*RUN, *fields, "--way", "stack")["run"]
    assert recorded_ways(engram) == {"stack"}
    lose_parts(engram)
    path = engram.folder / "sums.yaml"
    path.write_text(
        f"audit: toys\nset: {{parts: 2, trouble: choose, folder: {engram.folder}}}\n"
        "execution: {address: none, way: graph}\n"
    )
    assert flagged == engram.json("run", "sums.yaml")["run"]  # which names the same run
    assert recorded_ways(engram) == {"graph"}
    lose_parts(engram)
    script = (
        "import orchestrator; run = orchestrator.run("
        f"'toys', parts=2, trouble='choose', folder={str(engram.folder)!r}, address='none', way='loop'); print(run.run)"
    )
    done = shell.script(script)
    assert flagged == done.stdout.strip(), done.stderr
    assert recorded_ways(engram) == {"loop"}
    part = next(key for key, task in keys(engram) if task == "toys.part")
    assert tuple(engram.json("explain", part)[name] for name in ("way", "chosen_by")) == ("loop", "force")
    shell("rerun", part, code=1)  # its table names the process, which is another one
    assert not (engram.folder / "chosen.log").exists()  # in the recorded way, without a new choice


def recorded_ways(engram: Here) -> set[str]:
    store = open_store(engram.folder / "engram-store")
    result = set()
    for key, task in keys(engram):
        if task == "toys.part":
            result.add(store.record(key)["way"])
    return result


def lose_parts(engram: Here) -> None:
    for key, task in keys(engram):
        if task == "toys.part":
            (engram.folder / "engram-store" / "results" / key[:2] / f"{key}.arrow").unlink()


def test_unknown_table_is_refused_with_nearest_name(engram: Here) -> None:
    engram(*RUN)
    assert "did you mean 'summary'?" in engram("results", "toys", "sumary", code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "unique_feature", "--address", "none"), "data set 'mnist' not found"),
        ((*RUN, "--store", "taken"), "taken"),
        ((*RUN, "--store", "x" * 300), "File name too long"),
        ((*RUN, "--store", "~nobody-here/x"), "there is no user of that name"),
        (("status", "--store", "x" * 300), "File name too long"),
        (("plan", "unique_feature", "--preset", "smoke", "feature=picture:/dev/zero"), "not a file"),
        (
            ("plan", "unique_feature", "--preset", "smoke", "feature=picture:~nobody-here/x"),
            "there is no user of that name",
        ),
        (("plan", "toys", "data=folder:~nobody-here/x"), "there is no user of that name"),
        (("run", "toys", "--address", "127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
def test_environment_errors_are_one_line_and_exit_1(engram: Here, arguments: tuple[str, ...], message: str) -> None:
    (engram.folder / "taken").write_text("a file where the store should be")
    done = engram(*arguments, code=1)
    assert message in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("engram: ")]) == 1
    assert "Traceback" not in done.stderr


def test_failed_jobs_are_listed_with_retry_command(engram: Here) -> None:
    done = engram(*RUN, "trouble=raise", "at=2", f"folder={engram.folder}", code=3)
    run = done.stdout.split()[0]
    assert "ValueError: part 2 cannot be had" in done.stderr
    assert f"1 job failed; try again with: engram resume {run}\n" in done.stderr
    assert engram.json("status")["jobs"] == {"planned": 7, "stored": 5, "done": 5, "failed": 1}
    tolerated = engram("resume", "--address", "none", "--tolerate", "1", code=3)
    assert tolerated.stdout.splitlines()[1].split() == ["sum", "13", "5", "parts"]
    assert [row["estimate"] for row in engram.json("results", run, "summary")] == [13.0]
    (engram.folder / "mended").touch()
    assert engram.json("resume", run, "--address", "none")["state"] == "finished"
    assert [row["estimate"] for row in engram.json("results", run, "summary")] == [15.0]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_says_how_to_resume(engram: Here, shell: Shell, number: signal.Signals) -> None:
    running = shell.start(*RUN, "parts=40", "seconds=0.2")
    shell.await_results(2, running)
    status = engram.json("status")
    assert status["state"] == "running"
    refused = engram(*RUN, "parts=40", "seconds=0.2", code=1)
    assert f"process {running.pid}" in refused.stderr
    available_rows = engram.json("results", status["run"], "parts")
    assert 0 < len(available_rows) < 40
    running.send_signal(number)
    _, err = running.communicate(timeout=HANGING)
    assert (running.returncode, f"engram resume {status['run']}" in err) == (130, True)
    assert engram.json("status")["state"] == "interrupted"
    engram("resume", "--address", "none", "--stop-after", "0.3", code=130)


@pytest.mark.slow
def test_resume_continues_the_newest_unfinished_run(engram: Here, shell: Shell) -> None:
    running = shell.start(*RUN, "parts=8", "seconds=0.3")
    shell.await_results(2, running)
    running.kill()
    running.communicate()
    engram(*RUN, "parts=2")
    (state,) = {run["state"] for run in engram.json("runs")["runs"]} - {"finished"}
    assert state == "interrupted"
    ended = engram.json("resume", "--address", "none")
    assert ended["state"] == "finished"
    assert ended["jobs"]["stored"] == 9
    assert 0 < ended["jobs"]["done"] < 9


def test_results_are_written_in_the_file_names_format(engram: Here) -> None:
    engram(*RUN, "parts=3")
    for ending in ("parquet", "csv", "arrow"):
        engram("results", "toys", "parts", "--out", f"parts.{ending}")
    arrow = pa.ipc.open_file(engram.folder / "parts.arrow").read_all()
    assert arrow["number"].to_pylist() == [0, 1, 2]
    assert pq.read_table(engram.folder / "parts.parquet")["number"].to_pylist() == [0, 1, 2]
    assert csv.read_csv(engram.folder / "parts.csv")["number"].to_pylist() == [0, 1, 2]
    assert ".parquet, .csv, .arrow" in engram("results", "toys", "parts", "--out", "parts.xls", code=2).stderr
    assert (
        "there is no user of that name"
        in engram("results", "toys", "parts", "--out", "~nobody-here/parts.csv", code=2).stderr
    )


def test_verify_finds_damage_and_resume_repairs_it(engram: Here) -> None:
    ended = engram.json(*RUN, "parts=3")
    assert engram.json("verify") == {"checked": 4, "damaged": []}
    assert engram.json("verify", "--data", "digits") == {"checked": 1, "changed": []}
    hurt = engram.results()[1]
    data = bytearray(hurt.read_bytes())
    data[len(data) // 2] ^= 1
    hurt.write_bytes(data)
    assert engram.json("verify", code=1) == {"checked": 4, "damaged": [hurt.stem]}
    assert engram.json("verify") == {"checked": 3, "damaged": []}
    assert engram.json("status")["state"] == "interrupted"
    assert engram.json("resume", ended["run"], "--address", "none")["jobs"]["done"] == 1
    assert engram.json("verify") == {"checked": 4, "damaged": []}


def test_explain_counts_reused_and_computed_jobs(engram: Here) -> None:
    engram(*RUN, "parts=3")
    run = engram.json(*RUN, "parts=5")["run"]
    assert engram.json("explain", run)["tasks"] == [
        {"task": "toys.part", "planned": 5, "reused": 3, "computed": 2, "failed": 0, "absent": 0},
        {"task": "toys.total", "planned": 1, "reused": 0, "computed": 1, "failed": 0, "absent": 0},
    ]


def test_explain_describes_stored_and_failed_keys(engram: Here) -> None:
    engram(*RUN, "parts=3", "trouble=raise", "at=1", f"folder={engram.folder}", code=3)
    (failure,) = (engram.folder / "engram-store" / "failures").glob("*.txt")
    explanation = engram.json("explain", failure.stem[:10])
    assert explanation["state"] == "failed"
    assert explanation["task"] == "toys.part"
    assert explanation["version"] == 1
    assert "ValueError: part 1 cannot be had" in explanation["traceback"]
    assert list(explanation["nearest"]["fields"]) == ["number"]
    stored_key = engram.json("explain", engram.results()[0].stem)
    assert stored_key["state"] == "stored"
    assert stored_key["task"] == "toys.part"
    assert stored_key["inputs"] == []
    assert set(stored_key) >= {"finished", "seconds", "worker", "versions"}
    (waiting,) = [key for key, task in keys(engram) if task == "toys.total"]
    assert tuple(engram.json("explain", waiting)[name] for name in ("state", "waits_for")) == (
        "waiting",
        [failure.stem],
    )


def keys(engram: Here) -> list[tuple[str, str]]:
    (plan,) = engram.folder.glob("engram-store/runs/*/plan.json")
    return [(key, task) for key, task in json.loads(plan.read_text())["jobs"]]


def test_rerun_compares_with_the_stored_result(engram: Here, shell: Shell) -> None:
    engram(*RUN, "parts=2", "trouble=raise", "at=1", f"folder={engram.folder}", code=3)
    (failure,) = (engram.folder / "engram-store" / "failures").glob("*.txt")
    failed = engram("rerun", failure.stem, code=1)
    assert failed.stderr.rstrip().endswith("ValueError: part 1 cannot be had")
    # The table of a part names the process that computed it, so that column differs, by the distance of two processes.
    (result_file,) = engram.results()
    comparison = shell.json("rerun", result_file.stem, code=1)
    assert (
        comparison["same"],
        [difference["column"] for difference in comparison["differs"]],
        comparison["differs"][0]["rows"],
    ) == (False, ["pid"], 1)
    (engram.folder / "mended").touch()
    engram("resume", "--address", "none")
    (total,) = [key for key, task in keys(engram) if task == "toys.total"]
    assert tuple(engram.json("rerun", total)[name] for name in ("same", "differs")) == (True, [])


def test_nan_is_null_in_json(engram: Here) -> None:
    engram(*RUN)
    (row,) = engram.json("results", "toys", "summary")
    assert row["p_value"] is None
    assert row["estimate"] == 15.0


def test_users_tasks_module_does_not_replace_ours(shell: Shell) -> None:
    (shell.folder / "tasks.py").write_text("raise SystemExit('the wrong tasks')")
    shell.env["PYTHONPATH"] = os.pathsep.join(["", ".", PATHS])
    assert shell.json(*RUN)["state"] == "finished"


def test_unexpected_error_is_one_line_with_stored_traceback(engram: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    run = engram.json(*RUN)["run"]

    def unforeseen(*arguments: object, **options: object) -> None:
        raise RuntimeError("nobody has thought of this")

    monkeypatch.setattr("orchestrator.runs.lifecycle.resume", unforeseen)
    done = engram("resume", run, "--address", "none", code=1)
    (crash_file,) = (engram.folder / "engram-store" / "crashes").iterdir()
    message = "engram: unexpected RuntimeError: nobody has thought of this (a bug in engram; its traceback is in "
    assert done.stderr == f"{message}{crash_file})\n"
    assert "Traceback" in crash_file.read_text()
    assert "Traceback" in engram("resume", run, "--debug", code=1).stderr


def test_unreadable_run_is_named_and_hides_no_other(engram: Here) -> None:
    engram(*RUN, "parts=2")
    engram(*RUN, "parts=3")
    hurt = sorted((engram.folder / "engram-store" / "runs").glob("[!.]*"))[0]
    (hurt / "run.json").write_text("{torn")
    states = {run["run"]: run["state"] for run in engram.json("runs")["runs"]}
    assert set(states.values()) == {"unreadable", "finished"}
    done = engram("resume", hurt.name, "--address", "none", code=1)
    assert "run.json" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_python_runs_an_audit_by_name(shell: Shell) -> None:
    script = (
        "import sys, orchestrator; heavy = [m for m in ('pyarrow', 'ray', 'torch') if m in sys.modules]; "
        "run = orchestrator.run('toys', preset='few', parts=4, address='none'); "
        "again = orchestrator.run('toys', parts=4, address='none', sweep={'first': [0, 1]}); "
        "print(heavy, run.state, run.table('summary')['estimate'].to_pylist(), len(again.cells))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=shell.folder, env=shell.env, check=True)
    assert done.stdout.strip() == "[] finished [6.0] 2"


def test_doctor_exits_1_if_a_requirement_fails(engram: Here) -> None:
    assert engram.json("doctor", "--address", "none")["ok"] is True
    (engram.folder / "taken").write_text("no folder")
    report = engram.json("doctor", "--address", "none", "--store", "taken", code=1)
    assert [check["name"] for check in report["checks"] if check["ok"] is False] == ["store"]


def test_read_only_commands_need_no_store(engram: Here) -> None:
    (engram.folder / "empty").mkdir()
    for store_name in ("nowhere", "empty"):
        assert "Presets" in engram("show", "toys", "--store", store_name).stdout
        assert "7 to run" in engram("plan", "toys", "--store", store_name).stdout
    (engram.folder / "foreign").mkdir()
    (engram.folder / "foreign" / "letter.txt").write_text("no store")
    assert "Presets" in engram("show", "toys", "--store", "foreign").stdout
    assert sorted(path.name for path in engram.folder.iterdir()) == ["empty", "foreign"]


def test_search_without_description_is_skipped(engram: Here) -> None:
    engram(*RUN)
    next(engram.folder.glob("*/runs")).joinpath("toys-search-12345678").mkdir()
    assert "has no searches" in engram("search", "--resume", code=2).stderr
    assert "its ends must be below" in engram("search", "tunable", "--over", f"epochs=1..{'9' * 400}", code=2).stderr


@pytest.mark.parametrize("page", ["/dev/zero", "pipe"])
def test_page_to_verify_must_be_a_file(engram: Here, page: str) -> None:
    os.mkfifo(engram.folder / "pipe")
    assert "it is a device, a pipe or a socket, not a file" in engram("verify", page, code=2).stderr


def test_run_until_decided_ends_early_and_continues(engram: Here) -> None:
    arguments = ("run", "toys", "first=20", "--until", "decided", "--address", "none")
    assert engram.json("plan", *arguments[1:], "--most", "5")["planned"] == 7
    few = engram.json(*arguments, "--most", "5")
    assert few["state"] == "finished"
    assert few["jobs"]["stored"] == 5 + 2
    more = engram("resume", few["run"], "--most", "12", "--address", "none")
    message = (
        "decided after 6 of at most 12 pairs of trainings, at an error rate of 0.05; the other 6 jobs are not needed"
    )
    assert message in more.stderr
    assert " decided: 8 of 14 jobs stored, 3 computed now, 0 failed" in more.stdout.splitlines()[-1]
    (run,) = [run for run in engram.json("runs")["runs"] if run["state"] == "decided"]
    assert message in engram("status", run["run"]).stdout
    assert "decided: 8 jobs not needed" in engram("logs", run["run"]).stdout


LEAVING = """
import atexit, sys, threading, time
import engram_command
class Kept:
    def __del__(self):
        print("destroyed")
kept = Kept()
atexit.register(print, "exit function")
def late():
    time.sleep(0.2)
    print("thread", end=" ")
threading.Thread(target=late).start()
engram_command.leave(SystemExit(3))
"""


def test_exit_waits_for_threads_and_destroys_nothing() -> None:
    completed = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True)
    assert completed.returncode == 3
    assert completed.stdout == "thread exit function\n"
