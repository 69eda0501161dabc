"""Command lines that nobody should write, each of which has to end well.

    python -m tests.fuzz --lines 2000 --seed 0

Every line is made by chance, from a seed, out of the real commands, options and fields and of values of which many are
wrong in type, shape, size or encoding. It runs in this process, in a folder of its own, with an audit that takes no
time; ours are only planned. However wrong it is, it ends with an exit code that the documentation knows and without a
traceback; where it was refused as bad usage, that took a few lines, and the store is as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "toys"))  # as the tests have it

from orchestrator.spec import audits
from orchestrator.spec.fields import field_types
from tests.support.shell import CommandResult, Here

CODES = (0, 1, 2, 3, 130)
LINES = 4  # on standard error, of what is refused as bad usage
# The last two would be obeyed by a terminal.
BAD = ("Traceback", "a bug in engram", "engram: unexpected", "Exception ignored", "\x1b", "\u202e")
CPU_SECONDS, SECONDS = 30, 600  # after which a line hangs: busy, or waiting

LONG = "x" * 300  # more than a name in a folder may have
TEXTS = (
    *("", " ", "x", "none", "null", "true", "-", "--", "=", ",", ".", "..", "/", "~", "~nobody-here/x", "%s", "{}"),
    *("{", "}", "[", "]", "[1,2", "1,2]", "[[", "()", "{a: 2024-13-45}", "{a: !!timestamp x}", "{a: &b 1, c: *b}"),
    *("[1,2]", "a=b", "@", "a@b", "@" + "0" * 64, "x@" + "0" * 64, "\n", "a\nb", "\t", "\x1b[31m", "\x7f", "ü", "☃"),
    *("\u202e", "\udcff", "a\udc80b", "é" * 200, LONG, "x" * 5000, "'", '"', "\\", "$HOME", "`id`", "; true", "*"),
)
NUMBERS = (
    *("0", "1", "2", "3", "-1", "-0", "1.5", "1e0", "0.5", "1e-400", "1e400", "nan", "inf", "-inf", "1,2", "0x10"),
    *("1_0", " 2 ", "+2", "٣", "²", "1/2", "1e", "True", "2.0", "two"),
)
HUGE = ("9" * 19, "9" * 40, "9" * 400, "9" * 5000, "-" + "9" * 40)
PATHS = (
    *("nowhere", "nowhere/below", "text.txt", "text.txt/below", "empty", "folder", "pipe", "link", "loop", "loop/x"),
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/null/x", "/proc/self/mem", "/", "~nobody-here/x", LONG, "a/" + LONG),
    *("folder/" * 600, "x\udcff", "ü", " ", "", ".", "picture.png", "@", "text.txt@" + "0" * 64, "text.txt@x"),
)
# Where a file or folder may be written: nowhere outside of the line's own folder.
WRITTEN = (
    *("nowhere", "nowhere/below", "text.txt", "text.txt/below", "folder", "pipe", "link", "loop", "loop/x", LONG, " "),
    *("/dev/null/x", "/proc/self/x", "~nobody-here/x", "a/" + LONG, "folder/" * 600, "x\udcff", "ü", "", ".", "a.yaml"),
)
KINDS = (
    "",
    "words:",
    "picture:",
    "folder:",
    "list:",
    "parquet:",
    "file:",
    "torch:",
    "onnx:",
    "outputs:",
    "x:",
)
DATA = ("digits", "photos", "mnist", "digts", "digits#3x3", "digits#x", "digits#-1x2", "digits@x", "digits@" + "0" * 64)
PLACES = (
    *("file:///dev/null/x", "file://host/x", "http://x", "s3://", "s3:///", "sqlite:///x", "://", "file://"),
    *("file:///" + LONG,),
)
ADDRESSES = (
    *("none", "none", "none", "none", "", " ", "here", "host", ":1", "host:", "host:x", "host:0", "host:65536"),
    *("host:²", "a b:1", "x..y:1", LONG + ":1", "[::1", "ray://", "http://x:1", "\udcff:1", "None", "127.0.0.1:1"),
)
SERVERS = (
    "http://127.0.0.1:1",
    "https://127.0.0.1:1",
    "http://",
    "http://[::1",
    "http://x:y",
    "https://x:99999",
    "http:x",
)
TRACKING = ("off", "off", "", " ", "http://[::1", "http://", "http://x:y", "https://x:99999", "http:x", "OFF://[")
DURATIONS = ("1s", "1m", "0", "-1", "soon", "1h2", "h", "1e3", "²s", "9" * 400 + "d", "1.5s", "1s1h", "", " 1s ")
OUTS = ("x.parquet", "x.csv", "x.arrow", "x.xls", "x", ".csv", "x.CSV", "/dev/null/x.parquet", "/dev/full/x.csv")
FILES: Mapping[str, bytes] = {
    "good.yaml": b"audit: toys\nset: {parts: 2}\nexecution: {address: none, mlflow: 'off', report: false}\n",
    "time.yaml": b"audit: toys\nset: {label: !!timestamp x}\n",
    "date.yaml": b"audit: toys\nset: {label: 2024-13-45}\n",
    "day.yaml": b"audit: toys\nset: {label: 2024-01-01}\n",
    "bool.yaml": b"audit: toys\nset: {parts: !!bool x}\n",
    "int.yaml": b"audit: toys\nset: {parts: !!int ''}\n",
    "sixty.yaml": b"audit: toys\nset: {parts: 1:99:x}\n",
    "float.yaml": b"audit: toys\nset: {parts: !!float x}\n",
    "binary.yaml": b"audit: toys\nset: {label: !!binary x}\n",
    "set.yaml": b"audit: toys\nset: !!set {parts}\n",
    "omap.yaml": b"audit: toys\nset: !!omap {parts: 1}\n",
    "python.yaml": b"audit: !!python/object/apply:os.system ['touch owned']\n",
    "merge.yaml": b"audit: toys\nset: {<<: 3}\n",
    "alias.yaml": b"audit: toys\nset: &a {parts: *a}\n",
    "twice.yaml": b"audit: toys\naudit: toys\n",
    "keys.yaml": b"audit: toys\nset: {1: 2, [a]: 3}\n",
    "odd.yaml": b"audit: toys\nset: {1: 2}\n",
    "list.yaml": b"- audit: toys\n",
    "nothing.yaml": b"",
    "null.yaml": b"audit: toys\nset:\nsweep:\nexecution:\n",
    "deep.yaml": b"audit: " + b"[" * 5000,
    "deeper.yaml": b"audit: toys\nset: " + b"{a: " * 200 + b"1" + b"}" * 200,
    "bytes.yaml": b"audit: \xff\xfe\x00",
    "wide.yaml": "audit: toys\nset: {parts: 2}\n".encode("utf-16"),
    "zero.yaml": b"audit: toys\x00\n",
    "nul.yaml": b'audit: toys\nset: {label: "\\0", folder: "\\0", data: "folder:\\0"}\nexecution: {address: none}\n',
    "store.yaml": b'audit: toys\nexecution: {store: "\\0"}\n',
    "half.yaml": b'audit: toys\nset: {label: "\\ud800"}\nexecution: {address: none, mlflow: "off", report: false}\n',
    "huge.yaml": b"audit: toys\nset: {parts: 1" + b"0" * 5000 + b"}\n",
    "large.yaml": b"#" * 1_100_000,
    "swept.yaml": b"audit: toys\nsweep: {parts: []}\n",
    "mixed.yaml": b"audit: toys\nsweep: {parts: [1, [2], {a: 3}, null]}\n",
    "how.yaml": b"audit: toys\nexecution: {together: .inf, tolerate: -1, stop_after: [1]}\n",
    "address.yaml": b"audit: toys\nexecution: {address: 'a b', mlflow: 'http://[::1'}\n",
    "unknown.yaml": b"audit: toys\nexekution: {}\n",
    "name.yaml": b"audit: 3\n",
}
# Values of these are what they mean: how long a job waits, what it does, how many there are to plan.
APART: Mapping[str, Sequence[str]] = {
    "seconds": ("0", "0.001", "-1", "x", "nan", "1e999"),
    "trouble": ("", "raise", "nothing", "together", "other", "\udcff"),
    "scale": ("tiny", "full", "tny", "", "1"),
}
COUNTS = (
    "parts",
    "first",
    "canaries",
    "seeds",
    "models",
    "evaluations",
    "resamples",
    "permutations",
    "members",
    "probes",
    "epochs",
)


@dataclass(frozen=True)
class Finding:
    """A line that did not end well, and how."""

    arguments: Sequence[str]
    env: Mapping[str, str]
    problem: str
    said: CommandResult | None

    def __str__(self) -> str:
        words = " ".join(f"{each[:80]!r}" for each in self.arguments)
        env = " ".join(f"{name}={value[:80]!r}" for name, value in self.env.items())
        return f"{self.problem}: {env} engram {words}\n    {self.said.stderr[-400:] if self.said else ''}"


class HangError(BaseException):
    """The line does not end; no error that a command could take for one of its own."""


class Lines:
    """Makes command lines by chance: of the place's run, key and page it knows that they are there."""

    def __init__(self, chance: random.Random, place: Place) -> None:
        self.chance = chance
        self.run, self.key, self.page = place.run, place.key, place.page
        found = {name: audits.find(name).audit for name in audits.names()}
        self.fields = {name: list(_paths(audit.config)) for name, audit in found.items()}
        self.presets = {name: list(audit.presets) for name, audit in found.items()}

    def one(self) -> tuple[list[str], dict[str, str]]:
        """A command line, and what of the environment it meets."""
        name = self.chance.choice(COMMANDS)
        line = [name, *getattr(self, f"_{name}")()]
        if self._seldom(0.05):
            line += self.chance.choice(
                ((self._text(),), ("--nope",), ("--json=x",), ("--debug",), ("-h",), ("--", "-x"))
            )
        if self._seldom(0.05):
            self.chance.shuffle(line)
        env = {name: self._of(values) for name, values in ENVIRONMENT.items() if self._seldom(0.015)}
        return ["".join(each.split("\0")) for each in line], env  # which no system passes on

    def _plan(self) -> list[str]:
        audit = self._audit()
        if self._seldom(0.15):
            return [*self._file(), *self._sets("toys"), *self._how()]
        return [audit, *self._preset(audit), *self._sets(audit), *self._how()]

    def _run(self) -> list[str]:
        shown = ["--mlflow", "off" if self._seldom(0.8) else self._of(TRACKING), "--no-report"]
        shown += ["--experiment", self._text()] if self._seldom(0.05) else []
        shown += ["--show-images"] if self._seldom(0.05) else []
        what = self._file() if self._seldom(0.3) else ["toys", "parts=2"] if self._seldom(0.3) else ["toys"]
        return [*what, *self._preset("toys"), *self._sets("toys"), *self._how(address=True), *shown]

    def _resume(self) -> list[str]:
        return [*self._one_run(), *self._how(address=True, sweeps=False), "--mlflow", "off", "--no-report"]

    def _search(self) -> list[str]:
        """Never on a cluster that is there: no trial is made."""
        address = "none" if self._seldom(0.9) else self._of(ADDRESSES[:-1])
        shown = ["--address", address, "--mlflow", "off", "--no-report", *self._store(), *self._json()]
        offered: dict[str, Sequence[str]] = {
            "--sampler": ("random", "grid", "optuna", "rndom", ""),
            "--sampler-seed": (*NUMBERS, *HUGE),
            "--budget": DURATIONS,
            "--rungs": ("1,2", "2,1", "1", "0", "-1,2", ",", "x", "1,,2", *HUGE),
            "--keep-one-in": (*NUMBERS, *HUGE),
            "--give-up": (*NUMBERS, *HUGE),
            "--concurrent": ("1", "0", "-1", "x", *HUGE),
        }
        for name, values in offered.items():
            if self._seldom(0.1):
                shown += [name, self._of(values)]
        if self._seldom(0.3):
            word = [self._of((self.run, "tunable", "nope"))] if self._seldom(0.8) else []
            return ["--resume", *word, *shown]
        over = [word for _ in range(self.chance.choice((0, 1, 1, 1, 2))) for word in ("--over", self._domain())]
        trials = ["--trials", self._of((*NUMBERS, *HUGE))] if self._seldom(0.5) else []
        audit = "tunable" if self._seldom(0.85) else self._audit()
        return [audit, *self._preset(audit), *self._sets(audit), *over, *trials, *shown]

    def _domain(self) -> str:
        """What may vary in a search."""
        if self._seldom(0.1):
            return self._text()
        name = self._of(("rate", "wide", "noise", "epochs", "rte", "seed", "folder", ""))
        ends = self._of((*NUMBERS, *HUGE)) + self._of(("..", "..", "...", "-", ",")) + self._of((*NUMBERS, *HUGE))
        values = (ends, f"log({ends})", f"log({ends}", "true,false", "1e-3..1e-1", "log(1e-4..1e-2)", self._text())
        return f"{name}={self._of(values)}"

    def _ask(self) -> list[str]:
        """Never with --run, which would run an audit of ours."""
        chosen = ["--no-run", *self._sets("unique_feature"), *self._store(), *self._json()]
        if self._seldom(0.8):
            chosen += ["--have", self._of(("data", "model", "outputs", "date", ""))]
        if self._seldom(0.8):
            chosen += ["--fear", self._of(("image", "set", "answer", "unknown", "picture", ""))]
        if self._seldom(0.5):
            chosen += ["--out", self._of(WRITTEN)]
        return chosen

    def _new(self) -> list[str]:
        name = [
            self._of(("mine", "Mine", "class", "toys", "my audit", "a/b", "3")) if self._seldom(0.7) else self._text()
        ]
        into = ["--into", self._of(WRITTEN)] if self._seldom(0.7) else []
        return ["audit" if self._seldom(0.95) else self._text(), *name, *into, *self._json()]

    def _show(self) -> list[str]:
        audit = self._audit()
        more = [self._of((*self.presets.get(audit, []), *self.fields.get(audit, ["x"])))] if self._seldom(0.5) else []
        return [audit, *(more if self._seldom(0.8) else [self._text()]), *self._store(), *self._json()]

    def _list(self) -> list[str]:
        return self._json()

    def _runs(self) -> list[str]:
        return [*(["--all"] if self._seldom(0.4) else []), *self._store(), *self._json()]

    def _status(self) -> list[str]:
        return [*self._one_run(), *(["--watch"] if self._seldom(0.1) else []), *self._store(), *self._json()]

    def _results(self) -> list[str]:
        table = [self._of(("summary", "parts", "sumary", "")) if self._seldom(0.7) else self._text()]
        out = ["--out", self._of(OUTS) if self._seldom(0.7) else self._of(PATHS) + ".csv"] if self._seldom(0.5) else []
        return [*self._one_run(), *table, *out, *self._store(), *self._json()]

    def _logs(self) -> list[str]:
        word = self._one_run() if self._seldom(0.4) else self._explain()[:1] if self._seldom(0.8) else []
        return [*word, *(["--follow"] if self._seldom(0.2) else []), *self._store(), *self._json()]

    def _cancel(self) -> list[str]:
        return [*self._one_run(), *self._store(), *self._json()]

    def _gc(self) -> list[str]:
        return [*self._store(), *self._json()]

    def _sign(self) -> list[str]:
        signed = self.page if self._seldom(0.5) else self._of(WRITTEN)
        return [signed, "--key", self._of(PATHS), *self._json()]

    def _submit(self) -> list[str]:
        """To no job server that is there."""
        audit = self._audit()
        to = ["--address", self._of((*SERVERS, *ADDRESSES[:-1]))] if self._seldom(0.9) else []
        limits = ["--max-cost", self._of(NUMBERS), "--prices", self._of(PATHS)] if self._seldom(0.3) else []
        store = ["--store", "there"] if self._seldom(0.8) else []
        return [audit, *self._preset(audit), *self._sets(audit), *self._how(), *to, *limits, *store]

    def _compare(self) -> list[str]:
        out = ["--out", self._of(("x.html", "x", "/dev/null/x.html", "~nobody-here/x.html", LONG + ".html"))]
        return [*self._one_run(), *self._one_run(), *(out if self._seldom(0.2) else []), *self._store(), *self._json()]

    def _explain(self) -> list[str]:
        word = self._of((self.run, self.key, self.key[:8], self.key[:3], "0" * 64, self.key.upper()))
        return [word if self._seldom(0.7) else self._text(), *self._store(), *self._json()]

    def _rerun(self) -> list[str]:
        return self._explain()

    def _verify(self) -> list[str]:
        page = [self.page if self._seldom(0.5) else self._of(PATHS)] if self._seldom(0.7) else []
        files = ["--file", self._of(PATHS)] if self._seldom(0.3) else []
        files += ["--key", self._of(PATHS)] if self._seldom(0.2) else []
        return [*page, *files, *(["--strict"] if self._seldom(0.4) else []), *self._store(), *self._json()]

    def _report(self) -> list[str]:
        """Never with --open or --pdf, which start a browser."""
        run = self._one_run() if self._seldom(0.7) else [self._text()] if self._seldom(0.8) else []
        flags = [each for each in ("--show-images", "--show-texts") if self._seldom(0.2)]
        said = [
            part for name in ("title", "client", "details") if self._seldom(0.3) for part in (f"--{name}", self._text())
        ]
        return [*run, *flags, *said, *self._store(), *self._json()]

    def _probes(self) -> list[str]:
        audit = self._of(("toys", "unique_feature", "density", "toyz"))
        out = ["--out", self._of(PATHS[:-8])] if self._seldom(0.9) else []
        scale = ["scale=tiny"] if audit in ("unique_feature", "density") else []  # for pictures are really drawn
        return [audit, *self._preset(audit), *scale, *self._sets(audit), *out, *self._store(), *self._json()]

    def _ui(self) -> list[str]:
        return ["--port", self._of(("0", "-1", "65536", "x", "1.5", "", "9" * 400)), *self._store(), *self._json()]

    def _doctor(self) -> list[str]:
        return ["--address", self._of(ADDRESSES[:-1]), *self._store(), *self._json()]

    def _audit(self) -> str:
        return self._of((*self.fields, *self.fields, "toyz", "")) if self._seldom(0.95) else self._text()

    def _file(self) -> list[str]:
        return [self._of(tuple(FILES)) if self._seldom(0.8) else self._of(("./", "folder/")) + self._of(PATHS)]

    def _preset(self, audit: str) -> list[str]:
        known = self.presets.get(audit, [""])
        tried = self._of(known) if self._seldom(0.95) else self._text()
        if audit == "tunable":
            return ["--preset", tried] if self._seldom(0.4) else []
        if audit != "toys":
            return ["--preset", self._of(("smoke", "quickstart", "null")) if self._seldom(0.95) else self._text()]
        return ["--preset", "few" if tried == "many" else tried] if self._seldom(0.4) else []

    def _sets(self, audit: str) -> list[str]:
        return [self._setting(audit) for _ in range(self.chance.choice((0, 0, 0, 1, 1, 1, 2)))]

    def _setting(self, audit: str) -> str:
        if self._seldom(0.05):
            return self._text()
        fields = self.fields.get(audit, ["data"])
        name = self._of((*fields, *fields, *APART, "scale", "data", "feature"))
        if self._seldom(0.05):
            name = self._of((name[:-1], name + ".x", name.upper(), "." + name, name + ".", self._text()))
        return f"{name}={self._value(name)}"

    def _value(self, name: str) -> str:
        if name in APART:
            return self._of(APART[name])
        if name.rpartition(".")[2] in COUNTS:
            return self._of(NUMBERS)
        if name in ("label", "folder"):  # which take any text
            return self._text()
        match self.chance.randrange(5):
            case 0:
                return self._of(NUMBERS + HUGE)
            case 1:
                return self._of(KINDS) + self._of(PATHS)
            case 2:
                return self._of(DATA)
            case 3:
                return self._of(("1", "0", "0.5", "true", "null"))
        return self._text()

    def _how(self, address: bool = False, sweeps: bool = True) -> list[str]:
        """Options of how and where; `none` is the only address that is not refused."""
        chosen: list[str] = ["--address", "none" if self._seldom(0.85) else self._of(ADDRESSES)] if address else []
        offered: dict[str, Callable[[], str]] = {
            "--together": lambda: self._of(("auto", *NUMBERS, *HUGE)),
            "--way": lambda: self._of(("auto", "loop", "stack", "graph", "stak", "")),
            "--tolerate": lambda: self._of((*NUMBERS, *HUGE)),
            "--stop-after": lambda: self._of(DURATIONS),
            "--keep": lambda: self._of(("state", "none", "weights", "")),
            "--gpus": lambda: self._of(("auto", "none", "wait", "2", "")),
            "--timeout": lambda: self._of(DURATIONS),
            "--max-gpu-hours": lambda: self._of((*NUMBERS, *HUGE)),
            "--max-cost": lambda: self._of((*NUMBERS, *HUGE)),
            "--prices": lambda: self._of((*PATHS, *FILES)),
            "--store": lambda: self._of((*PATHS, *PLACES)),
        }
        if sweeps:
            offered["--sweep"] = lambda: (
                f"{self._of(('parts', 'label', 'prts', ''))}={self._of((*TEXTS[:40], '1,2', 'a,b'))}"
            )
        for name, value in offered.items():
            if self._seldom(0.06):
                chosen += [name, value()]
        flags = ("--fail-fast", "--json", *(("--again", "--all") if sweeps else ()))
        return chosen + [each for each in flags if self._seldom(0.1)]

    def _one_run(self) -> list[str]:
        word = self._of((self.run, self.run[:-2], self.run.rpartition("-")[2], "toys", "nope"))
        return [word if self._seldom(0.9) else self._text()]

    def _store(self) -> list[str]:
        return ["--store", self._of((*PATHS, *PLACES))] if self._seldom(0.2) else []

    def _json(self) -> list[str]:
        return ["--json"] if self._seldom(0.4) else []

    def _text(self) -> str:
        return self._of(TEXTS + NUMBERS + PATHS)

    def _of(self, values: Sequence[str]) -> str:
        return self.chance.choice(values)

    def _seldom(self, share: float) -> bool:
        return self.chance.random() < share


COMMANDS = (
    *("plan",) * 8,
    *("run",) * 8,
    *("resume", "results", "explain", "search", "verify", "report") * 2,
    *("list", "show", "ask", "new", "runs", "status", "compare", "rerun", "probes", "ui", "doctor"),
    *("logs", "cancel", "gc", "sign", "submit"),
)
ENVIRONMENT: Mapping[str, Sequence[str]] = {
    "ENGRAM_STORE": (*PATHS, *PLACES),
    "ENGRAM_DATA": PATHS,
    "RAY_ADDRESS": ADDRESSES[:-1],
    "MLFLOW_TRACKING_URI": TRACKING,
    "ENGRAM_REPORT": ("no", "x", "", "0"),
    "NO_COLOR": ("1", ""),
    "COLUMNS": ("1", "x", "0"),
}


class Place:
    """A folder with a store in which a run has ended, and with files that a line may name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "here"
        self.folder.mkdir()
        self._copy = folder / "copy"
        self.here = Here(self.folder)
        quiet = ("--address", "none", "--mlflow", "off")
        made = self.here.json("run", "toys", "parts=2", "--report", *quiet)
        self.run: str = made["run"]
        self.page = str(Path(made["report"]).relative_to(self.folder))
        self.key = self.here.results()[0].stem
        for name, content in {
            **FILES,
            "text.txt": b"words\n",
            "empty": b"",
            "picture.png": b"\x89PNG\r\n\x1a\n",
        }.items():
            (self.folder / name).write_bytes(content)
        (self.folder / "folder").mkdir()
        os.mkfifo(self.folder / "pipe")
        (self.folder / "link").symlink_to("elsewhere")
        (self.folder / "loop").symlink_to("loop")
        self._names = set(os.listdir(self.folder))
        shutil.copytree(self.folder / "engram-store", self._copy)
        self._stored = self._state()

    def tried(self, arguments: Sequence[str], env: Mapping[str, str]) -> tuple[int | None, Finding | None]:
        """The exit code of a line, and what was wrong with it."""
        self.here.env = dict(env)
        said: CommandResult | None = None
        try:
            with watched():
                said = self.here.run(*arguments)
        except HangError as error:
            problem = str(error)
        except BaseException as error:  # the command let it through
            problem = f"{type(error).__name__} got out: {error}"
        else:
            problem = self._problem(said)
        self._restore()
        return said and said.returncode, Finding(arguments, env, problem, said) if problem else None

    def _problem(self, said: CommandResult) -> str:
        if said.returncode not in CODES:
            return f"exit code {said.returncode}"
        for word in BAD:
            if word in said.stderr or word in said.stdout:
                return f"said {word!r}"
        if said.returncode == 2 and len(said.stderr.splitlines()) > LINES:
            return f"{len(said.stderr.splitlines())} lines of bad usage"
        if said.returncode and not (said.stderr or said.stdout):
            return f"exit code {said.returncode} without a word"
        if said.returncode == 2 and (self._state() != self._stored or set(os.listdir(self.folder)) != self._names):
            return "bad usage has left something behind"
        return ""

    def _state(self) -> frozenset[tuple[str, int]]:
        """What the store holds, but for digests of data sets: they are known once they were worked out."""
        found = ((path.name, path) for path in (self.folder / "engram-store").rglob("*") if path.is_file())
        return frozenset((str(path), path.lstat().st_size) for name, path in found if not name.startswith("digests."))

    def _restore(self) -> None:
        """Take away what the line has made."""
        for name in set(os.listdir(self.folder)) - self._names:
            path = self.folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if self._state() != self._stored:
            shutil.rmtree(self.folder / "engram-store")
            shutil.copytree(self._copy, self.folder / "engram-store")


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """HangError for what takes so much of the processor's time, or so long, that only a hang does."""

    def hangs(number: int, _frame: object) -> None:
        raise HangError("it hangs, busy" if number == signal.SIGPROF else "it hangs, waiting")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, CPU_SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, SECONDS)}
    before = {number: signal.signal(number, hangs) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def fuzz(lines: int, seed: int, folder: Path, told: Callable[[str], None] = lambda line: None) -> list[Finding]:
    """The lines that did not end well; `told` hears of each, and at the end how many ended with which code."""
    place = Place(folder)
    made = Lines(random.Random(seed), place)
    found: list[Finding] = []
    codes: Counter[int | None] = Counter()
    for number in range(lines):
        arguments, env = made.one()
        code, finding = place.tried(arguments, env)
        codes[code] += 1
        if finding is not None:
            found.append(finding)
            told(f"line {number}: {finding}")
    told(", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items(), key=str)))
    return found


def _paths(config: object, above: str = "", depth: int = 2) -> Iterator[str]:
    """The dotted names of a config's fields, and of those of the parts in it."""
    for name, kind in field_types(config).items():
        yield f"{above}{name}"
        if depth and hasattr(kind, "__dataclass_fields__"):
            yield from _paths(kind, f"{above}{name}.", depth - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1"}
    clock = time.process_time()
    with tempfile.TemporaryDirectory(prefix="engram-fuzz-") as folder:
        found = fuzz(options.lines, options.seed, Path(folder), lambda line: print(line, flush=True))  # noqa: T201
    print(f"{options.lines} lines, {len(found)} bad, {time.process_time() - clock:.0f} s of the processor")  # noqa: T201
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
