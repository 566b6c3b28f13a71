"""Table features, one module each: what a feature's properties, domains and encodings mean, and its rules.

Which features may be read and written is decided in `log.protocol`; nothing here reads a commit or a snapshot.
"""
