"""A chaos campaign: a seeded adversary injects faults into audits, and their final tables must equal the undisturbed
ones.

    python -m tests.chaos --faults 220 --seed 0

A fault is a function of a round (`processes`, `disks`, `files`, `network`, `clocks`). After each fault, the round takes
the user's natural next steps: it repeats the command and follows its messages (`rounds`). As root, the campaign runs in
private namespaces for mounts, processes and network, which end with it.
"""
