"""A Lightning callback that saves the training in `job.state` after each epoch and logs its metrics."""

from __future__ import annotations

import os
from typing import Any

from tasks.programs.function import TrainingJob

CHECKPOINT = "last.ckpt"


def lightning_callback(job: TrainingJob) -> Any:
    """Return a callback for `Trainer(callbacks=[callback])`.

    An interrupted job continues with `trainer.fit(..., ckpt_path=callback.resume_path)`, which is None at first.
    """
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback
    from torch import Tensor

    class EngramCallback(Callback):  # type: ignore[misc]
        resume_path = str(job.state / CHECKPOINT) if (job.state / CHECKPOINT).exists() else None

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step % trainer.log_every_n_steps == 0:
                self._log(trainer)

        def on_validation_epoch_end(self, trainer: Any, *_: Any) -> None:
            if not trainer.sanity_checking:
                self._log(trainer)

        def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
            self._log(trainer)
            unfinished = job.state / "unfinished.ckpt"
            trainer.save_checkpoint(unfinished)
            if trainer.is_global_zero:
                os.replace(unfinished, job.state / CHECKPOINT)

        def _log(self, trainer: Any) -> None:
            metrics = {}
            for name, value in trainer.callback_metrics.items():
                if isinstance(value, Tensor) and value.numel() == 1:
                    metrics[name] = float(value)
            if metrics and trainer.is_global_zero:
                job.log(trainer.global_step, **metrics)

    return EngramCallback()
