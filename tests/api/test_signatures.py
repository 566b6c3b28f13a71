"""The public names and signatures of delta-spark 4.4's Python package: this one has them all."""

from __future__ import annotations

import inspect
import sys
from importlib.util import find_spec

import pytest

import deltamerge
from deltamerge import exceptions, tables

SIGNATURES = {
    "DeltaTable": (
        "addFeatureSupport(featureName)",
        "alias(aliasName)",
        "clone(target, isShallow=, replace=, properties=)",
        "cloneAtTimestamp(timestamp, target, isShallow=, replace=, properties=)",
        "cloneAtVersion(version, target, isShallow=, replace=, properties=)",
        "convertToDelta(sparkSession, identifier, partitionSchema=)",
        "create(sparkSession=)",
        "createIfNotExists(sparkSession=)",
        "createOrReplace(sparkSession=)",
        "delete(condition=)",
        "detail()",
        "dropFeatureSupport(featureName, truncateHistory=)",
        "forName(sparkSession, tableOrViewName)",
        "forPath(sparkSession, path, hadoopConf=)",
        "generate(mode)",
        "history(limit=)",
        "isDeltaTable(sparkSession, identifier)",
        "merge(source, condition)",
        "optimize()",
        "replace(sparkSession=)",
        "restoreToTimestamp(timestamp)",
        "restoreToVersion(version)",
        "toDF()",
        "update(condition=, set=)",
        "upgradeTableProtocol(readerVersion, writerVersion)",
        "vacuum(retentionHours=)",
    ),
    "DeltaMergeBuilder": (
        "execute()",
        "whenMatchedDelete(condition=)",
        "whenMatchedUpdate(condition=, set=)",
        "whenMatchedUpdateAll(condition=)",
        "whenNotMatchedBySourceDelete(condition=)",
        "whenNotMatchedBySourceUpdate(condition=, set=)",
        "whenNotMatchedInsert(condition=, values=)",
        "whenNotMatchedInsertAll(condition=)",
        "withSchemaEvolution()",
    ),
    "DeltaTableBuilder": (
        "addColumn(colName, dataType, nullable=, generatedAlwaysAs=, generatedByDefaultAs=, comment=)",
        "addColumns(cols)",
        "clusterBy(*cols)",
        "comment(comment)",
        "execute()",
        "location(location)",
        "partitionedBy(*cols)",
        "property(key, value)",
        "tableName(identifier)",
    ),
    "DeltaOptimizeBuilder": (
        "executeCompaction()",
        "executeZOrderBy(*cols)",
        "where(partitionFilter)",
    ),
    "IdentityGenerator": ("__init__(start=, step=)",),
}
"""Methods by class; an argument with a default ends in an equals sign."""

EXCEPTIONS = (
    "DeltaConcurrentModificationException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentTransactionException",
)


def signature(kind: type, method: str) -> str:
    """Gives a method's signature as `SIGNATURES` spells it, without what may only be given by name."""
    arguments = []
    for name, argument in inspect.signature(getattr(kind, method)).parameters.items():
        if name == "self" or argument.kind == argument.KEYWORD_ONLY:
            continue
        star = "*" if argument.kind == argument.VAR_POSITIONAL else ""
        arguments.append(f"{star}{name}{'' if argument.default is argument.empty else '='}")
    return f"{method}({', '.join(arguments)})"


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    kind = getattr(tables, name)
    assert name in tables.__all__
    for expected in SIGNATURES[name]:
        found = signature(kind, expected.partition("(")[0])
        # A field may be given whole, without a data type.
        assert found.replace("dataType=", "dataType") == expected


def test_exceptions() -> None:
    for name in EXCEPTIONS:
        kind = getattr(exceptions, name)
        assert name in exceptions.__all__
        assert issubclass(kind, exceptions.DeltaConcurrentModificationException)


def test_installed_as_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of delta-spark's modules mean this package, unless these are imported already."""
    for name in [module for module in sys.modules if module.split(".")[0] == "delta"]:
        monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)
    try:
        deltamerge.install_as_delta()
        deltamerge.install_as_delta()
        from delta import DeltaTable, configure_spark_with_delta_pip
        from delta.exceptions import ConcurrentAppendException
        from delta.tables import DeltaMergeBuilder

        assert DeltaTable is deltamerge.DeltaTable
        assert DeltaMergeBuilder is deltamerge.DeltaMergeBuilder
        assert ConcurrentAppendException is exceptions.ConcurrentAppendException
        assert configure_spark_with_delta_pip("builder") == "builder"
        for name in ("delta", "delta.tables", "delta.exceptions", "delta.pip_utils"):
            assert find_spec(name) is not None
        sys.modules["delta"] = sys
        with pytest.raises(ImportError, match="imported already"):
            deltamerge.install_as_delta()
    finally:
        for name in [module for module in sys.modules if module.split(".")[0] == "delta"]:
            if name not in before:
                del sys.modules[name]
