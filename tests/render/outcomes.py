"""Outcomes to render."""

from __future__ import annotations

from deltamerge.merge.outcome import ClauseOutcome, MergeOutcome, StepTiming

STATEMENT = """\
MERGE INTO delta.`/data/flights` AS t
USING feed AS s
ON t.month = s.month AND t.time_hour = s.time_hour AND t.carrier = s.carrier AND t.flight = s.flight
WHEN MATCHED AND NOT (t.arr_delay <=> s.arr_delay) THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND t.month = 10 AND t.day >= 25 THEN DELETE"""

UPSERT = MergeOutcome(
    table="/data/flights",
    statement=STATEMENT,
    executor="classic",
    executor_reason="there are clauses that update or delete",
    read_version=0,
    version=1,
    metrics={
        "numSourceRows": 33_512,
        "numSourceRowsInSecondScan": 33_512,
        "numTargetRowsInserted": 27_035,
        "numTargetRowsUpdated": 2_704,
        "numTargetRowsMatchedUpdated": 2_704,
        "numTargetRowsNotMatchedBySourceUpdated": 0,
        "numTargetRowsDeleted": 1,
        "numTargetRowsMatchedDeleted": 0,
        "numTargetRowsNotMatchedBySourceDeleted": 1,
        "numTargetRowsCopied": 26_181,
        "numOutputRows": 55_920,
        "numTargetFilesBeforeSkipping": 10,
        "numTargetFilesAfterSkipping": 1,
        "numTargetBytesBeforeSkipping": 5_512_000,
        "numTargetBytesAfterSkipping": 562_133,
        "numTargetPartitionsAfterSkipping": 1,
        "numTargetFilesAdded": 2,
        "numTargetFilesRemoved": 1,
        "numTargetBytesAdded": 1_123_000,
        "numTargetBytesRemoved": 562_133,
        "numTargetPartitionsAddedTo": 2,
        "numTargetPartitionsRemovedFrom": 1,
        "numTargetChangeFilesAdded": 2,
        "numTargetChangeFileBytes": 731_200,
        "numTargetDeletionVectorsAdded": 0,
        "numTargetDeletionVectorsRemoved": 0,
        "numTargetDeletionVectorsUpdated": 0,
        "executionTimeMs": 6_482,
        "materializeSourceTimeMs": 801,
        "scanTimeMs": 1_904,
        "rewriteTimeMs": 3_105,
    },
    clauses=(
        ClauseOutcome(
            "matched",
            "update",
            "NOT (t.arr_delay <=> s.arr_delay)",
            2_704,
            "WHEN MATCHED AND NOT (t.arr_delay <=> s.arr_delay) THEN UPDATE SET *",
        ),
        ClauseOutcome("not_matched", "insert", None, 27_035, "WHEN NOT MATCHED THEN INSERT *"),
        ClauseOutcome(
            "not_matched_by_source",
            "delete",
            "t.month = 10 AND t.day >= 25",
            1,
            "WHEN NOT MATCHED BY SOURCE AND t.month = 10 AND t.day >= 25 THEN DELETE",
        ),
    ),
    steps=(
        StepTiming("snapshot", "loading the table's log", 21),
        StepTiming("resolve", "resolving the statement", 402),
        StepTiming("materialize_source", "materializing the source", 801),
        StepTiming("summarize_source", "counting the source's rows and its keys' ranges", 612),
        StepTiming("plan", "choosing the files to read", 9),
        StepTiming("find_touched_files", "scanning files for matches", 1_283),
        StepTiming("write_all_changes", "rewriting 1 files", 3_105),
        StepTiming("commit", "committing", 31),
    ),
    notes=("9 of 10 files were not read, thanks to the source's key ranges and the conditions on the target.",),
    operation_parameters={"predicate": '["t.month = s.month"]'},
)

NOTHING_CHANGED = MergeOutcome(
    table="/data/flights",
    statement=STATEMENT,
    executor="classic",
    executor_reason="there are clauses that update or delete",
    read_version=7,
    version=None,
    metrics={
        "numSourceRows": 0,
        "numTargetFilesBeforeSkipping": 10,
        "numTargetFilesAfterSkipping": 0,
        "numTargetBytesBeforeSkipping": 5_512_000,
        "numTargetBytesAfterSkipping": 0,
        "executionTimeMs": 812,
    },
    clauses=tuple(ClauseOutcome(c.kind, c.action, c.condition, 0, c.text) for c in UPSERT.clauses),
    steps=(StepTiming("resolve", "resolving the statement", 402),),
)

ALREADY_COMMITTED = MergeOutcome(
    table="/data/flights",
    statement=STATEMENT,
    executor="none",
    executor_reason="the application transaction was committed before",
    read_version=7,
    version=None,
    metrics=dict.fromkeys(UPSERT.metrics, 0),
    clauses=(),
    steps=(),
    notes=("The table already holds this application transaction (txnAppId, txnVersion); nothing was done.",),
)

ODD = MergeOutcome(
    table="s3://bucket/a very long prefix with spaces/<b>t</b>/[red]x[/red]/" + "deep/" * 20,
    statement="MERGE INTO t USING s ON t.`<script>` = s.`[bold]`\nWHEN MATCHED THEN UPDATE SET "
    + ", ".join(f"column_{i} = s.column_{i}" for i in range(100)),
    executor="insert_only",
    executor_reason="there are only NOT MATCHED clauses",
    read_version=1_000_000,
    version=1_000_001,
    metrics={
        "numSourceRows": 1,
        "numTargetFilesBeforeSkipping": 1,
        "numTargetFilesAfterSkipping": 1,
        "numTargetBytesBeforeSkipping": 999_999,
        "numTargetBytesAfterSkipping": 999_999,
        "numTargetFilesAdded": 0,
        "numTargetDeletionVectorsAdded": 1,
        "numTargetDeletionVectorsUpdated": 1,
        "executionTimeMs": 7_261_000,
    },
    clauses=(
        ClauseOutcome("matched", "do_nothing", "t.`<script>` = '[bold]'", 0, ""),
        ClauseOutcome("matched", "update", "s.x = 'a\n   b' AND " + " OR ".join(["s.y"] * 60), 1, ""),
    ),
    steps=(StepTiming("write", "writing <script>alert(1)</script> [red]now[/red]", 7_261_000),),
    notes=("One [bold]note[/bold].", "Another <i>note</i>, and a long one: " + "word " * 40),
)

ALL = {
    "upsert": UPSERT,
    "nothing changed": NOTHING_CHANGED,
    "already committed": ALREADY_COMMITTED,
    "odd": ODD,
}
