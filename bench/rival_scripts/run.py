"""python run.py MODULE FOLDER...: what `judge` of the module says of each case and in how many seconds, as JSON."""

import contextlib
import importlib
import json
import sys
import time
from pathlib import Path

judge = importlib.import_module(sys.argv[1]).judge
for folder in map(Path, sys.argv[2:]):
    began = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        said = judge(folder)
    print(json.dumps({"case": folder.name, "seconds": time.process_time() - began, **said}), flush=True)
