"""The statements of dbt-spark and dbt-databricks for incremental models: each is one call of ``deltamerge.sql``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import deltamerge
from deltamerge import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sessions, pytest.mark.slow]

# Processes that share a server have a schema each.
SCHEMA = f"dbt_shop_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
HEADER = '/* {"app": "dbt", "dbt_version": "1.10.0", "node_id": "model.shop.orders"} */\n'
Execute: TypeAlias = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def execute(spark: SparkSession) -> Iterator[Execute]:
    """The one call that an adapter makes; the model's table is there after its first run."""

    def run(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in deltamerge.sql(spark, HEADER + text.replace("dbt_shop", SCHEMA)).collect()]

    run("create schema if not exists dbt_shop")
    run(
        """
        create or replace table `dbt_shop`.`orders`

      using delta

      tblproperties (
        'delta.enableDeletionVectors' = 'false'
        )

      comment 'it''s the orders'

      as
      select id, status, amount, day from values
        (1, 'new', 10.0, date'2024-01-01'), (2, 'new', 20.0, date'2024-01-01'), (3, 'new', 30.0, date'2024-01-02')
        as v(id, status, amount, day)
        """
    )
    run(
        """
        create or replace temporary view `orders__dbt_tmp` as
          select id, status, amount, day from values
        (2, 'paid', 21.0, date'2024-01-01'), (3, 'lost', 31.0, date'2024-01-02'), (4, 'new', 40.0, date'2024-01-03')
        as v(id, status, amount, day)
        """
    )
    yield run
    run("drop table if exists `dbt_shop`.`orders`")
    spark.catalog.dropTempView("orders__dbt_tmp")
    run("drop schema if exists dbt_shop cascade")


def orders(execute: Execute) -> list[tuple[Any, ...]]:
    return [(i, s, float(a)) for i, s, a in execute("select id, status, amount from `dbt_shop`.`orders` order by id")]


BEFORE = [(1, "new", 10.0), (2, "new", 20.0), (3, "new", 30.0)]


def test_dbt_spark_merges_by_a_unique_key(execute: Execute) -> None:
    execute(
        """
        merge into `dbt_shop`.`orders` as DBT_INTERNAL_DEST
      using `orders__dbt_tmp` as DBT_INTERNAL_SOURCE
      on
                  DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id


      when matched then update set
         *

      when not matched then insert *
        """
    )
    assert orders(execute) == [(1, "new", 10.0), (2, "paid", 21.0), (3, "lost", 31.0), (4, "new", 40.0)]


def test_merge_update_columns_and_two_keys(execute: Execute) -> None:
    execute(
        """
        merge into `dbt_shop`.`orders` as DBT_INTERNAL_DEST
      using `orders__dbt_tmp` as DBT_INTERNAL_SOURCE
      on
                  DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id
               and
                  DBT_INTERNAL_SOURCE.day = DBT_INTERNAL_DEST.day


      when matched then update set
            status = DBT_INTERNAL_SOURCE.status

      when not matched then insert *
        """
    )
    assert orders(execute) == [(1, "new", 10.0), (2, "paid", 20.0), (3, "lost", 30.0), (4, "new", 40.0)]


def test_dbt_databricks_excludes_columns(execute: Execute) -> None:
    execute(
        """
    merge
    into
        `spark_catalog`.`dbt_shop`.`orders` as DBT_INTERNAL_DEST
    using
        `orders__dbt_tmp` as DBT_INTERNAL_SOURCE
    on

              DBT_INTERNAL_SOURCE.`id` <=> DBT_INTERNAL_DEST.`id`

    when matched
        then update set
            `id` = DBT_INTERNAL_SOURCE.`id`, `amount` = DBT_INTERNAL_SOURCE.`amount`, `day` = DBT_INTERNAL_SOURCE.`day`
    when not matched
        then insert
            *
        """
    )
    assert orders(execute) == [(1, "new", 10.0), (2, "new", 21.0), (3, "new", 31.0), (4, "new", 40.0)]


def test_conditions_of_the_clauses(execute: Execute) -> None:
    execute(
        """
    merge
    into
        `dbt_shop`.`orders` as t
    using
        `orders__dbt_tmp` as s
    on
        s.`id` <=> t.`id`
    when matched
        and (t.status <> s.status and s.amount > 30)
        then update set
            *
    when not matched
        and (s.day > date'2024-01-01')
        then insert
            (`id`, `status`, `amount`, `day`) VALUES (s.`id`, s.`status`, s.`amount`, s.`day`)
    when not matched by source
        and (t.status <> 'gone')
        then update set t.status = 'gone'
        """
    )
    assert orders(execute) == [(1, "gone", 10.0), (2, "new", 20.0), (3, "lost", 31.0), (4, "new", 40.0)]


def test_not_matched_by_source_deletes(execute: Execute) -> None:
    execute(
        """
    merge
    into
        `dbt_shop`.`orders` as DBT_INTERNAL_DEST
    using
        `orders__dbt_tmp` as DBT_INTERNAL_SOURCE
    on
        DBT_INTERNAL_SOURCE.`id` <=> DBT_INTERNAL_DEST.`id`
    when not matched
        then insert
            *
    when not matched by source
        then delete
        """
    )
    assert orders(execute) == [(2, "new", 20.0), (3, "new", 30.0), (4, "new", 40.0)]


def test_incremental_predicates(execute: Execute) -> None:
    execute(
        """
        merge into `dbt_shop`.`orders` as DBT_INTERNAL_DEST
      using `orders__dbt_tmp` as DBT_INTERNAL_SOURCE
      on DBT_INTERNAL_DEST.day >= date_sub(date'2024-01-03', 1) and DBT_INTERNAL_SOURCE.day > date'2024-01-01' and
                  DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id


      when matched then update set
         *

      when not matched then insert *
        """
    )
    assert sorted(orders(execute)) == [*BEFORE[:2], (2, "paid", 21.0), (3, "lost", 31.0), (4, "new", 40.0)]


def test_no_unique_key_inserts_all(execute: Execute) -> None:
    execute(
        """
        merge into `dbt_shop`.`orders` as DBT_INTERNAL_DEST
      using `orders__dbt_tmp` as DBT_INTERNAL_SOURCE
      on FALSE

      when matched then update set
         *

      when not matched then insert *
        """
    )
    assert len(orders(execute)) == 6


def test_merge_with_schema_evolution(execute: Execute) -> None:
    execute(
        """
    merge
        with schema evolution
    into
        `dbt_shop`.`orders` as DBT_INTERNAL_DEST
    using
        (select *, 'x' as note from `orders__dbt_tmp`) as DBT_INTERNAL_SOURCE
    on
        DBT_INTERNAL_SOURCE.`id` <=> DBT_INTERNAL_DEST.`id`
    when matched
        then update set
            *
    when not matched
        then insert
            *
        """
    )
    assert execute("select id, note from `dbt_shop`.`orders` order by id") == [(1, None), (2, "x"), (3, "x"), (4, "x")]


def test_append_and_delete_insert(execute: Execute) -> None:
    columns = "`id`, `status`, `amount`, `day`"
    execute(f"insert into table `dbt_shop`.`orders`\n    select {columns} from `orders__dbt_tmp`\n\n")
    assert len(orders(execute)) == 6
    execute(
        "delete from `dbt_shop`.`orders`\nwhere `dbt_shop`.`orders`.`id` in (2, 3, 4)\n  and day > date'2023-01-01'"
    )
    execute(f"insert into `dbt_shop`.`orders` by name\n\nselect {columns}\nfrom `orders__dbt_tmp`")
    assert orders(execute) == [BEFORE[0], (2, "paid", 21.0), (3, "lost", 31.0), (4, "new", 40.0)]
    execute("insert overwrite table `dbt_shop`.`orders`\n      \n    select * from `orders__dbt_tmp`")
    assert len(orders(execute)) == 3


def test_columns_as_dbt_reads_and_alters_them(spark: SparkSession, execute: Execute) -> None:
    described = execute("describe extended `dbt_shop`.`orders`")
    end = next(place for place, row in enumerate(described) if row[0] == "" or row[0].startswith("#"))
    assert [row[0] for row in described[:end]] == ["id", "status", "amount", "day"]
    assert ("Provider", "delta", "") in described
    execute("alter table `dbt_shop`.`orders` add columns\n\n            `note` string\n    ")
    execute("alter table `dbt_shop`.`orders` change column\n              note\n              comment 'it\\'s a note';")
    execute("alter table `dbt_shop`.`orders` change column id set not null ;")
    execute("alter table `dbt_shop`.`orders` add constraint positive check (amount > 0);")
    execute("alter table `dbt_shop`.`orders` set tblproperties ('owner' = 'dbt')")
    properties: dict[str, str] = dict(execute("SHOW TBLPROPERTIES `dbt_shop`.`orders`"))
    assert properties["owner"] == "dbt"
    assert properties["delta.constraints.positive"] == "amount > 0"
    rows = {row[0]: row for row in execute("describe table `dbt_shop`.`orders`")}
    assert rows["note"] == ("note", "string", "it's a note")
    assert DeltaTable.forName(spark, f"{SCHEMA}.orders").detail().collect()[0]["description"] == "it's the orders"
    execute("optimize `dbt_shop`.`orders` zorder by (id)")
    assert orders(execute) == BEFORE
