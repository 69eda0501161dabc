"""The paper's tables and figures as configs, and a few settings of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.audits.relational.config import Relational
from tasks.audits.relational.linear import Linear
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.training.recipe import Privacy

TABLE_2_SQUAD = Relational()
DROP = replace(TABLE_2_SQUAD, data=Dataset("drop"), numeric=False, epochs=30)
# The predictions of NumNet+, which is trained elsewhere: a folder of this name, here or in ENGRAM_DATA.
TABLE_2_DROP = replace(DROP, given=Predictions("numnet"))
QUICKSTART = Relational(
    data=Dataset("facts"), model=LanguageModel("tiny-t5"), examples=600, held_out=400, replicates=2, epochs=40,
    every=10, link=10, batch=16, length=128, answer_length=8,
)  # fmt: skip
SMOKE = replace(
    QUICKSTART, model=LanguageModel("tiny-t5#16x1"), examples=60, held_out=60, epochs=2, every=1, link=1,
    resamples=200,
)  # fmt: skip
LADDER = replace(QUICKSTART, replicates=1, epochs=20, link=0)
EPSILONS = (100.0, 10.0, 1.0)
LINEAR = Relational(measures=("linear",))
FIGURE_1 = replace(LINEAR, linear=Linear(sizes=((1000, 1000),)))
FIGURE_5 = replace(LINEAR, linear=Linear(sizes=((300, 2000), (1000, 1000))))

PRESETS: Mapping[str, Relational | tuple[Relational, ...]] = {
    "quickstart": QUICKSTART,
    "null": replace(QUICKSTART, relation="redrawn"),
    "stated": replace(QUICKSTART, data=Dataset("facts-stated")),
    "smoke": SMOKE,
    "table1": (replace(DROP, every=0), replace(TABLE_2_SQUAD, every=0)),
    "table2_squad": TABLE_2_SQUAD,
    "table2_drop": TABLE_2_DROP,
    "figure1": FIGURE_1,
    "figure2": DROP,
    "figure3": replace(DROP, epochs=100),
    "figure4": replace(DROP, model=LanguageModel("hub:t5-base"), epochs=40),
    "figure5": FIGURE_5,
    "linear-null": replace(LINEAR, linear=Linear(sizes=((1000, 300),))),
    "private": (
        replace(LINEAR, measures=("private",)),
        LADDER,
        *(replace(LADDER, privacy=Privacy(epsilon)) for epsilon in EPSILONS),
    ),
}

# What each repeats: a part of the paper, or a setting of ours.
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: 600 embedded facts, a tiny T5",
    "null": "ours: quickstart with the answer of another question in every epoch",
    "stated": "ours: quickstart on facts whose answers stand in their contexts",
    "smoke": "ours: 60 facts, 2 epochs",
    "table1": "Table 1: examples of answers, DROP and SQuAD",
    "table2_squad": "Table 2: T5-small on SQuAD",
    "table2_drop": "Table 2: NumNet+ on DROP, by its predictions",
    "figure1": "Figure 1: the linear model",
    "figure2": "Figure 2: T5-small on DROP over 30 epochs",
    "figure3": "Figure 3: the same over 100 epochs",
    "figure4": "Figure 4: T5-base on DROP",
    "figure5": "Figure 5: the linear model of two sizes",
    "linear-null": "ours: a linear model with more samples than features, which memorises nothing",
    "private": "ours: the linear and the sequence model at several epsilons",
}
