"""The HTTP of an answer: the same however its bytes are cut, what it may take, and when a connection is used again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.arrived import Arrived, Unread
from pytest_npubench.engines.http.client import Ended, answer_limits
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.reply import LINE_BYTES, AnswerError, Reply

EVENTS = [b'data: {"choices": [{"text": "%d"}]}\n\n' % number for number in range(3)] + [b"data: [DONE]\n\n"]
BODY = b"".join(EVENTS)
CHUNKED = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in EVENTS) + b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
KEPT = {
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    "continued": CONTINUE + b"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
}
CLOSED = {
    "until the end": b"HTTP/1.1 200 OK\r\n\r\n" + BODY,
    "of HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    "closing": b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
}


PIECE_S = 2.0**-10  # all pieces behind [DONE] come within END_S


class Told:
    """What came of an answer: its pieces are numbered, and each comes PIECE_S after the one before."""

    def __init__(self, pieces: list[bytes], *, is_lost: bool) -> None:
        self.again: list[bool] = []
        self.num_fed = 0
        asyncio.run(self._feed(pieces, is_lost))

    def _left(self, again: bool) -> None:
        self.again.append(again)
        self.num_fed_at_end = self.num_fed + 1

    async def _feed(self, pieces: list[bytes], is_lost: bool) -> None:
        arrived = Arrived(2**20, 2**16, 100, Unread())
        reply = Reply(
            arrived,
            now_s=lambda: self.num_fed * PIECE_S,
            deadline_s=1e9,
            time_s=1e9,
            idle_s=1e9,
            leave=self._left,
        )
        for piece in pieces:
            reply.feed(piece)
            self.num_fed += 1
        if is_lost:
            reply.lost(None)
        self.failed: str | None = None
        try:
            await asyncio.wait_for(reply.over, 5.0)
        except AnswerError as error:
            self.failed = str(error)
        request = HttpRequest(id=0, arrival_s=0.0, prompt=(1,), output_tokens=3)
        ended = Ended(request=request, dispatched_s=0.0, arrived=arrived, failed=self.failed)
        self.answer = ended.answer()


@pytest.mark.parametrize("name", [*KEPT, *CLOSED])
@given(st.data())
def test_an_answer_is_the_same_however_its_bytes_are_cut(name, data):
    """A token has the number of the piece in which its event's last byte came."""
    whole = {**KEPT, **CLOSED}[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[first:stop] for first, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    told = Told(pieces, is_lost=name in CLOSED)
    assert told.answer.failed is None
    ends = [whole.index(event) + len(event) for event in EVENTS[:-1]]
    came = [next(index for index, stop in enumerate([*cuts, len(whole)]) if stop >= end) for end in ends]
    assert [time_s / PIECE_S for time_s in told.answer.token_times_s] == came
    assert told.again == [name in KEPT]


@pytest.mark.parametrize("name", KEPT)
def test_an_answer_that_breaks_off_is_named_and_its_connection_left(name):
    """What came of it is kept."""
    whole = KEPT[name]
    told = Told([whole[: whole.index(EVENTS[2])]], is_lost=True)
    assert told.failed == "disconnected: the server closed the connection"
    assert len(told.answer.token_times_s) == 2
    assert told.again == [False]


def test_the_head_may_be_long_and_each_of_its_lines_may_not():
    lines = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 4000) for number in range(100))
    body = b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
    start = b"HTTP/1.1 200 OK\r\n"
    assert Told([start + lines + body], is_lost=False).answer.failed is None
    for long in (start + b"X: " + b"x" * LINE_BYTES + b"\r\n" + body, b"HTTP/1.1 200 " + b"x" * 9000):
        for pieces in ([long], [long[first : first + 100] for first in range(0, len(long), 100)]):
            told = Told(pieces, is_lost=False)
            assert "malformed stream: no answer in HTTP: Got more than 8190 bytes" in told.failed
            assert told.again == [False]


def test_what_follows_the_end_is_waited_for_and_does_not_change_the_answer():
    """The framing's end comes in a piece of its own: until then the connection is not free."""
    whole = KEPT["chunked"]
    first = whole[: -len(b"\r\n0\r\n\r\n")]
    for rest, again in ((b"\r\n0\r\n\r\n", True), (b"what", False)):
        told = Told([first, rest], is_lost=False)
        assert (told.answer.failed, told.again) == (None, [again])
        assert told.num_fed_at_end == 2
    lost = Told([first], is_lost=True)
    assert (lost.answer.failed, lost.again) == (None, [False])


def test_a_switch_to_another_protocol_is_a_refusal():
    told = Told([b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"], is_lost=False)
    assert told.failed == "HTTP 101 Switching Protocols, of no type: no message"


def _endpoint(**changes: object) -> Endpoint:
    return Endpoint(**{"url": "http://host/v1", "model": "m", **changes})


def test_the_worked_example():
    found = answer_limits(_endpoint(), 16)
    assert (found.time_s, found.num_bytes, found.event_bytes, found.num_events) == (150.0, 786432, 266240, 128)


@pytest.mark.parametrize(
    ("changes", "tokens", "time_s"),
    [
        ({}, 1, 75.0),
        ({}, 10_000, 600.0),
        ({"connect_timeout_s": 1.0, "idle_timeout_s": 2.0}, 4, 23.0),
        ({"answer_timeout_s": 3.0}, 10_000, 3.0),
        ({"answer_timeout_s": 7200.0}, 1, 7200.0),
    ],
)
def test_the_time_is_derived_unless_it_is_given(changes, tokens, time_s):
    assert answer_limits(_endpoint(**changes), tokens).time_s == time_s
