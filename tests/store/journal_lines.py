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


def note(index, **more):
    return {"record": "note", "text": f"note {index}", "index": index, **more}


def round_record(index, fingerprint="f1", campaign="c", digest="d", **more):
    points = {"b128": [0.25]}
    about = {"fingerprint": fingerprint, "campaign": campaign, "campaign_digest": digest}
    return {"record": "round", **about, "round": index, "points": points, **more}


def case_record(case="s/k/i", digest="d", fingerprint="f1", **more):
    about = {"id": "i", "hardware": "cpu", "verdict": {"kind": "passed", "reason": "measured"}}
    return {"record": "case", "case": case, "digest": digest, "fingerprint": fingerprint, **about, **more}


def bodies(records):
    return [{name: value for name, value in record.items() if name != "session"} for record in records]
