"""Commands other than MERGE: what DELETE, UPDATE, VACUUM and the like do to a table.

Each is a function over a table that ends in a commit by `txn`. What rows become is `merge`'s; how commands look to
users is `api`'s.
"""
