"""A journal's lines as objects, and back: sealed anew where a test altered them."""

import json
from collections import Counter

from pytest_npubench.store.journal_format import sealed


def read_lines(path):
    """The records in the file's order, without their seals."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: item for name, item in record.items() if name not in ("sequence", "crc32")} for record in found]


def write_lines(path, records):
    numbers = Counter()
    lines = []
    for record in records:
        lines.append(sealed(_text(record), numbers[record["session"]]))
        numbers[record["session"]] += 1
    path.write_bytes(b"".join(lines))


def edited(path, edit):
    """The file's lines as bytes, changed in place by `edit`."""
    lines = path.read_bytes().splitlines(keepends=True)
    edit(lines)
    path.write_bytes(b"".join(lines))


def _text(record):
    return json.dumps(record, separators=(",", ":")).encode()
