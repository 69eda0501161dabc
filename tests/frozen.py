"""Show the effects of a code change on users: compare a commit with this tree, on this machine.

    make frozen BASE=main~5
    python -m tests.frozen main~5 --only unique_feature --only density/smoke

Both trees answer the same questions by their command lines alone: the plans of every preset, the key and the table of
every job and every figure of every preset at `scale=tiny`, `--help` of every command, and `list --json` and
`show --json`. What differs is named, by kind; the exit code is 1 if anything does.

Jobs are identified by their preset, their task and their place in the plan, not by their keys: a change of keys shows
which tables change with them. The names of runs, which follow from keys, are compared as keys. No digest is kept from
one machine to another, since processors round differently. A table is compared by the values that it reads back as, a
figure byte by byte. Prices are left out: they are measured on each run's own machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 2  # trees that compute side by side
SHOWN = 12  # names of a kind that are printed
PRICES = ("price", "time", "seconds_low", "seconds_high", "expected_seconds", "unknown", "slots")

# Imports what the commands need once, then runs each command in a fork, whose output and exit code it writes down.
ZYGOTE = """
import json, os, sys, traceback
import orchestrator.cli.commands
from orchestrator.cli import main

commands = json.load(open(sys.argv[1]))
if ["list", "--json"] not in commands:
    import pandas, pyarrow, scipy.stats, torch
for number, command in enumerate(commands):
    child = os.fork()
    if not child:
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{sys.argv[2]}/{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv = ["engram", *command]
        code = 70
        try:
            main()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    open(f"{sys.argv[2]}/{number}.code", "w").write(str(status))
"""


class Tree:
    """A checkout that answers commands in a separate folder. Its own code is imported, not the installed package."""

    def __init__(self, code: Path, folder: Path) -> None:
        self.code = code
        self.folder = folder
        self.commands = 0
        folder.mkdir()

    def answer(self, commands: Sequence[Sequence[str]]) -> list[tuple[int, str, str]]:
        """Exit code, stdout and stderr of each command, all run one after another by one process and its forks."""
        self.commands += 1
        folder = self.folder / f"commands-{self.commands}"
        folder.mkdir()
        command_file = folder / "commands.json"
        command_file.write_text(json.dumps([list(command) for command in commands]))
        env = {}
        for name, value in os.environ.items():
            if not name.startswith(("ENGRAM_", "MLFLOW_", "RAY_")):
                env[name] = value
        env |= {"PYTHONPATH": str(self.code), "COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, "-c", ZYGOTE, str(command_file), str(folder)], cwd=self.folder, env=env, check=True
        )
        texts = []
        for n in range(len(commands)):
            texts.append([(folder / f"{n}.{kind}").read_text() for kind in ("code", "out", "err")])
        return [(int(code), out, err) for code, out, err in texts]


def take_inventory(tree: Tree, only: Sequence[str] = ()) -> dict[str, str]:
    """All outputs of a tree that users see, by kind and name: a text, or the digest of one.

    only: audits, or presets as `AUDIT/PRESET`. An empty sequence selects all.
    """
    (_, listing, _), (_, overview, _) = tree.answer([["list", "--json"], ["--help"]])
    presets_by_audit = {}
    for entry in json.loads(listing)["audits"]:
        presets_by_audit[entry["name"]] = entry["presets"]
    presets = [(audit, preset) for audit, names in presets_by_audit.items() for preset in names]
    selected = []
    for preset_id in presets:
        if not only or preset_id[0] in only or "/".join(preset_id) in only:
            selected.append(preset_id)
    if not selected:
        return {"list": listing}
    audits = sorted({audit for audit, _ in selected})
    helped = command_names(overview)
    shows = [["show", audit, "--json"] for audit in audits]
    plans = [["plan", audit, "--preset", preset, "--json"] for audit, preset in selected]
    runs = []
    for a, p in selected:
        runs.append(["run", a, "--preset", p, "scale=tiny", "--address", "none", "--mlflow", "off"])
    answers = iter(tree.answer([*shows, *plans, *runs, *([name, "--help"] for name in helped)]))
    inventory = {"list": listing, "help engram": overview}
    for audit in audits:
        code, out, err = next(answers)
        if code == 0:
            inventory[f"show {audit}"] = json.dumps(without_prices(json.loads(out)))
        else:
            inventory[f"show {audit}"] = f"{code} {err}"
    for audit, preset in selected:
        code, out, err = next(answers)
        name = f"{audit}/{preset}"
        if code:
            inventory[f"plan {name}"] = f"{code} {err}"
            continue
        plan = without_prices(json.loads(out))
        inventory[f"key of runs of {name}"] = " ".join(cell.pop("run") for cell in plan["cells"])
        inventory[f"plan {name}"] = json.dumps(plan, sort_keys=True)
    for audit, preset in selected:
        code, _, err = next(answers)
        if code == 0:
            inventory[f"run {audit} {preset}"] = str(code)
        else:
            inventory[f"run {audit} {preset}"] = f"{code} {err.splitlines()[-1:]}"
    for name in helped:
        _, out, _ = next(answers)
        inventory[f"help {name}"] = out
    return inventory | dict(stored_digests(tree.folder / "engram-store"))


def command_names(overview: str) -> list[str]:
    """The commands that `engram --help` lists."""
    names = []
    for line in overview.partition("--help")[2].splitlines()[1:]:  # the options come before the groups of commands
        if line.startswith("  "):
            names.append(line.split()[0])
    return sorted({name for name in names if name.isalpha()})


def stored_digests(store: Path) -> Iterator[tuple[str, str]]:
    """The key and the digest of the table of every job, and the digest of every figure."""
    digests: dict[str, str] = {}
    for folder in sorted(store.glob("runs/*")):
        if not (folder / "plan.json").is_file():  # a sweep's folder
            continue
        about = json.loads((folder / "run.json").read_text())
        cell = f"{about['audit']}/{about['preset']}"
        if about["setting"]:
            cell += f" {json.dumps(about['setting'], sort_keys=True)}"
        places: Counter[str] = Counter()
        for key, task in json.loads((folder / "plan.json").read_text())["jobs"]:
            places[task] += 1
            job = f"{cell} {task} {places[task]}"
            yield f"key {job}", key
            if key not in digests:
                digests[key] = digest_stored(store, key)
            yield f"table {job}", digests[key]
        for path in sorted(folder.glob("figures/*.svg")):
            yield f"figure {cell} {path.name}", hashlib.sha256(path.read_bytes()).hexdigest()


def digest_stored(store: Path, key: str) -> str:
    """The digest of the table that is stored under this key; a word if there is none."""
    path = store / "results" / key[:2] / f"{key}.arrow"
    if not path.is_file():
        return "absent"
    with pa.ipc.open_file(path) as reader:
        return digest_table(reader.read_all())


def digest_table(table: pa.Table) -> str:
    """A digest of the names, types and values of a table's columns; every NaN counts as equal."""
    schema = [(field.name, str(field.type)) for field in table.schema]
    return hashlib.sha256(repr((schema, table.to_pydict())).encode()).hexdigest()


def without_prices(document: Any) -> Any:
    """A command's JSON without times and prices."""
    if isinstance(document, Mapping):
        prices = {}
        for name, value in document.items():
            if name not in PRICES:
                prices[name] = without_prices(value)
        return prices
    if isinstance(document, list):
        return [without_prices(element) for element in document]
    return document


def compare(base: Mapping[str, str], now: Mapping[str, str]) -> dict[str, list[str]]:
    """The differences by kind: names with a word for the kind of difference."""
    differences = defaultdict(list)
    for name in sorted({*base, *now}):
        if base.get(name) != now.get(name):
            how = "gone" if name not in now else "new" if name not in base else "differs"
            differences[name.split()[0]].append(f"{name}: {how}")
    return dict(differences)


def describe(base: Mapping[str, str], differences: Mapping[str, Sequence[str]], limit: int | None) -> str:
    """The number of compared entries, and at most `limit` differing names of each kind, or all if `limit` is None."""
    counts = Counter(name.split()[0] for name in base)
    lines = [f"{', '.join(f'{count} of {kind}' for kind, count in sorted(counts.items()))} compared"]
    for kind, names in differences.items():
        lines += [
            "",
            f"{kind}: {len(names)} of {counts[kind]} differ",
            *(f"  {difference}" for difference in names[:limit]),
        ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--only", action="append", default=[], help="AUDIT or AUDIT/PRESET; may be repeated")
    parser.add_argument("--all", action="store_true", help="print every name that differs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frozen-") as name:
        folder = Path(name)
        archive = ["git", "-C", str(ROOT), "archive", "--format=tar", f"--output={folder / 'base.tar'}", options.base]
        subprocess.run(archive, check=True)
        (folder / "base").mkdir()
        subprocess.run(["tar", "-xf", str(folder / "base.tar"), "-C", str(folder / "base")], check=True)
        trees = [Tree(folder / "base", folder / "old"), Tree(ROOT, folder / "new")]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            base, now = pool.map(lambda tree: take_inventory(tree, options.only), trees)
    differences = compare(base, now)
    sys.stdout.write(describe(base, differences, None if options.all else SHOWN) + "\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
