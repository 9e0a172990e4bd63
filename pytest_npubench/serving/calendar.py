"""Which requests something happens to at which step, so that no iteration has to look at all of them."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.serving.member import Member


class Calendar:
    """Members by step. Each is entered at most once at a time."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[int, list[Member]] = {}

    def put(self, step: int, member: Member) -> None:
        self._at.setdefault(step, []).append(member)

    def take(self, step: int) -> Sequence[Member]:
        """Those of that step, who are then in the calendar no more."""
        return self._at.pop(step, ())

    def remove(self, step: int, member: Member) -> None:
        """Nothing where it does not stand there."""
        members = self._at.get(step, [])
        if member in members:
            members.remove(member)
