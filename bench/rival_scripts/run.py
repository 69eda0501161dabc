"""python run.py MODULE FOLDER...: print the result of the module's `judge` and its seconds for each case, as JSON."""

import contextlib
import importlib
import json
import sys
import time
from pathlib import Path

judge = importlib.import_module(sys.argv[1]).judge
for folder in map(Path, sys.argv[2:]):
    start = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        result = judge(folder)
    print(json.dumps({"case": folder.name, "seconds": time.process_time() - start, **result}), flush=True)
