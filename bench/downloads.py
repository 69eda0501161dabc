"""How much an install from a lock downloads, written into the lock's first line: `python -m bench.downloads LOCK...`.

The first line is what `make` says before it installs. Counted are the files that pip and uv choose for this Python on
this machine, by the sizes that the package index states.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

LINE = "# To download: {size:.1f} GB, which takes about twice as much on the disk ({packages} packages; {place})\n"


def main(locks: list[str]) -> None:
    for lock in map(Path, locks):
        sizes = [chosen(package) for package in pinned(lock) if applies(package)]
        line = LINE.format(
            size=sum(sizes) / 1e9,
            packages=len(sizes),
            place=f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()}, {platform.machine()}",
        )
        kept = [each for each in lock.read_text().splitlines(keepends=True) if not each.startswith(LINE[:14])]
        lock.write_text(line + "".join(kept))
        print(f"{lock}: {line[2:]}", end="")


def pinned(lock: Path) -> list[dict[str, Any]]:
    """The packages of a lock, each with its files and their sizes (PEP 751)."""
    command = ["uv", "pip", "compile", "--quiet", "--no-deps", "--universal", "--format", "pylock.toml", str(lock)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return list(tomllib.loads(said)["packages"])


def applies(package: dict[str, Any]) -> bool:
    return "marker" not in package or Marker(package["marker"]).evaluate()


def chosen(package: dict[str, Any]) -> int:
    """The bytes of the file that is installed here: the wheel whose tags come first, else the source."""
    tags = {tag: place for place, tag in enumerate(sys_tags())}
    ranked = [
        (min(tags[tag] for tag in fits), int(wheel["size"]))
        for wheel in package.get("wheels", ())
        if (fits := parse_wheel_filename(wheel["url"].rpartition("/")[2])[3] & tags.keys())
    ]
    return min(ranked)[1] if ranked else int(package["sdist"]["size"])


if __name__ == "__main__":
    main(sys.argv[1:])
