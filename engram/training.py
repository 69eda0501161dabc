"""Names for a user's own training programs and functions, described in docs/own_training.md.

    from engram.training import TrainingJob

    job = TrainingJob.from_environment(default_rows=len(records))
    ...  # train on records[job.rows] with job.seed
    job.save_scores(losses[job.ask])

Importing this module imports neither torch nor Ray, so a program starts quickly.
"""

from engram import own_packages as own_packages  # before the next lines, which must not import the user's modules

from tasks.programs.function import TrainingJob  # isort: skip
from tasks.programs.wrappers.hugging_face import hugging_face_callback
from tasks.programs.wrappers.lightning import lightning_callback
from tasks.programs.wrappers.scikit_learn import sklearn_training

__all__ = ["TrainingJob", "hugging_face_callback", "lightning_callback", "sklearn_training"]
