"""Train one model with a user's program, which reads the training texts in {data}, and score texts with it.

train.jsonl contains the training texts, with the inserted secrets or documents, and ask.jsonl the texts to score, one
line {"row": 0, "text": "..."} each. The program returns the log-likelihood of every text to score in nats, in this
order, or the folder of a Hugging Face model, `model`, which is then read in the same way as a given model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.language_models.language_model import LanguageModel
from tasks.programs.config import Program
from tasks.programs.data_writer import ASK, TRAIN, write_texts
from tasks.programs.process import ProgramFailed
from tasks.programs.returned import Requested, score_result
from tasks.programs.training import TrainingRequest, perform_training


def train_on_texts(
    program: Program,
    seed: int,
    texts: Sequence[str],
    asked: Sequence[str],
    read_model: Callable[[LanguageModel], pa.Table],
    read_log_p: Callable[[NDArray[np.float64]], pa.Table] | None = None,
) -> pa.Table:
    """Train on these texts and return the table of the scores of the asked texts.

    `read_model` makes the table from a returned model, and `read_log_p` from the log-likelihoods (asked,);
    None if these do not suffice.

    Raises ProgramFailed if the program fails or breaks its contract.
    """
    rows = np.arange(len(texts))
    asked_rows = np.arange(len(asked))

    def write_data(folder: Path) -> None:
        write_texts(folder, TRAIN, rows.tolist(), texts)
        write_texts(folder, ASK, asked_rows.tolist(), asked)

    with perform_training(program, TrainingRequest(rows, asked_rows, seed, write_data)) as (result, out):
        if program.returns == "model":
            folder = out / "model" if result is None else result
            if not isinstance(folder, str | Path) or not Path(folder).is_dir():
                where = "wrote no folder {out}/model" if result is None else f"returned a {type(result).__name__}"
                raise ProgramFailed(
                    f"the program {where}; expected the folder of a Hugging Face model, as save_pretrained writes it"
                )
            try:
                return read_model(LanguageModel(f"folder:{folder}").pin({}))
            except ValueError as error:
                raise ProgramFailed(f"the model that the program returned: {error}") from error
        assert read_log_p is not None  # otherwise, the configuration refuses log-likelihoods
        requested = Requested(asked_rows, len(asked), None, np.zeros(len(asked), bool))
        return read_log_p(score_result(result, out, program.returns, requested).score)
