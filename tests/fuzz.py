"""Faulty command lines, which must all end properly.

    python -m tests.fuzz --lines 2000 --seed 0

Every line is generated from a seed, from the real commands, options and fields, and from values that are often wrong in
type, shape, size or encoding. It runs in this process, in a separate folder, with an audit that takes no time; other
audits are only planned. Every line must end with a documented exit code and without a traceback. A line refused as bad
usage prints only a few lines and leaves the store unchanged.
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

from orchestrator.cli.commands import ALIASES
from orchestrator.spec import audits
from orchestrator.spec.fields import field_types
from tests.support.shell import CommandResult, Here

CODES = (0, 1, 2, 3, 130)
LINES = 4  # limit for standard error after bad usage
# The last two would be obeyed by a terminal.
BAD = ("Traceback", "a bug in engram", "engram: unexpected", "Exception ignored", "\x1b", "\u202e")
CPU_SECONDS = 30  # after which a line hangs: busy
SECONDS = 600  # or waiting

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
# Values of these fields take effect: waiting time, behaviour, number of jobs.
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
    """A line that did not end properly, and its problem."""

    arguments: Sequence[str]
    env: Mapping[str, str]
    problem: str
    result: CommandResult | None

    def __str__(self) -> str:
        words = " ".join(f"{argument[:80]!r}" for argument in self.arguments)
        env = " ".join(f"{name}={value[:80]!r}" for name, value in self.env.items())
        return f"{self.problem}: {env} engram {words}\n    {self.result.stderr[-400:] if self.result else ''}"


class HangError(BaseException):
    """The line does not end. Not an Exception, so that no command handles it."""


class Lines:
    """Generates random command lines. It knows the run, key and page of a folder."""

    def __init__(self, chance: random.Random, workspace: Workspace) -> None:
        self.chance = chance
        self.run = workspace.run
        self.key = workspace.key
        self.page = workspace.page
        audits_by_name = {name: audits.find(name).audit for name in audits.names()}
        self.fields = {name: list(_paths(audit.config)) for name, audit in audits_by_name.items()}
        self.presets = {name: list(audit.presets) for name, audit in audits_by_name.items()}

    def one(self) -> tuple[list[str], dict[str, str]]:
        """A command line and its environment variables."""
        name = self.chance.choice(COMMANDS)
        spelling = self._of(SPELLINGS.get(name, (name,))).split()
        line = [*spelling, *getattr(self, f"_{name}")()]
        if self._seldom(0.05):
            line += self.chance.choice(
                ((self._text(),), ("--nope",), ("--json=x",), ("--debug",), ("-h",), ("--", "-x"))
            )
        if self._seldom(0.05):
            self.chance.shuffle(line)
        env = {name: self._of(values) for name, values in ENVIRONMENT.items() if self._seldom(0.015)}
        return ["".join(word.split("\0")) for word in line], env  # which no system passes on

    def _audit(self) -> list[str]:
        """Never with three readable inputs, which would run a real audit."""
        inputs = [self._of(("nowhere", "text.txt", "folder", "picture.png", "digits", *PATHS)) for _ in range(3)]
        audit_options = ["--size", self._of(("28x28", "0x0", "x", *NUMBERS, *HUGE))] if self._seldom(0.3) else []
        if self._seldom(0.3):
            audit_options += ["--references", self._of((*NUMBERS, *HUGE)), "--network", self._of(("mlp1", "x:y", ""))]
        kept = inputs if self._seldom(0.8) else inputs[: self.chance.randrange(3)]
        return [*kept, *audit_options, "--address", "none", "--mlflow", "off", *self._store(), *self._json()]

    def _plan(self) -> list[str]:
        audit = self._audit_name()
        if self._seldom(0.15):
            return [*self._file(), *self._sets("toys"), *self._how()]
        return [audit, *self._preset(audit), *self._sets(audit), *self._how()]

    def _run(self) -> list[str]:
        output_options = ["--mlflow", "off" if self._seldom(0.8) else self._of(TRACKING), "--no-report"]
        output_options += ["--experiment", self._text()] if self._seldom(0.05) else []
        output_options += ["--show-images"] if self._seldom(0.05) else []
        if self._seldom(0.3):
            audit_arguments = self._file()
        elif self._seldom(0.3):
            audit_arguments = ["toys", "parts=2"]
        else:
            audit_arguments = ["toys"]
        return [*audit_arguments, *self._preset("toys"), *self._sets("toys"), *self._how(address=True), *output_options]

    def _resume(self) -> list[str]:
        return [*self._one_run(), *self._how(address=True, sweeps=False), "--mlflow", "off", "--no-report"]

    def _search(self) -> list[str]:
        """Never with the address of an existing cluster: no trial runs."""
        address = "none" if self._seldom(0.9) else self._of(ADDRESSES[:-1])
        search_options = ["--address", address, "--mlflow", "off", "--no-report", *self._store(), *self._json()]
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
                search_options += [name, self._of(values)]
        if self._seldom(0.3):
            word = [self._of((self.run, "tunable", "nope"))] if self._seldom(0.8) else []
            return ["--resume", *word, *search_options]
        over = [word for _ in range(self.chance.choice((0, 1, 1, 1, 2))) for word in ("--over", self._domain())]
        trials = ["--trials", self._of((*NUMBERS, *HUGE))] if self._seldom(0.5) else []
        audit = "tunable" if self._seldom(0.85) else self._audit_name()
        return [audit, *self._preset(audit), *self._sets(audit), *over, *trials, *search_options]

    def _domain(self) -> str:
        """A domain of a search."""
        if self._seldom(0.1):
            return self._text()
        name = self._of(("rate", "wide", "noise", "epochs", "rte", "seed", "folder", ""))
        ends = self._of((*NUMBERS, *HUGE)) + self._of(("..", "..", "...", "-", ",")) + self._of((*NUMBERS, *HUGE))
        values = (ends, f"log({ends})", f"log({ends}", "true,false", "1e-3..1e-1", "log(1e-4..1e-2)", self._text())
        return f"{name}={self._of(values)}"

    def _ask(self) -> list[str]:
        """Never with --run, which would run a real audit."""
        ask_options = ["--no-run", *self._sets("unique_feature"), *self._store(), *self._json()]
        if self._seldom(0.8):
            ask_options += ["--have", self._of(("data", "model", "outputs", "date", ""))]
        if self._seldom(0.8):
            ask_options += ["--fear", self._of(("image", "set", "answer", "unknown", "picture", ""))]
        if self._seldom(0.5):
            ask_options += ["--out", self._of(WRITTEN)]
        return ask_options

    def _new(self) -> list[str]:
        name = [
            self._of(("mine", "Mine", "class", "toys", "my audit", "a/b", "3")) if self._seldom(0.7) else self._text()
        ]
        into = ["--into", self._of(WRITTEN)] if self._seldom(0.7) else []
        return ["audit" if self._seldom(0.95) else self._text(), *name, *into, *self._json()]

    def _show(self) -> list[str]:
        audit = self._audit_name()
        more = []
        if self._seldom(0.5):
            more = [self._of((*self.presets.get(audit, []), *self.fields.get(audit, ["x"])))]
        return [audit, *(more if self._seldom(0.8) else [self._text()]), *self._store(), *self._json()]

    def _list(self) -> list[str]:
        return self._json()

    def _runs(self) -> list[str]:
        return [*(["--all"] if self._seldom(0.4) else []), *self._store(), *self._json()]

    def _status(self) -> list[str]:
        return [*self._one_run(), *(["--watch"] if self._seldom(0.1) else []), *self._store(), *self._json()]

    def _results(self) -> list[str]:
        table = [self._of(("summary", "parts", "sumary", "")) if self._seldom(0.7) else self._text()]
        out = []
        if self._seldom(0.5):
            out = ["--out", self._of(OUTS) if self._seldom(0.7) else self._of(PATHS) + ".csv"]
        return [*self._one_run(), *table, *out, *self._store(), *self._json()]

    def _logs(self) -> list[str]:
        if self._seldom(0.4):
            word = self._one_run()
        elif self._seldom(0.8):
            word = self._explain()[:1]
        else:
            word = []
        return [*word, *(["--follow"] if self._seldom(0.2) else []), *self._store(), *self._json()]

    def _cancel(self) -> list[str]:
        return [*self._one_run(), *self._store(), *self._json()]

    def _gc(self) -> list[str]:
        return [*self._store(), *self._json()]

    def _sign(self) -> list[str]:
        signed = self.page if self._seldom(0.5) else self._of(WRITTEN)
        return [signed, "--key", self._of(PATHS), *self._json()]

    def _submit(self) -> list[str]:
        """Only to addresses without a job server."""
        audit = self._audit_name()
        to = ["--address", self._of((*SERVERS, *ADDRESSES[:-1]))] if self._seldom(0.9) else []
        limits = []
        if self._seldom(0.3):
            limits = ["--max-cost", self._of(NUMBERS), "--prices", self._of(PATHS)]
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
        if self._seldom(0.7):
            run = self._one_run()
        elif self._seldom(0.8):
            run = [self._text()]
        else:
            run = []
        flags = [flag for flag in ("--show-images", "--show-texts") if self._seldom(0.2)]
        details = []
        for name in ("title", "client", "details"):
            if self._seldom(0.3):
                details.extend((f"--{name}", self._text()))
        return [*run, *flags, *details, *self._store(), *self._json()]

    def _probes(self) -> list[str]:
        audit = self._of(("toys", "unique_feature", "density", "toyz"))
        out = ["--out", self._of(PATHS[:-8])] if self._seldom(0.9) else []
        scale = ["scale=tiny"] if audit in ("unique_feature", "density") else []  # since images are really drawn
        return [audit, *self._preset(audit), *scale, *self._sets(audit), *out, *self._store(), *self._json()]

    def _ui(self) -> list[str]:
        return ["--port", self._of(("0", "-1", "65536", "x", "1.5", "", "9" * 400)), *self._store(), *self._json()]

    def _doctor(self) -> list[str]:
        return ["--address", self._of(ADDRESSES[:-1]), *self._store(), *self._json()]

    def _audit_name(self) -> str:
        if self._seldom(0.95):
            return self._of((*self.fields, *self.fields, "toyz", ""))
        return self._text()

    def _file(self) -> list[str]:
        return [self._of(tuple(FILES)) if self._seldom(0.8) else self._of(("./", "folder/")) + self._of(PATHS)]

    def _preset(self, audit: str) -> list[str]:
        presets = self.presets.get(audit, [""])
        tried = self._of(presets) if self._seldom(0.95) else self._text()
        if audit == "tunable":
            return ["--preset", tried] if self._seldom(0.4) else []
        if audit != "toys":
            return ["--preset", self._of(("smoke", "quickstart", "null")) if self._seldom(0.95) else self._text()]
        return ["--preset", "few" if tried == "many" else tried] if self._seldom(0.4) else []

    def _sets(self, audit: str) -> list[str]:
        result = []
        for _ in range(self.chance.choice((0, 0, 0, 1, 1, 1, 2))):
            result.append(self._setting(audit))
        return result

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
        """Options of execution. `none` is the only valid address."""
        selected: list[str] = ["--address", "none" if self._seldom(0.85) else self._of(ADDRESSES)] if address else []
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
                selected += [name, value()]
        flags = ("--fail-fast", "--json", *(("--again", "--all") if sweeps else ()))
        return selected + [flag for flag in flags if self._seldom(0.1)]

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
    *("audit",) * 4,
    *("run",) * 8,
    *("resume", "results", "explain", "search", "verify", "report") * 2,
    *("list", "show", "ask", "new", "runs", "status", "compare", "rerun", "probes", "ui", "doctor"),
    *("logs", "cancel", "gc", "sign", "submit"),
)
# The earlier name of a command, and the one that `engram --help` lists.
SPELLINGS = {name: (name, listed.partition("`")[0]) for name, (listed, _) in ALIASES.items() if name != "submit"}
ENVIRONMENT: Mapping[str, Sequence[str]] = {
    "ENGRAM_STORE": (*PATHS, *PLACES),
    "ENGRAM_DATA": PATHS,
    "RAY_ADDRESS": ADDRESSES[:-1],
    "MLFLOW_TRACKING_URI": TRACKING,
    "ENGRAM_REPORT": ("no", "x", "", "0"),
    "NO_COLOR": ("1", ""),
    "COLUMNS": ("1", "x", "0"),
}


class Workspace:
    """A folder with a store, a finished run and files for the lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "here"
        self.folder.mkdir()
        self._copy = folder / "copy"
        self.here = Here(self.folder)
        quiet = ("--address", "none", "--mlflow", "off")
        ended = self.here.json("run", "toys", "parts=2", "--report", *quiet)
        self.run: str = ended["run"]
        self.page = str(Path(ended["report"]).relative_to(self.folder))
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
        """The exit code of a line, and its problem."""
        self.here.env = dict(env)
        result: CommandResult | None = None
        try:
            with limit_time():
                result = self.here.run(*arguments)
        except HangError as error:
            problem = str(error)
        except BaseException as error:  # the command let it through
            problem = f"{type(error).__name__} got out: {error}"
        else:
            problem = self._problem(result)
        self._restore()
        return result and result.returncode, Finding(arguments, env, problem, result) if problem else None

    def _problem(self, result: CommandResult) -> str:
        if result.returncode not in CODES:
            return f"exit code {result.returncode}"
        for word in BAD:
            if word in result.stderr or word in result.stdout:
                return f"said {word!r}"
        if result.returncode == 2 and len(result.stderr.splitlines()) > LINES:
            return f"{len(result.stderr.splitlines())} lines of bad usage"
        if result.returncode and not (result.stderr or result.stdout):
            return f"exit code {result.returncode} without a word"
        if result.returncode == 2 and (self._state() != self._stored or set(os.listdir(self.folder)) != self._names):
            return "bad usage has left something behind"
        return ""

    def _state(self) -> frozenset[tuple[str, int]]:
        """The names and sizes of the store's files, except digests of data sets, which may be added."""
        files = ((path.name, path) for path in (self.folder / "engram-store").rglob("*") if path.is_file())
        return frozenset((str(path), path.lstat().st_size) for name, path in files if not name.startswith("digests."))

    def _restore(self) -> None:
        """Remove the files that the line has created."""
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
def limit_time() -> Iterator[None]:
    """Raise HangError in a block that takes more processor time, or more time, than any but a hanging line."""

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


def fuzz(lines: int, seed: int, folder: Path, report_line: Callable[[str], None] = lambda line: None) -> list[Finding]:
    """The lines that did not end properly. `report_line` receives each, and finally the counts of exit codes."""
    workspace = Workspace(folder)
    generator = Lines(random.Random(seed), workspace)
    findings: list[Finding] = []
    codes: Counter[int | None] = Counter()
    for number in range(lines):
        arguments, env = generator.one()
        code, finding = workspace.tried(arguments, env)
        codes[code] += 1
        if finding is not None:
            findings.append(finding)
            report_line(f"line {number}: {finding}")
    report_line(", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items(), key=str)))
    return findings


def _paths(config: object, above: str = "", depth: int = 2) -> Iterator[str]:
    """The dotted names of a config's fields, including nested ones."""
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
        findings = fuzz(options.lines, options.seed, Path(folder), lambda line: print(line, flush=True))  # noqa: T201
    print(f"{options.lines} lines, {len(findings)} bad, {time.process_time() - clock:.0f} s of the processor")  # noqa: T201
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
