"""A program that merges into a table in S3, and prints all that there is to be seen; logs are as talkative as they get.

``python -m storage.talkative <settings, options and more as JSON>``
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any


def main(given: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from deltamerge import DeltaTable

    logging.basicConfig(level=logging.DEBUG)
    py4j = logging.getLogger("py4j")
    py4j.setLevel(logging.INFO)
    builder: Any = SparkSession.builder
    builder = builder.remote(given["remote"]) if given["remote"] else builder.master("local[1]")
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    path, options = given["path"], given["options"]
    spark.conf.set("spark.deltamerge.merge.driverBytes", "0")
    # A client over Connect hands its tables options alone.
    sessions: list[dict[str, str]] = [{}] if given["remote"] else [{}, given["session"]]
    for held in sessions:
        # Once by options, once by settings of the session.
        asked = {} if held else options
        # What PySpark sends for this program itself is as it is.
        py4j.setLevel(logging.INFO)
        for name, value in held.items():
            spark.conf.set(name, value)
        py4j.setLevel(logging.DEBUG)
        source = spark.range(5, 15).selectExpr("id", "id * 10 AS v").alias("s")
        target = DeltaTable.forPath(spark, path, asked)
        merge = target.alias("t").merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()
        plan = merge.plan()
        report = merge.run()
        for shown in (plan, report):
            print(shown, repr(shown), shown.to_json(), shown.to_dict(), shown._repr_html_())
        print(target, repr(target), target.detail().collect(), target.history().collect())
        assert report.outcome.version is not None
    wrong = {**options, "endpoint": given["refusing"]}
    failing = DeltaTable.forPath(spark, path, options).alias("t").merge(spark.range(5).alias("s"), "t.id = s.id")
    calls: list[Callable[[], object]] = [
        lambda: DeltaTable.forPath(spark, path, wrong),
        lambda: DeltaTable.forPath(spark, f"{path}-nothing", options),
        failing.whenMatchedUpdate(set={"v": "raise_error('no value')"}).run,
    ]
    for call in calls:
        try:
            call()
        except Exception as error:
            traceback.print_exception(error)
            print(error, repr(error))
        else:
            raise AssertionError("no error")
    spark.stop()
    print("done")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
