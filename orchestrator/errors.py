"""Errors outside of tasks, each with the exit code of the command that it ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def short_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """The function for callers in Python: its EngramErrors come with this frame of ours, and not those below it."""

    @wraps(function)
    def wrapper(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except EngramError as error:
            raise error.with_traceback(None) from None
        except ModuleNotFoundError as error:
            raise missing_package(error) or error from None

    return wrapper


class EngramError(Exception):
    """An error shown to the user in one line. Exit code 1 unless a subclass sets another."""

    exit_code = 1


def missing_package(error: ModuleNotFoundError) -> EngramError | None:
    """The error that names the extra to install; None where no extra installs the module that was not found."""
    from tasks.contract.extras import (  # where this module is imported, `tasks` may be the user's
        describe_missing,
        extra_behind,
    )

    extra = extra_behind(error)
    return None if extra is None else EngramError(describe_missing([extra]))


class SpecError(EngramError):
    """Bad usage or configuration: the value, the field, and the allowed values."""

    exit_code = 2


class StoreError(EngramError):
    """The store cannot be opened, or a file in it cannot be read."""


class Unwritable(StoreError):
    """The store refuses writes (full, read-only, no permission): a pause, not a failure of any job."""


class Absent(StoreError):
    """No result under this key."""


class Damaged(StoreError):
    """A result's bytes are not as they were written. It has been set aside."""


class Unreadable(StoreError):
    """A result exists but cannot be read for now, so whether it is sound is unknown."""


class Held(EngramError):
    """Another living driver has this run."""


class ClusterError(EngramError):
    """The Ray cluster cannot be reached or used."""
