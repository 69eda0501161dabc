from dataclasses import replace

import numpy as np
import pytest

from tasks.audits.unique_feature.canary_selection import Canary, canaries, own_feature
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.feature_family import Relatives, model_families
from tasks.audits.unique_feature.measures.family import PairFamily, pair_family, uncarried_feature
from tasks.audits.unique_feature.probe_images import Burning, burn_family, probe_images, probe_set_triples
from tasks.audits.unique_feature.trainings import trainings
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph, burn, family, glyph_pixels
from tests.tasks.audits.unique_feature.made_up import INK, LABEL, reads_the_letter
from tests.tasks.audits.unique_feature.made_up import family as made_family

STRENGTH, MEMBERS, PROBES = 3.0, 15, 40
SHAPE = (28, 28, 1)


def asked(feature: Glyph = Glyph()) -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", PROBES, feature, Family(count=MEMBERS), seed=5)


def test_a_model_that_reads_the_letter_has_the_familys_scores_worked_out_by_hand() -> None:
    data = pin(Dataset("digits"))
    canary = int(np.flatnonzero(load(data).train_labels == LABEL)[0])
    table = pair_family(PairFamily(data, canary, asked()), [reads_the_letter(STRENGTH), reads_the_letter(0.0)])
    said, twin = model_families(table)
    assert {"canary": canary, "label": LABEL, "seed": 17, "model": "canary"} == said.about
    assert "twin" == twin.about["model"]
    # A member's brightness where the letter has its ink: the share of that ink which it has too.
    members = [Glyph(), *family(Glyph(), Family(count=MEMBERS), 5, SHAPE[:2])]
    shared = np.array(
        [glyph_pixels(member).ravel()[INK].mean() / 255 for member in members if isinstance(member, Glyph)]
    )
    expected = STRENGTH * shared - np.log(np.exp(STRENGTH * shared) + 9)
    assert expected == pytest.approx(said.log_p[:, LABEL], abs=1e-5)
    assert STRENGTH * shared - np.log(9) == pytest.approx(said.log_odds[:, LABEL], abs=1e-5)
    assert 1.0 == shared[0] > shared[1:].max()
    assert np.full((MEMBERS + 1, 10), np.log(0.1)) == pytest.approx(twin.log_p, abs=1e-6)
    assert not twin.d.any()
    assert (said.d > 0).all()


def test_only_the_first_probe_images_are_asked_about() -> None:
    clean = probe_images(Dataset("photos"), "test", SHAPE, PROBES)
    assert (load(Dataset("photos")).test_images[:PROBES] == clean).all()
    assert len(load(Dataset("photos")).test_images) == len(probe_images(Dataset("photos"), "test", SHAPE))
    drawn = dict(burn_family(clean, Glyph(), Family(count=3), 1))
    assert [0, 1, 2, 3] == list(drawn)
    assert (burn(clean, Glyph()) == drawn[0]).all()


def test_a_random_patch_may_be_another_member_of_the_family() -> None:
    clean = probe_images(Dataset("photos"), "test", SHAPE, 200)
    found = probe_set_triples(clean, Burning(Glyph(), "family", 3)).random
    glyphs = found[:, 1:6, 1:6, 0]
    ink = int(glyph_pixels(Glyph()).sum())
    assert {ink} == {int(glyph.sum()) for glyph in glyphs.astype(int)}
    assert 50 < len({glyph.tobytes() for glyph in glyphs})
    assert not any((glyph == glyph_pixels(Glyph())).all() for glyph in glyphs)
    # An image's patch depends on its row, not on which others are there.
    again = probe_set_triples(clean, Burning(Glyph(), "family", 3)).random
    assert (again == found).all()


def test_each_pair_is_asked_about_one_feature_that_its_canary_did_not_carry() -> None:
    data = pin(Dataset("digits"))
    # The letter's own brightness at its ink is 1: the uncarried feature scores what the letter scored above.
    config = PairFamily(data, 3, asked(Glyph(kind="random", seed=8)), uncarried=Glyph())
    said, _ = model_families(pair_family(config, [reads_the_letter(STRENGTH), reads_the_letter(0.0)]))
    assert said.null is not None
    expected = STRENGTH - np.log(np.exp(STRENGTH) + 9)
    assert expected == pytest.approx(said.null.log_p[0, LABEL], abs=1e-5)
    assert (said.log_p[1:] == said.null.log_p[1:]).all()
    assert MEMBERS + 1 == len(said.log_p)


def test_others_that_look_like_the_uncarried_feature_are_left_out_of_its_ranking() -> None:
    log_p = np.array([[-1.0, -2.0], [-3.0, -1.0], [-2.0, -2.0], [-3.0, -1.0]])
    (model,) = model_families(made_family(4, {"canary": log_p}, uncarried=True))
    assert model.null is not None
    assert [[-3.0, -1.0], [-2.0, -2.0]] == model.null.log_p.tolist()
    assert 3 == len(model.log_p)


def test_the_uncarried_feature_is_the_one_whose_family_the_carried_ones_are_of_and_the_reverse() -> None:
    config = UniqueFeature(Dataset("digits"), Dataset("photos"), canaries=3)
    drawn = replace(config, drawn=True)
    for canary in canaries(drawn):
        assert Glyph() == uncarried_feature(drawn, canary)
    features = [uncarried_feature(config, canary) for canary in canaries(config)]
    assert features == [canary.carried for canary in canaries(drawn)]
    assert 3 == len(set(features))
    letters = replace(config, family=Family("letters", count=5))
    same = Canary(0, 1, Glyph(), own_feature(letters, 0))
    assert uncarried_feature(letters, same) is None


def test_canaries_with_drawn_features_are_other_images_of_other_seeds() -> None:
    config = UniqueFeature(Dataset("digits"), Dataset("photos"), canaries=20)
    letter, drawn = (trainings(replace(config, drawn=on)).pairs for on in (False, True))
    assert not {pair.clean.seed for pair in letter} & {pair.clean.seed for pair in drawn}
    assert [pair.canary.image for pair in letter] != [pair.canary.image for pair in drawn]
