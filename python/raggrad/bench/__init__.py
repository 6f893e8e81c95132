"""python -m raggrad bench: measures raggrad and other libraries ("peers") on the same workloads.

Peers run in environments of their own, which have no raggrad. So this folder also works as a package by itself;
start_worker.py loads it that way. The parts that a worker needs (workloads, peers, timing) import only NumPy and the
peer.
"""
