"""Scripts that audit one model with each rival, as a user of the rival would write them, independent of this project.

`judge(case)` reads `records.npz` (images, labels, member: models by records) and the models `00.pt`, `01.pt`, ... of a
folder; the first model is audited, the others are its shadow models. It returns the tool's numbers, and `accuses` if
the tool's documentation states a threshold.
"""
