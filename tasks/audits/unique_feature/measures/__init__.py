"""Tables used by more than one question. Each file has one table: its formula and source, its task and its summary
rows.

Every interval is over training runs, pairs of training runs or models. With a single one there is no interval.
"""
