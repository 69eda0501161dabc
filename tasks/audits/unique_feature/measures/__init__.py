"""Tables of more than one question, a file each: its formula and source, the task, its rows of the summary.

Every interval is over trainings, pairs of trainings or models; with a single one there is no interval.
"""
