"""hdfs-native without a cluster."""

from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.store import open_store


def test_a_mount_table_that_is_not_configured() -> None:
    with pytest.raises(DeltaTableException, match="HADOOP_CONF_DIR"):
        open_store("viewfs://elsewhere/data/t")
