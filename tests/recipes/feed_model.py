"""What a feed of changes makes of a table, in plain Python: the events of each key in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """A change: `values` of a delete say nothing."""

    key: int | None
    sequence: int
    values: tuple[str | None, ...]
    deletes: bool = False


Version = tuple[int, int | None, tuple[str | None, ...]]


def in_order(events: Iterable[Event], key: int | None, *, ignore_nulls: bool) -> list[Event]:
    """Gives a key's events, each once, with the values that NULL leaves as they were."""
    found: list[Event] = []
    for event in sorted({e for e in events if e.key == key}, key=lambda e: e.sequence):
        before = found[-1] if found else None
        values = event.values
        if ignore_nulls and before is not None and not before.deletes and not event.deletes:
            values = tuple(kept if value is None else value for value, kept in zip(values, before.values, strict=True))
        found.append(Event(key, event.sequence, values, event.deletes))
    return found


def keys_of(events: Iterable[Event]) -> set[int | None]:
    return {event.key for event in events}


def newest(events: Iterable[Event], *, ignore_nulls: bool) -> dict[int | None, tuple[str | None, ...]]:
    """Gives the row of each key that is not deleted."""
    events = list(events)
    last = {key: in_order(events, key, ignore_nulls=ignore_nulls)[-1] for key in keys_of(events)}
    return {key: event.values for key, event in last.items() if not event.deletes}


def history(events: Iterable[Event], tracked: Sequence[int], *, ignore_nulls: bool) -> dict[int | None, list[Version]]:
    """Gives the versions of each key; `tracked` are the positions of the values that make a new one."""
    events, found = list(events), {}
    for key in keys_of(events):
        versions: list[Version] = []
        for event in in_order(events, key, ignore_nulls=ignore_nulls):
            current = versions[-1] if versions and versions[-1][1] is None else None
            if current is not None:
                begin, _, values = current
                if not event.deletes and all(values[i] == event.values[i] for i in tracked):
                    versions[-1] = (begin, None, event.values)
                    continue
                versions[-1] = (begin, event.sequence, values)
            if not event.deletes:
                versions.append((event.sequence, None, event.values))
        if versions:
            found[key] = versions
    return found
