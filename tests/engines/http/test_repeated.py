"""A stream whose events repeat the text so far, against the same stream in pieces."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.http.answer import REPEATED, UNENDED, HttpRequest
from pytest_npubench.engines.http.arrived import Arrived, Unread
from pytest_npubench.engines.http.client import Ended

DONE = b"data: [DONE]\n\n"
PIECES = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 4)), min_size=3, max_size=8
)


def event(text, key="content", **fields) -> bytes:
    choice = {
        "delta": {key: text},
        "token_ids": fields.pop("token_ids", None),
        "finish_reason": fields.pop("end", None),
    }
    return b"data: " + json.dumps({"choices": [choice], **fields}).encode() + b"\n\n"


def answer(events, tokens):
    """Of events that came a second apart."""
    arrived = Arrived(2**30, 2**20, 2**30, Unread())
    for at_s, each in enumerate(events):
        arrived.add(float(at_s), each)
    if not arrived.is_over:
        arrived.end()
    request = HttpRequest(id=0, arrival_s=0.0, prompt=(1,), output_tokens=tokens)
    return Ended(request=request, dispatched_s=0.0, arrived=arrived, failed=None).answer()


@given(PIECES, st.sampled_from(["running", "last", "listed", "none"]), st.booleans(), st.booleans())
def test_a_text_that_is_repeated_is_counted_as_the_same_text_in_pieces(pieces, usage, lists_repeat, ends_apart):
    """Pieces begin with their number, so that none of them begins as the one before."""
    texts, counts = zip(*((f"{index}{text}", number) for index, (text, number) in enumerate(pieces)), strict=True)
    totals, events = list(accumulate(counts)), []
    for shown, listed in ((texts, counts), (tuple(accumulate(texts)), totals if lists_repeat else counts)):
        rows = [
            event(
                text,
                token_ids=[1] * number if usage == "listed" else None,
                usage={"completion_tokens": total} if usage == "running" else None,
            )
            for text, number, total in zip(shown, listed, totals, strict=True)
        ]
        if ends_apart:
            rows.append(event(shown[-1] if shown != texts else "", end="length"))
        if usage in ("last", "listed"):
            rows.append(b'data: {"choices": [], "usage": {"completion_tokens": %d}}\n\n' % totals[-1])
        events.append([*rows, DONE])
    in_pieces, repeated = (answer(rows, totals[-1]) for rows in events)
    assert repeated.remarks.pop(REPEATED) == 1
    assert REPEATED not in in_pieces.remarks
    assert repeated == in_pieces


@pytest.mark.parametrize(
    "events",
    [
        [event("ab ")] * 4,
        [event("a"), event("ab"), event("abc"), event("c")],
        [event("a"), event("ab")],
        [event("a", key="reasoning"), event("b"), event("bc")],
        [event("a"), event("ab", created=1), event("abc", created=1).replace(b": 1}", b": %s}" % (b"9" * 5000))],
    ],
)
def test_a_stream_in_pieces_is_not_taken_for_one_that_repeats(events):
    found = answer([*events, DONE], len(events))
    assert (found.failed, list(found.remarks)) == (None, [])
    assert found.token_times_s == tuple(map(float, range(len(events))))


@pytest.mark.parametrize(("reasoning", "content"), [("abc", "ab"), ("", "abc")])
def test_what_stops_being_repeated_when_another_text_begins_is_no_contradiction(reasoning, content):
    texts = [*(event(reasoning[: at + 1], key="reasoning") for at in range(len(reasoning)))]
    texts += [event(content[: at + 1]) for at in range(len(content))]
    assert answer([*texts, DONE], len(texts)).remarks == {REPEATED: 1}


@pytest.mark.parametrize(
    ("last", "num_tokens"),
    [
        (event("b", end="length").rstrip(), 2),
        (event("b", end="length").removesuffix(b"\n"), 2),
        (event("b", end="length").replace(b"\n", b"\r\n").removesuffix(b"\r\n"), 2),
        (event("é", end="length")[:-20], 1),
        (b"data: 3", 1),
        (b"data: \xc3", 1),
    ],
)
def test_a_last_event_without_its_blank_line_counts_where_it_is_whole(last, num_tokens):
    found = answer([event("a"), last], 2)
    assert found.token_times_s == (0.0, 1.0)[:num_tokens]
    assert found.remarks == ({UNENDED: 1} if num_tokens == 2 else {})
