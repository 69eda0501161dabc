"""Has a model forgotten a data set?

A provider asks that its data, the query set D_Q, be forgotten; what is known of the model that is audited, the target,
is what it says of these images: c, the probability of each one's true class. Query models are trained on D_Q,
calibration models on a set D_C of the same domain that shares no image with it.

    KS(a, b) = sup |cdf of c by a - cdf of c by b| over the images of D_Q
    rho = mean KS(query model, target) / mean KS(query model, calibration model)

Reading it. A target that never saw D_Q is as far from the query models as the calibration models are: rho is about 1.
One that holds D_Q says of it what the query models say: rho is near KS(query, query) / KS(query, calibration), the
least there is. Forgotten: the interval of rho lies above 1 - margin. Not forgotten: it lies below. Undecided: neither,
or nothing can be said.

Source. Liu & Tsaftaris 2020, "Have you forgotten? A method to assess if machine learning models have forgotten data":
KS is eqs. 2 and 3, rho eq. 4 and algorithm 1.

What is ours. KS has no sign: a target that trained on D_Q for longer than the query models, or on more besides, is
surer of D_Q than they are, hence far from them, and its published rho can reach 1 as if it had forgotten. So the answer
rests on the one-sided distance, sup (cdf by the target - cdf by the query model): how far the target's confidence lies
below that of models which were trained on D_Q. Both are computed; where the target is the less sure they are the same.
And KS looks at ranks, so that in float32 .9999 and .99999 are as far apart as .1 and .9; confidences are compared to
two decimals unless `decimals` says otherwise. The published rule, forgotten where rho >= 1, is a coin flip for a target
that was trained like the calibration model, which is just where the answer is "forgotten"; every model is therefore
trained on several seeds, rho has an interval over images and replicates, and the answer a margin. The paper's equations
read literally compare each cdf at its own sorted values, which gives 0 always; the distance is taken on the pooled
support. A calibration set that holds an image of the query set, or one made of it, is refused by content. The power
curve says which share of D_Q in training the audit finds.

Cost. Replicates x (2 + targets) trainings. `quickstart` takes about a minute of two cores.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audit import Audit
from tasks.audits.forgetting.about import About
from tasks.audits.forgetting.config import Forgetting, tiny
from tasks.audits.forgetting.external_targets import SET
from tasks.audits.forgetting.measures import MEASURES
from tasks.audits.forgetting.presets import PRESETS
from tasks.audits.forgetting.published import repeats
from tasks.audits.forgetting.summary import summary
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.trainings import checked, trainings
from tasks.audits.forgetting.verdict import verdict
from tasks.datasets.catalog import load
from tasks.datasets.images import Pixels
from tasks.job import Job, Roots
from tasks.measure import roots

__all__ = ["AUDIT", "PRESETS", "Forgetting", "Target", "plan", "probes", "tiny"]


def plan(config: Forgetting) -> Roots:
    """The tables of the audit, `summary` among them; which ones follows from what is measured."""
    config = checked(config)
    trained = trainings(config)
    return roots(MEASURES, config, trained, lambda read: Job(summary, About(trained.targets, repeats(config)), read))


def probes(config: Forgetting) -> Iterator[tuple[str, Pixels]]:
    """The query set, which a model's owner asks the model about."""
    images = load(config.query.data)
    yield SET, images.train_images[config.query.rows(images)]


AUDIT = Audit(
    config=Forgetting,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    tiny=tiny,
    verdict=verdict,
    probes=probes,
)
