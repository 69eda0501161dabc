"""Write the download size of an installation into the first line of its lock file: `python -m bench.downloads LOCK...`.

`make` prints this line before an installation. The size is the total of the files that pip and uv choose for this
Python on this machine, as stated by the package index.
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
        sizes = [download_size(package) for package in read_packages(lock) if is_needed(package)]
        size_line = LINE.format(
            size=sum(sizes) / 1e9,
            packages=len(sizes),
            place=f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()}, {platform.machine()}",
        )
        other_lines = []
        for line in lock.read_text().splitlines(keepends=True):
            if not line.startswith(LINE[:14]):
                other_lines.append(line)
        lock.write_text(size_line + "".join(other_lines))
        print(f"{lock}: {size_line[2:]}", end="")


def read_packages(lock: Path) -> list[dict[str, Any]]:
    """Return the packages in a lock file, including file sizes (PEP 751)."""
    command = ["uv", "pip", "compile", "--quiet", "--no-deps", "--universal", "--format", "pylock.toml", str(lock)]
    lock_text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return list(tomllib.loads(lock_text)["packages"])


def is_needed(package: dict[str, Any]) -> bool:
    return "marker" not in package or Marker(package["marker"]).evaluate()


def download_size(package: dict[str, Any]) -> int:
    """Return the bytes to download: the wheel with the best tag for this platform, or else the source archive."""
    tags = {tag: position for position, tag in enumerate(sys_tags())}
    ranked = []
    for wheel in package.get("wheels", ()):
        wheel_tags = parse_wheel_filename(wheel["url"].rpartition("/")[2])[3] & tags.keys()
        if wheel_tags:
            ranked.append((min(tags[tag] for tag in wheel_tags), int(wheel["size"])))
    if ranked:
        return min(ranked)[1]
    return int(package["sdist"]["size"])


if __name__ == "__main__":
    main(sys.argv[1:])
