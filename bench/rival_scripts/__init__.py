"""Scripts that audit one model with each rival, written as its users would write them and independent of this project.

`judge(case)` reads `records.npz` (images, labels, member: models by records) and the models `00.pt`, `01.pt`, ... from
a folder. The first model is audited and the others are its shadow models. It returns the numbers reported by the tool,
and `accuses` if the tool's documentation states a threshold.
"""
