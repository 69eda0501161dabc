"""Run one study: `python -m studies NAME [options]`."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    name = sys.argv.pop(1)
    runpy.run_module(f"studies.{name}", run_name="__main__", alter_sys=True)
