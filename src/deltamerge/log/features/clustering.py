"""Clustered tables: which columns a table is clustered by.

Source: Delta protocol, "Clustered Table". The columns are stored in a domain of the log. Writers need not cluster what
they write; files that are clustered name the implementation (`clusteringProvider`), those of a merge do not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from deltamerge.log.actions import DomainMetadata

FEATURE = "clustering"
DOMAIN = "delta.clustering"
MOST_COLUMNS = 4


def clustering_columns(domains: Mapping[str, DomainMetadata]) -> tuple[tuple[str, ...], ...]:
    """Return the columns that a table is clustered by, each by the parts of its name."""
    domain = domains.get(DOMAIN)
    if domain is None:
        return ()
    return domain.read(lambda values: tuple(tuple(parts) for parts in values["clusteringColumns"]))


def clustering_domain(columns: Sequence[Sequence[str]]) -> DomainMetadata:
    """Return the action that makes a table clustered by some columns."""
    values = {"clusteringColumns": [list(parts) for parts in columns], "domainName": DOMAIN}
    return DomainMetadata(DOMAIN, json.dumps(values, separators=(",", ":"), ensure_ascii=False))
