"""Text inside an SVG: the measures that all pictures share, and its characters made safe.

Units are those of the view box.
"""

from __future__ import annotations

from html import escape

WIDTH = 500.0
CHARACTER = 6.6
"""Widest mean width of a character of an axis, at 12 units of height."""
LINE_HEIGHT = 18.0


def escaped(text: object) -> str:
    """Characters that XML cannot hold become a question mark."""
    words = str(text)
    if not words.isprintable():
        words = "".join(one if one.isprintable() or one == " " else "\ufffd" for one in words)
    return escape(words)
