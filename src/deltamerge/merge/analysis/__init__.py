"""What a statement means for one snapshot: names, types, evolution, keys, references; computed once.

Nothing here reads the source's or the target's rows.
"""
