"""python -m raggrad bench: the workloads, timed here and in other libraries.

The peers run in environments of their own that have no raggrad, so this folder also works as a package by itself
(start_worker.py loads it that way): what a worker needs - workloads, peers, timing - imports only NumPy and the peer.
"""
