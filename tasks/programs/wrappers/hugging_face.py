"""A callback for the Hugging Face Trainer that saves the training in `job.state` and logs its metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.programs.function import TrainingJob

LAST_FILE = "trainer_state.json"  # of a checkpoint; without it, the checkpoint is incomplete


def hugging_face_callback(job: TrainingJob) -> Any:
    """Return a callback for `Trainer(callbacks=[callback])`, which sets its `output_dir` to `job.state`.

    The Trainer saves a checkpoint after each epoch, whatever its `save_strategy`. An interrupted job continues with
    `trainer.train(resume_from_checkpoint=callback.resume_path)`, which is None at first.
    """
    from transformers import TrainerCallback

    class EngramCallback(TrainerCallback):  # type: ignore[misc]
        resume_path = _find_checkpoint(job.state)

        def on_init_end(self, args: Any, *_: Any, **__: Any) -> None:
            args.output_dir = str(job.state)
            args.save_total_limit = args.save_total_limit or 1

        def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
            control.should_save = True

        def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, Any], **_: Any) -> None:
            metrics = {name: value for name, value in logs.items() if isinstance(value, int | float)}
            if state.is_world_process_zero:
                job.log(state.global_step, **metrics)

    return EngramCallback()


def _find_checkpoint(state: Path) -> str | None:
    """Return the folder of the last complete checkpoint, or None."""
    complete = {}
    for folder in state.glob("checkpoint-*"):
        number = folder.name.rpartition("-")[2]
        if number.isdigit() and (folder / LAST_FILE).exists():
            complete[int(number)] = str(folder)
    return complete[max(complete)] if complete else None
