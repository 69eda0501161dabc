"""What a user of each rival writes to audit one model: a module each, which needs nothing of this project.

`judge(case)` reads `records.npz` (images, labels, member: models by records) and the models `00.pt`, `01.pt`, ... of a
folder; the first model is audited, the others are its shadow models. It returns the tool's numbers, and `accuses` where
the tool's own documentation says from when on a number accuses.
"""
