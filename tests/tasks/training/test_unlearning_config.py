"""Settings of unlearning methods that cannot be are refused in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.training.unlearning_config import (
    UNLEARNING,
    Distillation,
    FineTuning,
    GradientAscent,
    RandomLabels,
    UnlearningSettings,
)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: FineTuning(epochs=0), "epochs is 0; it must be at least 1"),
        (lambda: GradientAscent(learning_rate=0.0), "learning_rate is 0.0; it must be a finite number above 0"),
        (lambda: RandomLabels(epochs=0), "epochs is 0; it must be at least 1"),
        (lambda: Distillation(forgetting=11), "forgetting is 11; it must be at most epochs, which is 10"),
        (lambda: Distillation(cross_entropy=0.0, divergence=0.0), "cross_entropy and divergence are both 0; one of"),
        (lambda: Distillation(falls=(8, 5)), r"falls is \(8, 5\); it must be epochs from 1 on, ascending"),
        (lambda: UnlearningSettings().method_named("retraining"), "retraining starts from no model"),
    ],
)
def test_settings_that_cannot_be_are_refused(made: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match="^" + says):
        made()


def test_every_method_but_retraining_has_settings() -> None:
    settings = UnlearningSettings()
    expected = [settings.fine_tuning, settings.gradient_ascent, settings.random_labels, settings.distillation]
    assert expected == [settings.method_named(name) for name in UNLEARNING if name != "retraining"]
