"""What the nights said, counted against the truth, in a table with one row for each thing that can happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .play import Played
from .script import Expected, Truth

KILLED = -9
SLOWED = ("ttft_s", "tbt_s")
POWER = 0.8
"""With which a verdict's `mde` would be found, as pytest_npubench/verdict/ says it."""


@dataclass(kw_only=True)
class Row:
    """All nights of one title. Cases are counted once for each runner and night that said something of them.

    `alarms`: cases that regressed and did not change. `misses`: slower cases that are not regressed. `wrong`: any other
    verdict that is not right. `num_promised` counts slower cases whose verdict says that it finds such a change with a
    power of 0.8, `num_found` those of them that regressed. `lost`: cases that should be on the branch after their night
    and are not, or with another number of sessions; `strays`: those that should not be there and are. `statuses`:
    nights that were green and should not have been, or the other way around.
    """

    title: str
    nights: list[int] = field(default_factory=list)
    num_cases: int = 0
    num_slower: int = 0
    num_promised: int = 0
    num_found: int = 0
    num_to_accept: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)

    def add(self, one: Played, truth: Expected) -> None:
        self.nights += [one.number] if one.number not in self.nights else []
        self.kinds.update(one.kinds.values())
        for case, right in truth.truths.items():
            if case in one.kinds:
                self._add_verdict(one, case, right, truth.slower_by.get(case, 0.0))
            elif one.night.is_whole:
                self.wrong.append(f"night {one.number}: {case}: nothing was said of it")
            self._add_acceptance(one, case, right, truth.num_accepted[case])
        wanted = "killed" if one.night.is_killed else "green" if truth.is_green else "red"
        found = {0: "green", 1: "red", KILLED: "killed"}.get(one.status, f"exit status {one.status}")
        if found != wanted:
            self.statuses.append(f"night {one.number}: {found}, want {wanted}")

    def _add_verdict(self, one: Played, case: str, right: Truth, slower_by: float) -> None:
        kind, record = one.kinds[case], one.records[case]
        said = f"night {one.number}: {case}: {kind}: {record['verdict'].get('reason')}"
        self.num_cases += 1
        if right is Truth.SLOWER:
            self.num_slower += 1
            found = kind == "regressed"
            verdicts = [record["metrics"][name]["verdict"] for name in SLOWED if name in record["metrics"]]
            if any(verdict.get("mde") is not None and verdict["mde"] <= slower_by for verdict in verdicts):
                self.num_promised += 1
                self.num_found += found
            if not found:
                self.misses.append(said)
        elif kind == "regressed":
            self.alarms.append(said)
        elif kind not in right.value:
            self.wrong.append(said)

    def _add_acceptance(self, one: Played, case: str, right: Truth, num_accepted: int) -> None:
        said = f"night {one.number}: {case}: {one.on_branch.get(case, 0)} sessions on the branch"
        if one.night.is_whole and right.is_accepted:
            self.num_to_accept += 1
            if one.on_branch.get(case) != num_accepted:
                self.lost.append(f"{said}, want {num_accepted}")
        elif case in one.on_branch:
            self.strays.append(f"{said}, want none of tonight's")

    @property
    def faults(self) -> list[str]:
        return [*self.alarms, *self.misses, *self.wrong, *self.lost, *self.strays, *self.statuses]


def tally(played: Iterable[Played], truths: Sequence[Expected]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for one in played:
        rows.setdefault(one.night.title, Row(title=one.night.title)).add(one, truths[one.number - 1])
    return rows


def table(rows: Mapping[str, Row]) -> str:
    """As Markdown; what the last row sums up, the tests hold to zero."""
    head = ("what happened", "nights", "verdicts", "slower cases found", "alarms", "wrong", "accepted")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows.values():
        found = f"{row.num_slower - len(row.misses)} of {row.num_slower}" if row.num_slower else ""
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(row.kinds.items()))
        wrong = len(row.wrong) + len(row.statuses) + len(row.strays)
        accepted = f"{row.num_to_accept - len(row.lost)} of {row.num_to_accept}"
        nights = ", ".join(map(str, row.nights))
        lines.append(f"| {row.title} | {nights} | {kinds} | {found} | {len(row.alarms)} | {wrong} | {accepted} |")
    total = rows.values()
    slower, missed = (sum(row.num_slower for row in total), sum(len(row.misses) for row in total))
    wanted, lost = (sum(row.num_to_accept for row in total), sum(len(row.lost) for row in total))
    wrong = sum(len(row.wrong) + len(row.statuses) + len(row.strays) for row in total)
    last = (
        "**all**",
        str(sum(len(row.nights) for row in total)),
        f"{sum(row.num_cases for row in total)} verdicts",
        f"{slower - missed} of {slower}",
        str(sum(len(row.alarms) for row in total)),
        str(wrong),
        f"{wanted - lost} of {wanted}",
    )
    return "\n".join([*lines, f"| {' | '.join(last)} |", ""])
