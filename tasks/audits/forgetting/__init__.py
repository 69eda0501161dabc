"""Has a model forgotten a data set?

A provider asks that its data, the query set D_Q, be forgotten. The audited model, the target, is known only by its
confidences c, the probability of the true class of each of these images. Query models are trained on D_Q, calibration
models on a set D_C of the same domain that shares no image with it.

    KS(a, b) = sup |cdf of c by a - cdf of c by b| over the images of D_Q
    rho = mean KS(query model, target) / mean KS(query model, calibration model)

Reading it. A target that never saw D_Q is as far from the query models as the calibration models are: rho is about 1.
A target that remembers D_Q has the confidences of the query models: rho is near its floor, KS(query, query) / KS(query,
calibration). Forgotten: the interval of rho lies above 1 - margin. Not forgotten: it lies below. Undecided: neither, or
rho is undefined.

Source. Liu & Tsaftaris 2020, "Have you forgotten? A method to assess if machine learning models have forgotten data":
KS is eqs. 2 and 3, rho eq. 4 and algorithm 1.

What is ours. KS has no sign: a target that trained on D_Q for longer than the query models, or on additional data, is
more confident on D_Q than they are, hence far from them, and its published rho can reach 1 as if it had forgotten. The
answer therefore rests on the one-sided distance, sup (cdf by the target - cdf by the query model): how far the target's
confidence lies below that of models trained on D_Q. Both are computed; they agree where the target is less confident.
KS depends on ranks alone, so that in float32 .9999 and .99999 are as far apart as .1 and .9; confidences are compared
to two decimals unless `decimals` is set. The published rule, forgotten where rho >= 1, is a coin flip for a target that
was trained like the calibration model, which is exactly where the answer is "forgotten"; every model is therefore
trained with several seeds, rho has an interval over images and replicates, and the decision a margin. Read literally,
the paper's equations compare each cdf at its own sorted values, which always gives 0; here the distance is taken on the
pooled support. A calibration set that holds an image of the query set, or one made from it, is detected by content and
refused. The power curve shows the share of D_Q in training that the audit detects.

Cost. Replicates x (2 + targets) trainings. `quickstart` takes about a minute of two cores.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audit import Audit
from tasks.audits.forgetting.about import About
from tasks.audits.forgetting.config import Forgetting, tiny
from tasks.audits.forgetting.measures import MEASURES
from tasks.audits.forgetting.presets import PRESETS
from tasks.audits.forgetting.probe_set import handed_out, probes_of
from tasks.audits.forgetting.published import repeats
from tasks.audits.forgetting.summary import summary
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.trainings import checked, trainings
from tasks.audits.forgetting.verdict import verdict
from tasks.datasets.images import Pixels
from tasks.job import Job, Roots
from tasks.measure import roots

__all__ = ["AUDIT", "PRESETS", "Forgetting", "Target", "plan", "probes", "tiny"]


def plan(config: Forgetting) -> Roots:
    """The tables of the measures that the config asks for, and their `summary`."""
    config = checked(config)
    trained = trainings(config)
    return roots(MEASURES, config, trained, lambda read: Job(summary, About(trained.targets, repeats(config)), read))


def probes(config: Forgetting) -> Iterator[tuple[str, Pixels]]:
    """D_Q and the control set in one set, shuffled, on which a model's owner evaluates the model."""
    handed = handed_out(config.probes)
    yield handed.name, probes_of(config.probes).images[handed.order]


AUDIT = Audit(
    config=Forgetting,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    tiny=tiny,
    verdict=verdict,
    probes=probes,
)
