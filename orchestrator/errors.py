"""Errors outside of tasks, and the exit codes of the commands that they end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def short_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function for Python callers: the traceback of an EngramError shows this frame but none below it."""

    @wraps(function)
    def wrapper(*arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return function(*arguments, **keywords)
        except EngramError as error:
            raise error.with_traceback(None) from None
        except ModuleNotFoundError as error:
            raise missing_package(error) or error from None

    return wrapper


class EngramError(Exception):
    """An error shown to the user in one line. Exit code 1 unless a subclass sets another."""

    exit_code = 1


def missing_package(error: ModuleNotFoundError) -> EngramError | None:
    """The error that names the extra to install; None if no extra contains the missing module."""
    from tasks.contract.extras import (  # while this module is imported, `tasks` may be the user's
        describe_missing,
        extra_behind,
    )

    extra = extra_behind(error)
    if extra is None:
        return None
    return EngramError(describe_missing([extra]))


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
    """A result's bytes differ from those written. It has been set aside."""


class Unreadable(StoreError):
    """A result exists but cannot be read at present, so it may or may not be intact."""


class Held(EngramError):
    """Another living driver has this run."""


class ClusterError(EngramError):
    """The Ray cluster cannot be reached or used."""
