"""Where a change came from, as far as stacks tell: what differs between the last night before it and its first.

Worked example: the night before ran at commit a1b2c3d4 on driver 570.86, the first changed one at e5f6a7b8 on the same:
"between commits a1b2c3d4 and e5f6a7b8; the stack is the same".
"""

from __future__ import annotations

from datetime import datetime

from pytest_npubench.store.accepted_session import began_at
from pytest_npubench.store.fingerprint import Fingerprint

NUM_NAMED = 3
REVISION, NUM_DIGITS = "git_revision", 8


def origin(before: Fingerprint, first: Fingerprint) -> str:
    old, new = (stack.host.git_revision for stack in (before, first))
    stack = [text for text in before.differences(first) if not text.startswith(f"{REVISION} ")]
    more = f" and {len(stack) - NUM_NAMED} more" if len(stack) > NUM_NAMED else ""
    parts = [", ".join(stack[:NUM_NAMED]) + more if stack else "the stack is the same"]
    if old and new:
        same = f"at the same commit {new[:NUM_DIGITS]}"
        parts.insert(0, same if old == new else f"between commits {old[:NUM_DIGITS]} and {new[:NUM_DIGITS]}")
    return "; ".join(parts)


def day_of(session: str) -> str:
    """ "2026-11-20" of a session's name that says when it began; the name where it does not."""
    unknown = datetime.min.isoformat()
    began = began_at(session, unknown)
    return session if began == datetime.fromisoformat(unknown) else f"{began:%Y-%m-%d}"
