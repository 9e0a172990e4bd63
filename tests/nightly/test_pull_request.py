"""GitHub's API where it does not answer as it should: a pull request is not opened, and that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from engines.http.hostile import Answer, Hostile, head, said

from pytest_npubench.nightly.pull_request import open_pull_request

TOKEN = "ghp-0123456789"


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Hostile]]:
    servers = []

    def start(answer: Answer) -> Hostile:
        servers.append(Hostile(said(), answer, list_path="/pulls"))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_token_goes_to_no_other_address(serve, status):
    other = serve(said(head("200 OK"), b"[]"))
    server = serve(said(head(f"{status} Moved", f"Location: http://127.0.0.1:{other.port}/pulls?key=secret")))
    found = open_pull_request(
        head="topic",
        base="main",
        title="t",
        body="b",
        environment={"GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": server.url},
    )
    assert found.url is None
    assert f"HTTP {status}, which redirects to http://127.0.0.1:{other.port}/pulls" in found.said
    assert "secret" not in found.said
    assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {TOKEN}"]
    assert other.asked == []
