"""The thresholds of the planner and the operators."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Every threshold by which plans and their operators are chosen, each with its unit and where it comes from.

    Args:
        source_rows: Rows of a source whose keys go into a hash table; of more, to look up four million keys of files in
            an index takes less time than to make the table (0.3 to 0.6 s).
        indexed_rows: Rows of a source whose keys are sorted into an index in the driver, 8 bytes each.
        source_bytes: Bytes of a source that each task reads. Of a larger one, tasks of this machine map Arrow files
            into memory, and others read the row groups with the rows that they take.
        staged_bytes: Bytes of a source, all tasks together.
        exchanged_bytes: Bytes that a task brings together by file at a time; a row group may have more.
        exchanged_groups: Row groups in which a source's rows are brought together; a task reads the footers of all
            files of them.
        decoding_works: Pieces in which a source's Parquet files are decoded, so that each core gets some.
        collected_values: Values that may come to the driver at once; two million take 0.3 s.
        collected_bytes: Bytes, by Spark's estimate, of rows that may come to the driver in local mode; tasks take 0.2 s
            more, and two seconds in a new process.
        pairs: Pairs of source and target rows; the driver holds a byte of each source row, and the pairs of one file.
        pairs_of_task: Pairs that a task makes at once where source rows have a key in common; 240 MB.
        unmatched_rows: Target rows that BY SOURCE clauses may change by key lookup; each takes the memory of a pair.
        positions: Rows whose positions the driver holds, as bits: 128 MiB.
        partitions: Partitions that new and moved rows of a key lookup may go to; each is a file of its own, for which
            the driver takes about a millisecond.
        rewritten_bytes: Bytes of files that may match, up to which one outer join that writes them again costs less
            than the jobs that would avoid it (0.1 to 0.3 s each).
        broadcast_target_bytes: Bytes of files that may match, up to which Spark sends them to every executor, so that
            an insert-only merge reads its source once.
        broadcast_key_bytes: Bytes of a source's keys, up to which they are sent to every executor.
        listed_partitions: Partitions of a source of which each key's values come to the driver.
        listed_rows: Rows of each of these.
        counted_partitions: Partitions of a source in which keys that repeat are counted, not estimated.
        counted_rows: Rows of each of these.
        repeated_share: Which part of a source's rows repeats keys, by an estimate, so that it is worth a note.
        filtered_ranges: Ranges of a key up to which Spark gets a filter for each; above, one for all.
        one_task_files: Files that one task reads without a shuffle.
        one_task_bytes: Bytes of these files.
        one_task_rows: Source rows of such a task.
        driver_bytes: Bytes read in the driver in less time than a Spark job takes to start.
        driver_bytes_in_local_mode: The same where tasks run on the driver's machine anyway and would wait for Python
            workers, which Spark ends after a minute without work.
        driver_files: Files that the driver reads itself.
        driver_new_files: Files that the driver writes itself: each takes 1.4 ms on a local disk, more in a store.
        driver_source_bytes: Bytes of a source that the driver's threads read, each for itself.
        driver_rows_bytes: Bytes of matched rows that the driver hands to Spark; above, tasks read them.
        pairs_of_a_file: Updated rows that go into one new file beside a deletion vector.
        small_partition_bytes: Bytes up to which a partition's changed and new rows share one file.
        staged_bytes_of_a_file: Staged bytes that make a file of delta-spark's default size.
        tasks_without_rebalance: Tasks that may each write a file without being put together.
        rows_of_a_task: Rows below which so many tasks are put together.
        many_files: Files of a table from which on small ones are worth a warning.
        small_file_bytes: Average bytes of a file below which reading a table takes longer than it need.
        sampled_files: Files from which the number of rows in a file is estimated.
    """

    source_rows: int = 1_000_000
    indexed_rows: int = 100_000_000
    source_bytes: int = 1024 * _MIB
    staged_bytes: int = 65_536 * _MIB
    exchanged_bytes: int = 128 * _MIB
    exchanged_groups: int = 20_000
    decoding_works: int = 16
    collected_values: int = 2_000_000
    collected_bytes: int = 64 * _MIB
    pairs: int = 512_000_000
    pairs_of_task: int = 10_000_000
    unmatched_rows: int = 16_000_000
    positions: int = 1 << 30
    partitions: int = 20_000
    rewritten_bytes: int = 4 * _MIB
    broadcast_target_bytes: int = 8 * _MIB
    broadcast_key_bytes: int = 64 * _MIB
    listed_partitions: int = 16
    listed_rows: int = 64
    counted_partitions: int = 64
    counted_rows: int = 1_024
    repeated_share: float = 0.1
    filtered_ranges: int = 16
    one_task_files: int = 32
    one_task_bytes: int = 8 * _MIB
    one_task_rows: int = 10_000
    driver_bytes: int = 64 * _MIB
    driver_bytes_in_local_mode: int = 1024 * _MIB
    driver_files: int = 32
    driver_new_files: int = 200
    driver_source_bytes: int = 128 * _MIB
    driver_rows_bytes: int = 64 * _MIB
    pairs_of_a_file: int = 500_000
    small_partition_bytes: int = 8 * _MIB
    staged_bytes_of_a_file: int = 256 * _MIB
    tasks_without_rebalance: int = 8
    rows_of_a_task: int = 200_000
    many_files: int = 100
    small_file_bytes: int = 8 * _MIB
    sampled_files: int = 100


LIMITS = Limits()
