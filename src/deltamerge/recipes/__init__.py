"""What people otherwise write by hand around a MERGE: upserts, history tables, change feeds, streams.

Each recipe prepares its source and makes its statement with the public builders in functions of their own, then runs
it. How rows are found and written is the merge's; nothing below this room knows of a recipe.
"""
