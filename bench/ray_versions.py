"""Check that Engram works with the Ray versions at both ends of the range declared in pyproject.toml.

    python -m bench.ray_versions [VERSION ...] [--out bench/results/ray_versions.md]

pip installs the wheel of each version into a separate folder, without dependencies, and this folder takes precedence
over the packages in this environment. Then an audit runs on a cluster on this machine. If no versions are given, they
are the lowest release in the range, which `uv --resolution lowest-direct` resolves, and the newest one that the package
index offers. A version that cannot be downloaded is reported as not tried. The exit code is 1 if a run fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from measurement.files import write_whole

ROOT = Path(__file__).resolve().parents[1]
BOUNDS = re.compile(r'"ray\[default,tune\]>=([\d.]+),<([\d.]+)"')
AUDIT = ("run", "unique_feature", "--preset", "smoke", "--address", "local", "--mlflow", "off", "--no-report")
SECONDS = 600.0  # time limit of a run
COMMAND = "from orchestrator.cli import main; main()"


def read_bounds() -> tuple[str, str]:
    """Return the lowest version that pyproject.toml allows, and the first one that it does not allow."""
    match = BOUNDS.search((ROOT / "pyproject.toml").read_text())
    assert match is not None
    return match[1], match[2]


def versions_at_ends() -> list[str]:
    """Return the lowest and newest releases in the declared range that the package index offers.

    Returns an empty list if there is no index.
    """
    lowest, following = read_bounds()
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "ray"], capture_output=True, text=True, check=False
    )
    release_list = re.search(r"Available versions: (.*)", answer.stdout)
    if release_list is None:
        return []
    allowed = []
    for version in release_list[1].split(", "):
        if _numbers(lowest) <= _numbers(version) < _numbers(following):
            allowed.append(version)
    if len(allowed) > 1:
        return [allowed[-1], allowed[0]]
    return allowed


def try_version(version: str, folder: Path) -> str:
    """Run an audit with this Ray version. Returns `done`, `not tried: ...` or `failed: ...`."""
    packages = folder / version
    installation = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"),
            *("--target", str(packages), f"ray=={version}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if installation.returncode:
        return f"not tried: {_last_line(installation.stderr)}"
    path = os.pathsep.join([str(packages), str(ROOT), os.environ.get("PYTHONPATH", "")])
    try:
        run = subprocess.run(
            [sys.executable, "-c", COMMAND, *AUDIT, "--store", str(folder / f"store-{version}")],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"failed: no end within {SECONDS:.0f} s"
    if run.returncode == 0:
        return "done"
    return f"failed: {_last_line(run.stderr)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    versions = options.versions or versions_at_ends()
    if not versions:
        print("not tried: no package index answers")
        return 0
    with tempfile.TemporaryDirectory(prefix="engram-ray-") as folder:
        outcomes = {version: try_version(version, Path(folder)) for version in versions}
    lowest, following = read_bounds()
    lines = [
        f"Ray >={lowest},<{following}, Python {sys.version.split()[0]}, {datetime.now(UTC):%Y-%m-%d}: "
        f"`engram {' '.join(AUDIT)}` by `python -m bench.ray_versions`.",
        "",
        "| Ray | outcome |",
        "|---|---|",
        *(f"| {version} | {outcome} |" for version, outcome in outcomes.items()),
    ]
    print("\n".join(lines))
    if options.out is not None:
        write_whole("\n".join(lines) + "\n", options.out)
    return int(any(outcome.startswith("failed") for outcome in outcomes.values()))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _last_line(text: str) -> str:
    return next(reversed([line for line in text.splitlines() if line.strip()]), "")[:300]


if __name__ == "__main__":
    sys.exit(main())
