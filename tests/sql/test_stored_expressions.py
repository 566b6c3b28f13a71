"""Expressions of a table that somebody else wrote: what computes a value from a row is evaluated, nothing else."""

from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.sql.stored_expressions import check_stored

REFUSED = {
    "java_method('java.lang.System', 'exit', 0) IS NULL": "java_method",
    "REFLECT('java.lang.System', 'exit', '0') = ''": "REFLECT",
    "try_reflect('a', 'b') = ''": "try_reflect",
    "`reflect`('a', 'b') = ''": "`reflect`",
    "\"reflect\"('a', 'b') = ''": '"reflect"',
    "system.builtin.reflect('a', 'b') = ''": "system.builtin.reflect",
    "`system` . `builtin` . `reflect` ('a', 'b') = ''": "`reflect`",
    "reflect /* a comment */ ('a', 'b') = ''": "reflect",
    "IDENTIFIER('reflect')('a', 'b') = ''": "IDENTIFIER",
    "a > 0 AND NOT (CASE WHEN b THEN reflect('a', 'b') END = '')": "reflect",
    "transform(a, x -> reflect('a', x))[0] = ''": "reflect",
    "my_udf(a) > 0": "my_udf",
    "db.upper(a) = 'A'": "db.upper",
    "sum(a) > 0": "sum",
    "row_number() OVER (ORDER BY a) > 0": "window",
    "first(a) > 0": "first",
    "explode(a) > 0": "explode",
    "from_xml(a, 's STRING', map('rowValidationXSDPath', '/etc/passwd')) IS NULL": "from_xml",
    "(SELECT max(a) FROM other) > 0": "subquery",
    "a IN (SELECT a FROM other)": "subquery",
    "EXISTS (SELECT 1 FROM other)": "subquery",
    "((VALUES (1)))": "subquery",
    "'${spark.hadoop.fs.s3a.secret.key}'": "variable",
    "a > 0; DROP TABLE t": ";",
    "a = 'open": "cannot be read",
}

EVALUATED = [
    "a > 0",
    "upper(a) = 'A' AND (b IN (1, 2) OR NOT (c BETWEEN 1 AND (2 + 3)))",
    "CASE WHEN (a > 1) THEN (b) ELSE (c) END IS NOT NULL",
    "CAST(a AS DECIMAL(10, 2)) > 0 AND try_cast(b AS VARCHAR(3)) LIKE ('x%')",
    "EXTRACT(YEAR FROM a) = 2020 AND position('a' IN b) > 0 AND trim(BOTH ' ' FROM b) = ''",
    "exists(a, x -> x > 0) AND filter(a, x -> (x > 0)) IS NOT NULL",
    "system.builtin.abs(a) > 0 AND `abs`(a) > 0",
    "current_timestamp()",
    "uuid()",
    "timestampadd(DAY, 1, a) > DATE '2020-01-01'",
    "reflect = 1 AND `sum` > 0 AND a.reflect > 0",
    "a = 'reflect(1)'",
    "named_struct('a', 1, 'b', array(1, 2)[0])",
    "INTERVAL (1) DAY IS NOT NULL",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_refused(sql: str) -> None:
    with pytest.raises(DeltaAnalysisException) as raised:
        check_stored(sql, "the CHECK constraint c")
    assert raised.value.error_class == "DELTA_UNSUPPORTED_EXPRESSION"
    assert str(raised.value).startswith("[DELTA_UNSUPPORTED_EXPRESSION] The CHECK constraint c of the table is ")
    assert REFUSED[sql] in raised.value.parameters["causedBy"]


@pytest.mark.parametrize("sql", EVALUATED)
def test_evaluated(sql: str) -> None:
    check_stored(sql, "the CHECK constraint c")
