"""An answer whose events are read later than they came: the same tokens and times, and no more kept than is allowed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.http import arrived as module
from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.arrived import ANSWER_BYTES, Arrived, Unread
from pytest_npubench.engines.http.client import Ended
from pytest_npubench.engines.http.load_run import AT_ONCE, Backlog
from pytest_npubench.errors import MeasurementError

DONE = b"data: [DONE]\n\n"


def _arrived(unread: Unread | None = None, *, num_bytes: int = 2**30, num_events: int = 2**30) -> Arrived:
    return Arrived(num_bytes, 2**20, num_events, unread or Unread())


def _ended(arrived: Arrived, tokens: int) -> Ended:
    request = HttpRequest(id=0, arrival_s=0.0, prompt=(1,), output_tokens=tokens)
    return Ended(request=request, dispatched_s=0.0, arrived=arrived, failed=None)


def _event(text: str, total: int | None) -> bytes:
    document = {"choices": [{"text": text}], "usage": None if total is None else {"completion_tokens": total}}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _times_by_hand(stream: bytes, pieces: list[tuple[float, bytes]], counts: list[int]) -> list[float]:
    """Each event's tokens at the time of the piece that holds its last byte."""
    ends, times = [], []
    for at_s, piece in pieces:
        ends.append(((ends[-1][0] if ends else 0) + len(piece), at_s))
    stop, seen = 0, 0
    for count in counts:
        stop = stream.index(b"\n\n", stop) + 2
        at_s = next(at_s for end, at_s in ends if end >= stop)
        times += [at_s] * (count - seen)
        seen = count
    return times


@given(
    st.lists(st.tuples(st.sampled_from(["a", "[DONE]", ' "error" ', "é\n", "data: "]), st.integers(1, 3)), min_size=2),
    st.data(),
)
def test_a_token_has_the_time_of_its_piece_however_the_bytes_are_cut_and_whenever_they_are_read(events, data):
    counts, stream = [], b""
    for text, number in events:
        counts.append((counts[-1] if counts else 0) + number)
        stream += _event(text, counts[-1])
    whole = stream + DONE
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [
        (float(index), whole[first:stop])
        for index, (first, stop) in enumerate(zip([0, *cuts], [*cuts, len(whole)], strict=True))
    ]
    found = _arrived()
    for at_s, piece in pieces:
        assert not found.is_over
        found.add(at_s, piece)
        if data.draw(st.booleans()):
            found.read()
        if sum(len(one) for _, one in pieces[: int(at_s) + 1]) == len(whole):
            break
    assert found.is_over
    answer = _ended(found, counts[-1]).answer()
    assert answer.failed is None
    assert list(answer.token_times_s) == _times_by_hand(stream, pieces, counts)


@pytest.mark.parametrize("cut", range(1, len(DONE)))
def test_the_end_is_seen_though_it_is_cut(cut):
    """Nothing is read for it, unless the whole word comes without its blank line."""
    found = _arrived()
    found.add(1.0, _event("a", 1) + DONE[:cut])
    found.add(2.0, DONE[cut:])
    assert found.is_over
    assert (found.deltas == []) is (cut < len(DONE) - 2)
    assert _ended(found, 1).answer().token_times_s == (1.0,)


@pytest.mark.parametrize(
    ("stream", "is_over"),
    [
        (b"data: [DONE]\r\n\r\n: c", True),
        (b"data:[DONE]\n\n", True),
        (b"data: [DONE] \n\n", True),
        (b"\xef\xbb\xbfdata: [DONE]\n\n", True),
        (b"data: a\ndata: [DONE]\n\n", None),  # of two lines, and no JSON
        (b'data: {"choices": [{"text": "[DONE]"}]}\n\n', False),
    ],
)
def test_an_end_in_another_form_is_read_at_once(stream, is_over):
    found = _arrived()
    if is_over is None:
        with pytest.raises(MeasurementError, match="malformed stream"):
            found.add(1.0, stream)
    else:
        found.add(1.0, stream)
    assert found.is_over is bool(is_over)


@pytest.mark.parametrize("cut", range(1, 40))
def test_an_error_is_named_when_it_comes_though_it_is_cut(cut):
    stream = b'data: {"error": {"message": "out of blocks"}}\n\n'
    found = _arrived()
    found.add(1.0, stream[:cut])
    with pytest.raises(MeasurementError, match="out of blocks"):
        found.add(2.0, stream[cut:])


def test_what_is_malformed_is_told_when_it_is_read():
    found = _arrived()
    found.add(1.0, b"data: {\n\n" + _event("a", 1) + DONE)
    assert "malformed stream" in _ended(found, 1).answer().failed


@given(st.lists(st.integers(1, 4000), max_size=400))
def test_no_more_is_unread_of_an_answer_than_allowed(sizes):
    unread = Unread()
    found = _arrived(unread)
    for size in sizes:
        found.add(0.0, b":" + b"x" * size + b"\n")
        assert unread.num_bytes <= ANSWER_BYTES
    found.read()
    assert unread.num_bytes == 0


def test_no_more_is_unread_of_all_answers_than_allowed(monkeypatch):
    """Answers that are over are read before those still coming, the first of them first."""
    monkeypatch.setattr(module, "ALL_BYTES", 10_000)
    backlog = Backlog()
    for place in range(200):
        found = _arrived(backlog.unread)
        found.add(float(place), _event("a" * (1 + place % 50), 1) + DONE)
        backlog.add(place, _ended(found, 1))
        assert 0 <= backlog.unread.num_bytes <= 10_000
    open_ones = [_arrived(backlog.unread) for _ in range(100)]
    for found in open_ones:
        found.add(0.0, _event("a" * 90, 1))
        assert backlog.unread.num_bytes <= 10_000
    assert [answer.token_times_s for answer in backlog.in_order()] == [(float(place),) for place in range(200)]


def test_a_long_backlog_is_read_little_by_little(monkeypatch):
    """Answers that ended while there was room, and then one that ends where there is none: the loop waits for few."""
    monkeypatch.setattr(module, "ALL_BYTES", 40_000)
    backlog = Backlog()
    for place in range(100):
        found = _arrived(backlog.unread)
        found.add(0.0, DONE)
        backlog.add(place, _ended(found, 0))
    open_one = _arrived(backlog.unread)
    open_one.add(0.0, _event("a" * 15_000, None))
    least = len(DONE) + module.PIECE_BYTES
    for place in range(100, 110):
        before = backlog.unread.num_bytes
        found = _arrived(backlog.unread)
        found.add(0.0, DONE)
        backlog.add(place, _ended(found, 0))
        assert backlog.unread.num_bytes == before + least - AT_ONCE * least
    assert len(backlog.in_order()) == 110


def test_bytes_and_events_have_their_limits():
    with pytest.raises(MeasurementError, match="more than 64 bytes"):
        _arrived(num_bytes=64).add(0.0, b"x" * 65)
    found = _arrived(num_events=2)
    found.add(0.0, _event("a", None) * 3)
    with pytest.raises(MeasurementError, match="more than 2 events"):
        found.read()


def test_an_event_of_two_lines_is_one_though_its_second_begins_as_an_event_does():
    found = _arrived()
    found.add(1.0, b'data: {"choices": [\n')
    found.add(2.0, b'data: {"text": "a"}]}\n\n')
    found.add(3.0, DONE)
    answer = _ended(found, 1).answer()
    assert (answer.failed, answer.token_times_s) == (None, (2.0,))
