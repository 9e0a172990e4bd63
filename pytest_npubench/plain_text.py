"""Text that others wrote, such as ids, file names, journals and answers of servers, as a terminal may show it.

A terminal obeys what it is sent: an escape sequence retitles its window, moves its cursor or hides a line (ECMA-48), a
bidirectional override shows "tset" for "test" (Unicode TR 9), and a line break begins what looks like a line of ours,
which GitHub would take for a command. Such signs are shown as Python writes them instead:

    plain("tiny\\x1b[2J\\n\\u202e") == r"tiny\\x1b[2J\\n\\u202e"
"""

from __future__ import annotations

import unicodedata

# C0, DEL and C1; marks of format such as overrides and signs of no width; halves of a surrogate pair; line separators
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def plain(text: object, keep: str = "") -> str:
    """The text in one line that a terminal shows and does not obey; signs in `keep`, such as a line break, stay."""
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(
        _escaped(sign) if unicodedata.category(sign) in UNSEEN and sign not in keep else sign for sign in raw
    )


def plain_lines(text: object) -> str:
    """The same of text that has lines of its own."""
    return plain(text, keep="\n")


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def counted(number: float, noun: str, plural: str = "") -> str:
    """Such as "1 session" and "2 sessions"."""
    return f"{number:.0f} {noun if number == 1 else plural or f'{noun}s'}"
