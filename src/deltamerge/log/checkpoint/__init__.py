"""Checkpoints of the log: what is in one, reading all kinds, writing classic and V2.

When a checkpoint is due is decided in `txn.transaction`, which one a version is read from in `log.segment`.
"""
