import pytest

from tasks.worker.compute_context import ComputeContext, current_context, here, note, use_context


def test_defaults_apply_outside_of_calls() -> None:
    assert current_context().way == "auto"
    assert current_context().members is None
    assert current_context().sharers == 1


def test_settings_of_a_call_end_with_it() -> None:
    with use_context(ComputeContext(way="stack")):
        with use_context(ComputeContext(way="loop")):
            assert current_context().way == "loop"
        assert current_context().way == "stack"
    assert current_context().way == "auto"


def test_notes_describe_the_last_result() -> None:
    with use_context(ComputeContext()) as notes:
        note(way="loop", stack=1)
        assert notes == {"way": "loop", "stack": 1}
        note(way="stack")
        assert notes == {"way": "stack"}


def test_note_outside_a_call_is_dropped() -> None:
    note(way="loop")
    with use_context(ComputeContext()) as notes:
        assert notes == {}


def test_choice_is_made_once_per_name() -> None:
    settle = here()
    assert settle("x", lambda: {"way": "a"}) == {"way": "a"}
    assert settle("x", lambda: {"way": "b"}) == {"way": "a"}
    assert settle("y", lambda: {"way": "c"}) == {"way": "c"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"way": "fast"}, "way is 'fast'; it must be one of auto, loop, stack, graph"),
        ({"members": 0}, "members is 0; it must be at least 1"),
        ({"sharers": 0}, "sharers is 0; it must be at least 1"),
    ],
)
def test_setting_out_of_range_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ComputeContext(**settings)  # type: ignore[arg-type]
