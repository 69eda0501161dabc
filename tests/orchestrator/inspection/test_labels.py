"""A sweep's cells are told apart by as few fields as it takes."""

from __future__ import annotations

from orchestrator.spec.resolve import distinguishing_fields, label

TABLE = [
    {"data": data, "probe": probe, "network": network, "batch": batch}
    for data, probe, network, batch in (
        ("mnist", "cifar10", "mlp1", 128),
        ("fashion-mnist", "cifar10", "mlp1", 128),
        ("mnist", "cifar10", "cnn1", 128),
        ("fashion-mnist", "cifar10", "cnn1", 128),
        ("cifar10", "mnist", "cnn2", 512),
        ("cifar10", "mnist", "densenet100", 32),
    )
]


def test_of_fields_that_vary_together_the_first_is_enough() -> None:
    assert ["data", "network"] == distinguishing_fields(TABLE)


def test_every_field_of_a_grid_is_needed() -> None:
    assert ["a", "b"] == distinguishing_fields([{"a": a, "b": b} for a in (1, 2) for b in ([1, 2], None)])


def test_a_field_that_is_everywhere_the_same_tells_nothing() -> None:
    assert ["b"] == distinguishing_fields([{"a": {"x": 1}, "b": 1}, {"a": {"x": 1}, "b": True}])
    assert [] == distinguishing_fields([{"a": 1}, {"a": 1}])
    assert [] == distinguishing_fields([])


def test_a_cell_is_named_as_a_command_line_would_ask_for_it() -> None:
    setting = {"data": "mnist", "dropout": True, "epochs": [1, 2], "burnt": None, "feature": {"text": "A"}}
    assert "data=mnist, dropout=true, epochs=[1,2], burnt=null" == label(setting, [*setting][:4])
    assert 'feature={"text": "A"}' == label(setting, ["feature", "absent"])
