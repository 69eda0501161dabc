"""A chaos campaign: a seeded adversary brings faults upon audits, and their final tables must be the undisturbed ones.

    python -m tests.chaos --faults 220 --seed 0

A fault is a function of a round (`processes`, `disks`, `files`, `network`, `clocks`). After each the user's natural
next step is taken: the same command again, with what its messages say to do (`rounds`). As root the campaign has
mounts, processes and a network of its own, which end with it.
"""
