"""The names that tests/tasks/test_other_processors.py takes from here. The tests are in tests/tasks/audits/."""

from tests.tasks.audits.forgetting.computed_tables import *  # noqa: F403
