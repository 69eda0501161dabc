"""PrivacyGuard: LiRA online with shadow models, and the AUC and 95 % interval of its analysis."""

import numpy as np
import pandas as pd
from case import load_case, log_odds
from privacy_guard.analysis.mia.aggregate_analysis_input import AggregationType
from privacy_guard.analysis.mia.analysis_node import AnalysisNode
from privacy_guard.attacks.lira_attack import LiraAttack


def judge(folder):
    images, labels, member, (target, *shadows) = load_case(folder)
    scores = np.stack([log_odds(model, images, labels) for model in shadows])
    inside = np.where(member[1:], scores, np.nan)
    outside = np.where(member[1:], np.nan, scores)
    table = pd.DataFrame(
        {
            "user_id": np.arange(len(labels)),
            "score_orig": log_odds(target, images, labels),
            "score_mean_in": np.nanmean(inside, 0),
            "score_mean_out": np.nanmean(outside, 0),
            "score_std_in": np.nanstd(inside, 0),
            "score_std_out": np.nanstd(outside, 0),
        }
    )
    train = table[member[0]].copy()
    test = table[~member[0]].copy()
    attack = LiraAttack(
        train, test, AggregationType.NONE, use_fixed_variance=True, std_dev_type="mix", online_attack=True
    )
    analysis = AnalysisNode(attack.run_attack(), delta=1e-5, n_users_for_eval=len(test)).run_analysis()
    return {"auc": analysis.auc, "low": analysis.auc_ci[0], "accuses": bool(analysis.auc_ci[0] > 0.5)}
