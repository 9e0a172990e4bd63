"""A branch of the remote repository that holds baselines, read and written without touching the work tree.

Commits are made with git's plumbing from the work tree's repository, whose configuration has the runner's access to the
remote: neither its files, its index nor its HEAD change, so the revision that a measurement records stays what was
checked out. Works in the shallow clones that CI makes.

A token in NPUBENCH_GIT_TOKEN, GITHUB_TOKEN or GH_TOKEN is used for an https remote. It goes to git by its environment:
on no command line, into no file, and out of every message.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pytest_npubench.core.secret import keep_out, without_kept
from pytest_npubench.errors import NightlyError
from pytest_npubench.plain_text import plain

FOLDER = "baselines"
LEFT_OUT = (f":(exclude){FOLDER}/.npubench",)  # the lock of who accepts
TIMEOUT_S = 300.0
TOKENS = ("NPUBENCH_GIT_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")
AUTHOR = "npubench nightly"
EMAIL = "npubench-nightly@localhost"
KINDS = {"100": "a file", "120": "a link", "160": "a submodule"}  # by the first digits of git's mode
ATTRIBUTES = "a list of attributes, by which git changes bytes"
MISSING = 2  # git ls-remote --exit-code: no such ref
OWN_REF = "refs/npubench/baselines"  # keeps what was fetched from git's garbage collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Branch `name` of the remote `remote` of the repository in `work`."""

    work: Path
    remote: str
    name: str
    environment: Mapping[str, str]

    def tip(self) -> str | None:
        """The branch's newest commit, fetched; None where the remote lacks the branch. Raises NightlyError."""
        done = self._run("ls-remote", "--exit-code", self.remote, f"refs/heads/{self.name}")
        if done.returncode == MISSING:
            return None
        if done.returncode:
            raise NightlyError(f"branch {self.name} of {self._address()}: {self._said(done)}")
        fetched_ref = f"{OWN_REF}/{self.name}"
        self._git("fetch", "--quiet", "--no-tags", self.remote, f"+refs/heads/{self.name}:{fetched_ref}")
        return self._git("rev-parse", fetched_ref)

    def extract(self, commit: str, directory: Path) -> None:
        """Put the baselines of a commit into `directory`/baselines. Raises NightlyError, before anything is written
        where the commit holds anything but files and folders there."""
        entries = [entry for entry in self._git("ls-tree", "-r", "-z", commit, "--", FOLDER).split("\0") if entry]
        for about, _, path in (entry.partition("\t") for entry in entries):
            kind = ATTRIBUTES if path.lower().endswith("/.gitattributes") else KINDS.get(about[:3], "no file")
            if kind != "a file" or path == FOLDER:
                raise NightlyError(f"branch {self.name}, {plain(path)}: is {kind}; want plain files in folders")
        if not entries:
            return
        with _index(directory) as index:
            self._git("read-tree", f"--prefix={FOLDER}/", f"{commit}:{FOLDER}", **index)
            # in a work tree of its own: the checked-out branch's attributes are none of this one's
            work_tree = {**index, "GIT_WORK_TREE": str(directory)}
            self._git("checkout-index", "--all", "--force", f"--prefix={directory}/", **work_tree)

    def commit(self, parent: str | None, directory: Path, message: str) -> str:
        """A commit on top of `parent` whose baselines are those in `directory`/baselines, new and removed files too.

        Raises NightlyError, also where they are those of `parent`.
        """
        with _index(directory) as index:
            if parent is not None:
                self._git("read-tree", parent, **index)
            work_tree = {**index, "GIT_WORK_TREE": str(directory)}
            self._git("add", "--all", "--force", "--", FOLDER, *LEFT_OUT, **work_tree)
            tree = self._git("write-tree", **index)
        if parent is not None and tree == self._git("rev-parse", f"{parent}^{{tree}}"):
            raise NightlyError(f"git sees no change of {FOLDER} since {parent[:12]}, although sessions were accepted")
        return self._git("commit-tree", tree, *(("-p", parent) if parent else ()), "-m", message)

    def push(self, commit: str, *, onto: str | None = None, force: bool = False, options: Sequence[str] = ()) -> None:
        """Push a commit to this branch, or to `onto`. Raises NightlyError where the remote does not take it."""
        target = f"{'+' if force else ''}{commit}:refs/heads/{onto or self.name}"
        self._git("push", "--quiet", *(f"--push-option={option}" for option in options), self.remote, target)

    def _address(self) -> str:
        return masked(self._run("remote", "get-url", self.remote).stdout.strip() or self.remote)

    def _git(self, *arguments: str, **environment: str) -> str:
        done = self._run(*arguments, **environment)
        if done.returncode:
            verb = next(word for word in arguments if not word.startswith("-"))
            raise NightlyError(f"git {verb} ({self.name} of {self._address()}): {self._said(done)}")
        return done.stdout.strip()

    def _run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", str(self.work), "-c", "core.autocrlf=false", "-c", f"core.attributesFile={os.devnull}"]
        try:
            return subprocess.run(
                [*command, *arguments],
                env={**_unattended(self.environment), **self._access(), **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            raise NightlyError("git is not installed; --promote local keeps baselines without it") from None
        except subprocess.TimeoutExpired:
            raise NightlyError(
                f"git {arguments[0]}: no answer from {masked(self.remote)} within {TIMEOUT_S:g} s"
            ) from None

    def _said(self, done: subprocess.CompletedProcess[str]) -> str:
        """git's own reason in one line, and what a person can do where the remote refused access."""
        lines = [line.strip() for line in done.stderr.splitlines() if not line.startswith("hint:")]
        said = masked("; ".join(filter(None, lines)) or f"exit status {done.returncode}")
        if re.search(r"could not read Username|Authentication failed|403|denied|invalid credentials", said):
            return f"{said}; {self._about_access()}"
        return said

    def _about_access(self) -> str:
        variable = next((name for name in TOKENS if self.environment.get(name)), None)
        if variable is None:
            return f"no access: set one of {', '.join(TOKENS)}, or give the checkout its credentials"
        return f"{variable} gives no access to this: it needs to write contents"

    def _access(self) -> dict[str, str]:
        asked = ["git", "-C", str(self.work), "remote", "get-url", "--push", self.remote]
        address = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        return access(address, self.environment)


def access(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """git's configuration, as environment variables, that gives an https remote the token; none for any other."""
    token = next((environment[name] for name in TOKENS if environment.get(name)), None)
    keep_out(token or "")
    parts = urlsplit(address)
    if token is None or parts.scheme != "https":
        return {}
    basic = base64.b64encode(f"x-access-token:{token}".encode()).decode("ascii")
    key = f"http.https://{parts.netloc.rpartition('@')[2]}/.extraheader"
    # the empty value drops the header that a checkout may have left: two of them are refused
    pairs = ((key, ""), (key, f"AUTHORIZATION: basic {basic}"))
    settings = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for index, (name, value) in enumerate(pairs):
        settings |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
    return settings


def masked(text: str) -> str:
    """The text without a token, and without what stands before an @ in an address: https://***@github.com/ann/bench."""
    return re.sub(r"://\S*@", "://***@", without_kept(text))


def remote_address(work: Path, remote: str) -> str | None:
    """The address of a remote; None where `work` is in no repository or has no such remote."""
    try:
        done = subprocess.run(
            ["git", "-C", str(work), "remote", "get-url", remote], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def _unattended(environment: Mapping[str, str]) -> dict[str, str]:
    """Lets git ask nobody anything, speak English, and sign with our name unless it has another."""
    settings = {name: value for name, value in environment.items() if name not in TOKENS}
    for role in ("AUTHOR", "COMMITTER"):
        settings.setdefault(f"GIT_{role}_NAME", AUTHOR)
        settings.setdefault(f"GIT_{role}_EMAIL", EMAIL)
    settings.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    return {**settings, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": "", "LC_ALL": "C"}


@contextmanager
def _index(directory: Path) -> Iterator[dict[str, str]]:
    """A separate index in that folder, so that the work tree's stays as it is."""
    path = directory / ".npubench-index"
    path.unlink(missing_ok=True)  # of a kill
    try:
        yield {"GIT_INDEX_FILE": str(path.absolute())}
    finally:
        path.unlink(missing_ok=True)
