"""Which operators run a merge, and why: pure functions over a frozen context.

No job runs here, no Column is made, and no operator is carried out.
"""
