import numpy as np
import pytest

from tasks.audits.unique_feature.feature_family import Relatives, by_model
from tasks.audits.unique_feature.measures.family import PairAsked, pair_family
from tasks.audits.unique_feature.probe_images import Burning, of_probe, probe_images, with_relatives
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family, Glyph, burn, family, pixels
from tests.tasks.audits.unique_feature.made_up import INK, LABEL, reads_the_letter

STRENGTH, MEMBERS, PROBES = 3.0, 15, 40
SHAPE = (28, 28, 1)


def asked(feature: Glyph = Glyph()) -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", PROBES, feature, Family(count=MEMBERS), seed=5)


def test_a_model_that_reads_the_letter_has_the_familys_scores_worked_out_by_hand() -> None:
    data = pin(Dataset("digits"))
    canary = int(np.flatnonzero(load(data).train_labels == LABEL)[0])
    table = pair_family(PairAsked(data, canary, asked()), [reads_the_letter(STRENGTH), reads_the_letter(0.0)])
    said, twin = by_model(table)
    assert {"canary": canary, "label": LABEL, "seed": 17, "model": "canary"} == said.about
    assert "twin" == twin.about["model"]
    # A member's brightness where the letter has its ink: the share of that ink which it has too.
    members = [Glyph(), *family(Glyph(), Family(count=MEMBERS), 5, SHAPE[:2])]
    shared = np.array([pixels(member).ravel()[INK].mean() / 255 for member in members if isinstance(member, Glyph)])
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
    drawn = dict(with_relatives(clean, Glyph(), Family(count=3), 1))
    assert [0, 1, 2, 3] == list(drawn)
    assert (burn(clean, Glyph()) == drawn[0]).all()


def test_a_random_patch_may_be_another_member_of_the_family() -> None:
    clean = probe_images(Dataset("photos"), "test", SHAPE, 200)
    found = of_probe(clean, Burning(Glyph(), "family", 3)).random
    glyphs = found[:, 1:6, 1:6, 0]
    ink = int(pixels(Glyph()).sum())
    assert {ink} == {int(glyph.sum()) for glyph in glyphs.astype(int)}
    assert 50 < len({glyph.tobytes() for glyph in glyphs})
    assert not any((glyph == pixels(Glyph())).all() for glyph in glyphs)
    # An image's patch depends on its row, not on which others are there.
    again = of_probe(clean, Burning(Glyph(), "family", 3)).random
    assert (again == found).all()
