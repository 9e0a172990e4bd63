"""One run spread over several hosts: which groups of cases shard i of n runs.

A group is what must stay together: a campaign, or one case of the user's own. Every shard works out the whole division
by itself, so all of them must be given the same groups and the same durations; then each group is in exactly one.

With durations: longest first, each to the shard with the least so far (LPT; Graham 1969: at most
4/3 - 1/(3n) times the shortest possible). A group of unknown duration counts as the median of the known ones.
Without any: rendezvous hashing (Thaler & Ravishankar 1998), a group goes to the shard whose hash with its name is
largest. A group that comes or goes then moves no other, and one shard more takes over a share and moves nothing else.

Worked example: durations a 5, b 4, c 3, d 3, e 3 in 2 shards: a, then b, c to b's (7), d to a's (8), e to the lighter
(7 + 3): loads 8 and 10; the best possible is 9, and 10 <= (4/3 - 1/6) · 9 = 10.5.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_npubench.errors import ConfigError
from pytest_npubench.store.journal_reader import Journal, Record, Session
from pytest_npubench.store.journal_runs import case_records

OWN = "own"


def parse_shard(text: str) -> tuple[int, int]:
    """ "2/5" -> (2, 5), the second of five. Raises ConfigError saying what is allowed."""
    index, separator, count = text.strip().partition("/")
    if separator and _is_number(index) and _is_number(count) and 1 <= int(index) <= int(count):
        return int(index), int(count)
    raise ConfigError(f"shard {text!r}: want I/N with whole numbers 1 <= I <= N, such as 2/5 for the second of five")


def shard(groups: Sequence[tuple[str, float | None]], index: int, count: int) -> frozenset[str]:
    """Returns the names of the groups that shard `index` of `count` (from 1) runs.

    groups are (name, seconds or None where unknown), in any order. Raises ConfigError for a shard that does not exist,
    a name that stands twice, or a duration that is negative or not finite.
    """
    if not 1 <= index <= count:
        raise ConfigError(f"shard {index}/{count}: want 1 <= {index} <= {count}")
    _check(groups)
    known_s = [duration_s for _, duration_s in groups if duration_s is not None]
    if not known_s:
        return frozenset(name for name, _ in groups if _rendezvous(name, count) == index)
    usual_s = statistics.median(known_s)
    filled = [(usual_s if duration_s is None else duration_s, name) for name, duration_s in groups]
    return _longest_first(filled, count)[index - 1]


def known_durations(
    journal: Journal | None, *, group: Callable[[Record], str] | None = None, profile: str | None = None
) -> dict[str, float]:
    """Group -> the median over the journal's sessions of the seconds that its cases took together, with what they
    compiled. `group`: another grouping than that of shards; `profile`: of runs of that size alone.

    Left out are resumed results, which took no time, and invalid ones. Empty without a journal.
    """
    durations_s: dict[str, list[float]] = {}
    for session in journal.sessions if journal is not None else ():
        if profile is None or session.header["settings"].get("profile") == profile:
            for name, duration_s in _session_durations(session, group or group_of).items():
                durations_s.setdefault(name, []).append(duration_s)
    return {name: statistics.median(values) for name, values in durations_s.items()}


def group_of(record: Mapping[str, Any]) -> str:
    """Returns the group of a journal's case record: its campaign's key HARDWARE-MODEL-bN, or an own case's node id.

    An own case's key names the hardware found, which is not known when shards are made.
    """
    if record["case"].startswith(f"{OWN}/"):
        return str((record.get("axes") or {}).get("test", record["case"]))
    return f"{record['hardware']}-{record.get('model')}-b{record.get('batch_size')}"


def _longest_first(groups: list[tuple[float, str]], count: int) -> list[frozenset[str]]:
    loads = [0.0] * count
    shards: list[set[str]] = [set() for _ in range(count)]
    for duration_s, name in sorted(groups, key=lambda group: (-group[0], _hash(group[1]), group[1])):
        lightest = min(range(count), key=lambda number: (loads[number], len(shards[number]), number))
        loads[lightest] += duration_s
        shards[lightest].add(name)
    return [frozenset(names) for names in shards]


def _rendezvous(name: str, count: int) -> int:
    return max(range(1, count + 1), key=lambda number: _hash(f"{number}/{name}"))


def _hash(text: str) -> int:
    """Equal in every process, unlike hash()."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _session_durations(session: Session, group: Callable[[Record], str]) -> dict[str, float]:
    """Returns the first case of a campaign measures it for all, so only their sum says how long it takes."""
    sums: dict[str, float] = {}
    for record in case_records((session,)):
        if record.get("resumed") or record["verdict"]["kind"] == "invalid":
            continue
        duration_s = record.get("duration_s")
        if isinstance(duration_s, (int, float)) and math.isfinite(duration_s) and duration_s >= 0:
            name = group(record)
            sums[name] = sums.get(name, 0.0) + duration_s
    return sums


def _check(groups: Sequence[tuple[str, float | None]]) -> None:
    names: set[str] = set()
    for name, duration_s in groups:
        if name in names:
            raise ConfigError(f"shard: the group {name!r} stands twice")
        names.add(name)
        if duration_s is not None and not (math.isfinite(duration_s) and duration_s >= 0):
            raise ConfigError(f"shard: the group {name!r} took {duration_s!r}; want seconds >= 0")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7
