from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tasks.audits.unique_feature import population
from tasks.audits.unique_feature.evaluation import burn_family, probe_images
from tasks.audits.unique_feature.given_models import Given
from tasks.contract.grouping import group_rows
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Family, Glyph, Words, burn
from tasks.datasets.images import Pixels
from tasks.numerics.ranks import rank_p_value
from tests.support.calibration import DRAWS, assert_rate
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.made_up import configure


def test_rank_p_value_counts_scores_as_high() -> None:
    assert rank_p_value(np.array([3.0, 1.0, 2.0, 0.0])) == 0.25
    assert rank_p_value(np.array([0.0, 1.0, 2.0, 3.0])) == 1.0
    # Ties count against the feature.
    assert rank_p_value(np.array([1.0, 1.0, 2.0, 0.0])) == 0.75


def test_population_is_read_back_from_its_setting() -> None:
    family = population.Population(201)
    glyphs = population.Population(4_457_400, are_all_glyphs=True)
    assert family.setting == {"others": 200}
    assert glyphs.setting == {"glyphs": 4_457_400}
    assert population.Population.from_setting(family.setting) == family
    assert population.Population.from_setting(glyphs.setting) == glyphs
    assert family.last_called == 10
    assert glyphs.last_called == 222_870
    assert population.Population(19).last_called == 0
    assert family.fewest_called(10) == 1
    assert family.fewest_called(11) == 2
    assert population.Population(20).last_called == 1
    assert population.Population(20).fewest_called(1) == 1
    assert family.describe() == "201 features of its kind"
    assert glyphs.describe() == "all 4,457,400 glyphs"


def test_glyphs_are_counted_and_others_have_a_family() -> None:
    letter = configure(data=Dataset("digits"), probe=Dataset("photos"))
    words = with_settings(letter, feature=Words("JO"), family=Family(count=30))
    letters = with_settings(letter, family=Family("letters", count=25))
    populations = []
    for each in (letter, words, letters):
        populations.append(population.population_by_slopes(each))
    assert [population.Population(4_457_400, True), population.Population(31), population.Population(26)] == populations
    assert population.subset_count(5, 2) == 10
    assert population.set_name(0) == "feature"
    assert population.set_name(7) == "family-007"
    chosen_seed = population.relatives(with_settings(letter, drawn=False), Glyph(), 3).seed
    drawn_seed = population.relatives(with_settings(letter, drawn=True), Glyph(), 3).seed
    assert chosen_seed == population.relatives(letter, Glyph()).seed != drawn_seed
    config = with_settings(letter, probe=Dataset("digits"), probes=7)
    expected_relatives = population.Relatives(
        Dataset("digits"), letter.probe_split, 7, Glyph(), AskedFamily(), chosen_seed
    )
    assert expected_relatives == population.relatives(config, Glyph())
    clean = probe_images(Dataset("digits"), letter.probe_split, (28, 28, 1), 7)
    assert (clean == population.clean_images(expected_relatives, (28, 28, 1))).all()
    first = with_settings(letter, drawn=True)
    assert population.relatives(first, Glyph()) == population.relatives(first, Glyph(), 0)
    nonces = {"secret": "s" * 16, "nonce": "n" * 16, "commitment": "ab" * 32}
    bound = replace(letter, question=Given(shape=(28, 28, 1), **nonces))
    assert bound.derive_seed("family") == population.relatives(bound, Glyph(), 3).seed


CLEAN = np.random.default_rng(1).integers(0, 256, (3, 28, 28, 1), dtype=np.uint8)


def reads_ink(_name: str, images: Pixels) -> NDArray[np.float64]:
    logits = images.reshape(len(images), -1).sum(axis=1) / 50_000.0
    return np.stack([logits, -logits], axis=1) - np.logaddexp(logits, -logits)[:, None]


def test_family_members_have_rows_of_model_outputs() -> None:
    asked_relatives = population.Relatives(
        Dataset("digits"), "test", 3, Glyph(), AskedFamily(count=2, look_alikes=3), 5
    )
    image_sets = [images for _, images in burn_family(CLEAN, Glyph(), asked_relatives.family, 5)]
    uncarried = Glyph(text="B")
    (family_table_rows,) = population.family_rows(asked_relatives, CLEAN, [reads_ink], uncarried)
    before = reads_ink("", CLEAN)
    expected = []
    for member, images in zip((0, 1, 2, population.UNCARRIED), [*image_sets, burn(CLEAN, uncarried)], strict=True):
        after = reads_ink("", images)
        d = float((np.exp(before) * (before - after)).sum(axis=1).mean())
        means = {"log_p": after.mean(axis=0), "log_odds": (after - after[:, ::-1]).mean(axis=0)}
        means_by_name = {name: pytest.approx(mean) for name, mean in means.items()}
        expected.append({"member": member, "d": pytest.approx(d)} | means_by_name)
    assert expected == family_table_rows
    assert expected[:3] == population.family_rows(asked_relatives, CLEAN, [reads_ink])[0]
    names = []
    for part, number, name, _ in population.look_alike_image_sets(CLEAN, asked_relatives):
        names.append((part, number, name))
    assert [(part, position, f"look-alike-{part}-{position:03d}") for part in (1, 2) for position in (1, 2, 3)] == names
    without_look_alikes = replace(asked_relatives, family=Family(count=2))
    assert [*population.look_alike_image_sets(CLEAN, without_look_alikes)] == []


def family_table(model: str, members: list[int], canary: int = 4) -> pa.Table:
    """A FAMILY table in which member m has log P (-m - 1, -2) by the canary model, and half of that by another
    model.
    """
    factor = 1.0 if model == "canary" else 0.5
    rows = []
    for member in members:
        rows.append(
            {"canary": canary, "label": 0, "seed": 9, "model": model, "member": member, "d": float(member)}
            | {"log_p": [factor * (-member - 1.0), -2.0], "log_odds": [-float(member), 1.0]}
        )
    return pa.Table.from_pylist(rows, population.FAMILY)


def test_models_are_read_back_with_the_feature_first() -> None:
    uncarried = population.UNCARRIED
    both_models = pa.concat_tables([family_table("twin", [1, 0, 2]), family_table("canary", [2, 1, 0])])
    (pair,) = population.family_pairs([both_models, family_table("canary", [0, 1])])
    assert pair.training == (4, 9)
    assert pair.label == 0
    assert pair.unseen is None
    assert pair.canary.d.tolist() == [0.0, 1.0, 2.0]
    assert pair.difference.tolist() == [-0.5, -1.0, -1.5]
    nulls = pa.concat_tables([family_table(model, [1, 0, 2, uncarried]) for model in ("twin", "canary")])
    (pair,) = population.family_pairs([nulls])
    assert pair.unseen is not None
    # the uncarried feature first, then the others without the carried feature
    assert pair.unseen.tolist() == [0.0, -1.0, -1.5]
    for full_model, partial_model in (("twin", "canary"), ("canary", "twin")):
        one_sided = pa.concat_tables([family_table(full_model, [0, 1]), family_table(partial_model, [0, uncarried])])
        (pair_without_null,) = population.family_pairs([one_sided])
        assert pair_without_null.unseen is None
    # A member that looks like the uncarried feature is left out of its comparison.
    member_rows = family_table("canary", [0, 1, 2, uncarried]).to_pylist()
    member_rows[1]["log_p"] = member_rows[3]["log_p"]
    (model,) = population.model_families(pa.Table.from_pylist(member_rows, population.FAMILY))
    assert model.null is not None
    assert model.null.d.tolist() == [float(uncarried), 2.0]
    assert (
        len([*population.model_families(pa.concat_tables([family_table("canary", [0], canary) for canary in (4, 5)]))])
        == 2
    )


def read_by_rows(table: pa.Table) -> list[tuple[dict[str, object], list[NDArray[np.float64]]]]:
    """The models of a FAMILY table and their arrays, followed by those with the uncarried feature, row by row."""
    families = []
    for about, rows in group_rows(table.to_pylist(), "canary", "label", "seed", "model").items():
        rows.sort(key=lambda row: row["member"])
        uncarried = [row for row in rows if row["member"] == population.UNCARRIED]
        carried = [row for row in rows if row["member"] != population.UNCARRIED]
        sets = [carried]
        if uncarried:
            sets.append([*uncarried, *(row for row in carried[1:] if row["log_p"] != uncarried[0]["log_p"])])
        arrays = [np.array([row[name] for row in rows]) for rows in sets for name in ("d", "log_p", "log_odds")]
        families.append((dict(zip(("canary", "label", "seed", "model"), about, strict=True)), arrays))
    return families


@pytest.mark.parametrize("seed", range(4))
def test_columns_give_the_arrays_of_rows_to_the_bit(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = []
    for canary in (7, None):
        for model in ("twin", "canary"):
            for member in range(population.UNCARRIED if seed % 2 else 0, 12):
                log_p = np.round(generator.normal(size=3), 0 if seed < 2 else 9)  # rounded values are often equal
                row = {"canary": canary, "label": canary and 1, "seed": 9, "model": model, "member": member}
                row |= {"d": generator.random(), "log_p": log_p.tolist(), "log_odds": (2 * log_p).tolist()}
                rows.append(row)
    shuffled = [rows[index] for index in generator.permutation(len(rows))]
    parts = [pa.Table.from_pylist(shuffled[start : start + 20], population.FAMILY) for start in range(0, len(rows), 20)]
    table = pa.concat_tables(parts).slice(1)
    families = list(population.model_families(table))
    expected = read_by_rows(table)
    assert [family.about for family in families] == [about for about, _ in expected]
    for family, (_, arrays) in zip(families, expected, strict=True):
        sets = [family] if family.null is None else [family, family.null]
        read = [array for part in sets for array in (part.d, part.log_p, part.log_odds)]
        assert [(array.shape, array.tobytes()) for array in read] == [
            (array.shape, array.tobytes()) for array in arrays
        ]


def test_different_numbers_of_classes_are_refused() -> None:
    rows = family_table("canary", [0, 1]).to_pylist()
    rows[1]["log_p"] = [-1.0, -1.0, -1.0, -1.0]
    with pytest.raises(ValueError, match="different numbers of classes"):
        list(population.model_families(pa.Table.from_pylist(rows, population.FAMILY)))


def test_pushes_are_in_deviations_of_the_other_members() -> None:
    other_members = np.array([[-40.0, 0.0, 5.0], [-38.0, 20.0, 5.0]])  # means -39, 10, 5; spreads 1, 10, 0
    odds = np.array([[-37.0, 5.0, 9.0], [-39.0, 30.0, 5.0]])
    assert population.push_scores(odds, other_members).tolist() == [[2.0, -0.5, 0.0], [0.0, 2.0, 0.0]]


def test_scores_are_standardised_and_averaged_over_models() -> None:
    first = np.array([[3.0, 0.0], [1.0, 0.0], [1.0, 0.0], [3.0, 0.0]])  # class 0: +-1 about 2; class 1: unmoved
    second = np.array([[0.0, 8.0], [0.0, 4.0], [0.0, 4.0], [0.0, 0.0]])
    scores = population.label_directed_scores(np.stack([first, second]), 0)
    assert scores.tolist() == [0.5, -0.5, -0.5, 0.5]
    spread = np.std([8, 4, 4, 0])
    assert population.label_directed_scores(np.stack([first, second]), 1).tolist() == pytest.approx(
        [2 / spread, 0, 0, -2 / spread]
    )
    assert population.favoured_label(np.stack([first, second]), None) == 1
    assert population.favoured_label(np.stack([first, second]), 0) == 0


def test_unknown_label_uses_each_members_highest_rank() -> None:
    scores = np.array([[0.1, -1.0], [5.0, -9.0], [4.0, -8.0], [-3.0, -1.0], [0.0, -1.0]])
    # Number of members below, by class: (2, 2), (4, 0), (3, 1), (0, 2), (1, 2); equal ranks are ordered by score.
    standing, classes = population.highest_standing(scores)
    assert standing.tolist() == [1.0, 3.0, 2.0, 0.0, 0.0]
    assert classes.tolist() == [0, 0, 0, 1, 1]
    # Three members have two below and the same score there, one of the three in the other class.
    tied = np.array([[-2.0, -1.0], [5.0, -9.0], [4.0, -8.0], [-3.0, -1.0], [-4.0, -1.0]])
    assert population.highest_standing(tied)[0].tolist() == [0.0, 2.0, 1.0, 0.0, 0.0]


def test_differences_of_pairs_are_standardised_individually() -> None:
    scores = population.mean_standardised_scores([np.array([1.0, 3.0]), np.array([0.0, 40.0]), np.array([2.0, 2.0])])
    assert pytest.approx(scores.tolist()) == [-2 / 3, 2 / 3]


def test_nearly_certain_label_hides_no_push() -> None:
    rng = np.random.default_rng(7)
    odds = rng.normal(6, 1, 200)  # of class 1: its log P is at most 0, that of class 0 has a long tail
    odds[0] = 9
    log_p = -np.logaddexp(0, np.stack([odds, -odds], axis=1))[None]
    assert rank_p_value(population.label_directed_scores(log_p, 1)) == 1 / 200
    assert population.standardise(log_p)[0].max(axis=1)[0] < 1.0
    assert rank_p_value(population.label_directed_scores(log_p)) <= 2 / 200
    assert population.favoured_label(log_p) == 1


@pytest.mark.parametrize("label", [None, 2])
def test_unseen_feature_is_called_at_the_nominal_rate(label: int | None) -> None:
    # Models differ, members share a common part of all models, and the evaluated member is like any other: 2 ranks of
    # 40.
    rng = np.random.default_rng(4)
    shared = rng.normal(0, 1, (DRAWS, 1, 40, 5))
    log_p_of_draws = shared + rng.normal(0, 0.5, (DRAWS, 2, 40, 5))
    p_values = np.array([rank_p_value(population.label_directed_scores(log_p, label)) for log_p in log_p_of_draws])
    assert_rate(0.05, int((p_values <= 0.05).sum()))
    assert_rate(0.5, int((p_values <= 0.5).sum()))


def test_pair_difference_isolates_the_canarys_effect() -> None:
    rng = np.random.default_rng(6)
    control = rng.normal(0, 5, (30, 3))
    canary = control + rng.normal(0, 0.1, (30, 3))
    canary[0, 2] += 1
    assert pytest.approx(rank_p_value(population.twin_difference(canary, control, 2))) == 1 / 30
    assert rank_p_value(population.label_directed_scores(canary[None], 2)) != pytest.approx(1 / 30)
