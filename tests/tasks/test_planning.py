"""Planning imports no library that computes."""

from __future__ import annotations

import subprocess
import sys

PLANNING = """
import sys
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.places import EMBEDDED
from tasks.linear_memorization import gradient_flow, private
from tasks.language_models import fine_tuning, fine_tuning_config, language_model
from tasks.self_supervised import linear_probe, pretraining
from tasks.training import classifier, density, density_config, mixed
from tasks.training.chains import chain
from tests.tasks.self_supervised import pictures

for name in EMBEDDED:
    pin(Dataset(name))
classifier.batch_key(classifier.Training(Dataset("digits", "d")))
density.batch_key(density_config.DensityTraining(Dataset("digits", "d")))
tuned = fine_tuning_config.FineTuning(Dataset("facts"), language_model.LanguageModel("tiny-t5"))
chain(fine_tuning.fine_tune, tuned, 5, part=fine_tuning_config.up_to)
chain(pretraining.pretrain, pictures.config(), 2)
gradient_flow.Flow()
heavy = ("torch", "torchvision", "scipy", "sklearn", "PIL", "opacus", "transformers", "peft", "tokenizers")
print([name for name in (*heavy, "timm", "lightly") if name in sys.modules])
"""


def test_planning_imports_no_computing_library() -> None:
    done = subprocess.run([sys.executable, "-c", PLANNING], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
