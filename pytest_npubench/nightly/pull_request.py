"""A pull request for a topic branch, by GitHub's REST API (POST /repos/OWNER/REPOSITORY/pulls).

https://docs.github.com/en/rest/pulls/pulls#create-a-pull-request: 201 with "html_url". An open one is looked for first,
since a topic branch that was pushed again is in its pull request already.
The branch is pushed by then, so what fails here loses nothing: a person can open the pull request by hand. That goes
for a redirect too, which a renamed repository has: it is told and not followed, as the token would go along.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.server_access import redirected_to

TIMEOUT_S = 30.0
TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request's address, None where there is none, and in words what was done."""

    url: str | None
    said: str


def open_pull_request(*, head: str, base: str, title: str, body: str, environment: Mapping[str, str]) -> PullRequest:
    """Opens a pull request unless it is open already. Never raises: a failure is a text in the result."""
    repository = environment.get("GITHUB_REPOSITORY")
    token = next((environment[name] for name in TOKENS if environment.get(name)), None)
    if not repository or token is None:
        missing = "GITHUB_REPOSITORY" if not repository else f"one of {', '.join(TOKENS)}"
        return PullRequest(url=None, said=f"no pull request: {missing} is not set; {_by_hand(head, base, environment)}")
    api = environment.get("GITHUB_API_URL", "https://api.github.com")
    wanted = {"title": title, "head": head, "base": base, "body": body}
    owner = repository.partition("/")[0]
    try:
        pulls = _call(f"{api}/repos/{repository}/pulls?state=open&head={owner}:{head}&base={base}", token, None)
        if isinstance(pulls, list) and pulls:
            return PullRequest(url=str(pulls[0]["html_url"]), said=f"pull request {pulls[0]['html_url']}")
        made = _call(f"{api}/repos/{repository}/pulls", token, wanted)
        return PullRequest(url=str(made["html_url"]), said=f"pull request {made['html_url']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = _status(error) if isinstance(error, urllib.error.HTTPError) else str(error)
        return PullRequest(url=None, said=f"no pull request: {why}; {_by_hand(head, base, environment)}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: object) -> None:
        """Returns None, so that an HTTPError is raised."""


def _status(error: urllib.error.HTTPError) -> str:
    location = error.headers.get("Location") if 300 <= error.code < 400 else None
    return f"HTTP {error.code}" + (f", which redirects to {redirected_to(location)}" if location else "")


def _by_hand(head: str, base: str, environment: Mapping[str, str]) -> str:
    server, repository = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    if server and repository:
        return f"open it by hand: {server}/{repository}/compare/{base}...{head}"
    return f"the branch {head} is pushed: open one onto {base} by hand"


def _call(url: str, token: str, content: object) -> Any:
    request = urllib.request.Request(
        url,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "User-Agent": "pytest-npubench",
        },
    )
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S) as answer:
        return json_value(answer.read())
