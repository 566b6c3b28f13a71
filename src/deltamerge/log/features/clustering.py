"""Clustered tables: which columns a table is clustered by.

Source: Delta protocol, "Clustered Table". The columns are stored in a domain of the log. Writers need not cluster what
they write; files that are clustered name the implementation (`clusteringProvider`), those of a merge do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deltamerge.log.actions import DomainMetadata, compact_json
from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.schema import StructType

FEATURE = "clustering"
DOMAIN = "delta.clustering"
MOST_COLUMNS = 4


def clustering_columns(domains: Mapping[str, DomainMetadata]) -> tuple[tuple[str, ...], ...]:
    """Return the columns that a table is clustered by, each by the parts of its name."""
    domain = domains.get(DOMAIN)
    if domain is None:
        return ()
    return domain.read(lambda values: tuple(tuple(parts) for parts in values["clusteringColumns"]))


def clustered_by(domains: Mapping[str, DomainMetadata], schema: StructType) -> tuple[tuple[str, ...], ...]:
    """Return the paths that a table has for the columns it is clustered by."""
    found = []
    for path in clustering_columns(domains):
        names, fields = [], schema.fields
        for part in path:
            field = next((field for field in fields if physical_name(field) == part), None)
            names.append(part if field is None else field.name)
            fields = field.data_type.fields if field is not None and isinstance(field.data_type, StructType) else ()
        found.append(tuple(names))
    return tuple(found)


def clustering_change(
    wanted: Mapping[str, DomainMetadata], present: Mapping[str, DomainMetadata]
) -> tuple[DomainMetadata, ...]:
    """Return what gives a table the clustering of other domains than its own; nothing where it has that already."""
    after, before = wanted.get(DOMAIN), present.get(DOMAIN)
    if after is not None:
        return () if after == before else (after,)
    return () if before is None else (replace(before, removed=True),)


def clustering_domain(columns: Sequence[Sequence[str]]) -> DomainMetadata:
    values = {"clusteringColumns": [list(parts) for parts in columns], "domainName": DOMAIN}
    return DomainMetadata(DOMAIN, compact_json(values))
