"""Fingerprints: what must be shared to compare, everything to resume, and the difference in words."""

import json
import os
import platform
import re
import subprocess
from dataclasses import fields, replace
from importlib import metadata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError, StoreError
from pytest_npubench.store.fingerprint import (
    DeviceFacts,
    Fingerprint,
    FingerprintKey,
    HostFacts,
    collect,
    collect_host,
    cpu_model,
    git_revision,
    installed,
    untracked_python,
    why_no_revision,
)

TEXT = st.text(max_size=8)
PAIRS = st.dictionaries(TEXT, TEXT, max_size=3).map(lambda pairs: tuple(pairs.items()))
DEVICES = st.builds(
    DeviceFacts,
    family=TEXT,
    name=TEXT,
    device_class=TEXT,
    driver=st.none() | TEXT,
    runtime=st.none() | TEXT,
    compiler=st.none() | TEXT,
    power_policy=st.none() | TEXT,
    firmware=st.none() | TEXT,
    clock_policy=st.none() | TEXT,
    extra=PAIRS,
)
HOSTS = st.builds(
    HostFacts,
    name=TEXT,
    cpu_model=TEXT,
    num_cores=st.integers(1, 512),
    system=TEXT,
    python=TEXT,
    libraries=PAIRS,
    plugin_version=TEXT,
    git_revision=st.none() | TEXT,
)
FINGERPRINTS = st.builds(Fingerprint, device=DEVICES, host=HOSTS)


@settings(max_examples=50)
@given(FINGERPRINTS)
def test_json_round_trip(fingerprint):
    again = Fingerprint.from_json(json.loads(json.dumps(fingerprint.to_json())))
    assert again == fingerprint
    assert again.digest() == fingerprint.digest()
    assert FingerprintKey.from_json(json.loads(json.dumps(fingerprint.key().to_json()))) == fingerprint.key()


@settings(max_examples=100)
@given(FINGERPRINTS, FINGERPRINTS)
def test_digests_and_differences_agree_with_equality(one, other):
    assert (one.digest() == other.digest()) == (one.to_json() == other.to_json())
    assert bool(one.differences(other)) == (one.to_json() != other.to_json())
    assert bool(one.key().differences(other.key())) == (one.key() != other.key())


def test_worked_example(fingerprint):
    upgraded = replace(fingerprint, device=replace(fingerprint.device, driver="580.12", power_policy="700 W"))
    assert fingerprint.differences(upgraded) == ("driver 570.86 -> 580.12", "power_policy unknown -> 700 W")
    assert fingerprint.key().differences(upgraded.key(), across=["driver"]) == ("power_policy unknown -> 700 W",)
    assert fingerprint.key().differences(upgraded.key(), across=["driver", "power_policy"]) == ()


def test_host_and_revision_are_no_part_of_the_key_but_of_the_digest(fingerprint):
    host = replace(fingerprint.host, name="bench-2", git_revision="ba9876543210", libraries=(("jax", "0.11.0"),))
    other = replace(fingerprint, host=host)
    assert other.key() == fingerprint.key()
    assert other.digest() != fingerprint.digest()
    assert fingerprint.differences(other) == (
        "host bench-1 -> bench-2",
        "git_revision 0123456789ab -> ba9876543210",
        "jax 0.10.2 -> 0.11.0",
        "numpy 2.4.6 -> unknown",
    )


def test_an_extra_fact_named_like_a_part_of_the_key_hides_nothing(fingerprint):
    one = replace(fingerprint, device=replace(fingerprint.device, extra=(("driver", "x"),)))
    other = replace(one, device=replace(one.device, driver="580.12"))
    assert one.differences(other) == ("driver 570.86 -> 580.12",)


@pytest.mark.parametrize("name", [field.name for field in fields(DeviceFacts) if field.name not in ("family", "extra")])
def test_every_device_fact_but_family_and_extra_is_in_the_key(fingerprint, name):
    other = replace(fingerprint, device=replace(fingerprint.device, **{name: "other"}))
    assert len(fingerprint.key().differences(other.key())) == 1
    assert fingerprint.key().digest() != other.key().digest()


def test_comparing_across_an_unknown_part_names_the_parts(fingerprint):
    with pytest.raises(ConfigError, match=r"across 'kernel': allowed are accelerator, device_class, driver, runtime"):
        fingerprint.key().differences(fingerprint.key(), across=["kernel"])


def test_a_field_that_is_missing_or_wrong_is_named(fingerprint):
    content = fingerprint.to_json()
    content["host"]["num_cores"] = "8"
    with pytest.raises(StoreError, match=r"^fingerprint\.host\.num_cores: want a whole number, found a string$"):
        Fingerprint.from_json(content)
    del content["device"]["driver"]
    with pytest.raises(StoreError, match=r"^fingerprint\.device\.driver: missing; want a string or null$"):
        Fingerprint.from_json(content)


def test_fields_of_a_later_version_are_left_aside(fingerprint):
    content = fingerprint.to_json()
    content["device"]["colour"] = "green"
    assert Fingerprint.from_json(content) == fingerprint


def test_what_was_written_before_firmware_and_clock_policy_is_read_and_keeps_its_digests(fingerprint):
    """Both are unknown then. The digests were written by the version before: files and records refer to them."""
    content = fingerprint.to_json()
    assert not {"firmware", "clock_policy"} & (content["device"].keys() | fingerprint.key().to_json().keys())
    again = Fingerprint.from_json(content)
    assert (again.device.firmware, again.device.clock_policy) == (None, None)
    assert again.digest() == fingerprint.digest() == "6ed4f5d321c1"
    assert FingerprintKey.from_json(fingerprint.key().to_json()).digest() == "86a724a4"


def test_firmware_and_clocks_tell_devices_apart(fingerprint):
    other = replace(
        fingerprint, device=replace(fingerprint.device, firmware="VBIOS 96.00", clock_policy="performance, boost off")
    )
    assert fingerprint.key().differences(other.key()) == (
        "firmware unknown -> VBIOS 96.00",
        "clock_policy unknown -> performance, boost off",
    )
    assert other.key().differences(fingerprint.key(), across=["firmware", "clock_policy"]) == ()
    content = json.loads(json.dumps(other.to_json()))
    assert Fingerprint.from_json(content) == other
    content["device"]["firmware"] = 96
    with pytest.raises(
        StoreError, match=r"^fingerprint\.device\.firmware: want a string or null, found a whole number$"
    ):
        Fingerprint.from_json(content)


def test_collect_reads_this_process(fingerprint, tmp_path):
    found = collect(fingerprint.device, tmp_path)
    assert found.device == fingerprint.device
    assert found.host.name == platform.node()
    assert dict(found.host.libraries)["pytest"] == metadata.version("pytest") == pytest.__version__
    assert found.host.num_cores <= (os.cpu_count() or 1)
    assert found.host.git_revision is None
    assert collect_host(tmp_path) == found.host


def test_libraries_that_are_not_installed_are_left_out():
    assert installed(["no-such-distribution", "pytest"]) == (("pytest", pytest.__version__),)


def test_cpu_model(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some CPU: v2\nprocessor\t: 1\nmodel name\t: Other\n")
    assert cpu_model(cpuinfo) == "Some CPU: v2"
    assert cpu_model(tmp_path / "absent") in (platform.processor(), platform.machine())


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        git("init", "-q")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    return tmp_path, git


def test_git_revision_of_a_clean_and_a_changed_checkout(repository, monkeypatch):
    rootdir, git = repository
    assert git_revision(rootdir) is None  # no commit yet
    (rootdir / "a.txt").write_text("1\n")
    git("add", "a.txt")
    git("commit", "-q", "-m", "first")
    git("tag", "v1")
    head = git("rev-parse", "--short=12", "HEAD")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")  # as inside a hook of another repository
    assert git_revision(rootdir) == head
    found = []
    for text in ("2\n", "3\n", "2\n"):
        (rootdir / "a.txt").write_text(text)
        found.append(git_revision(rootdir))
    assert re.fullmatch(rf"{head}-dirty\.[0-9a-f]{{6}}", found[0])
    assert found[0] == found[2] != found[1]


def test_a_changed_binary_file_and_a_staged_change_tell_revisions_apart(repository):
    rootdir, git = repository
    (rootdir / "b").write_bytes(b"\0\1\2")
    git("add", "b")
    git("commit", "-q", "-m", "first")
    found = set()
    for content in (b"\0\1\3", b"\0\1\4"):
        (rootdir / "b").write_bytes(content)
        found.add(git_revision(rootdir))
    git("add", "b")
    assert git_revision(rootdir) in found
    assert len(found) == 2


def test_differences_that_take_too_long_are_left_out(repository, monkeypatch):
    rootdir, git = repository
    (rootdir / "a.txt").write_text("1\n")
    git("add", "a.txt")
    git("commit", "-q", "-m", "first")
    (rootdir / "a.txt").write_text("2\n")
    monkeypatch.setattr("pytest_npubench.store.fingerprint.DIFF_TIMEOUT_S", 0)
    assert git_revision(rootdir) == f"{git('rev-parse', '--short=12', 'HEAD')}-dirty"


def test_why_the_commit_is_unknown_and_what_mends_it(repository, tmp_path_factory, monkeypatch):
    rootdir, git = repository
    outside = tmp_path_factory.mktemp("outside")
    assert why_no_revision(outside).startswith("not a git repository")
    assert why_no_revision(rootdir).endswith(": put the folder under git, with a commit")
    git("commit", "-q", "--allow-empty", "-m", "first")
    assert why_no_revision(rootdir) == ""
    monkeypatch.setattr("pytest_npubench.store.fingerprint.git_revision", lambda rootdir: "0123456789ab-dirty")
    assert why_no_revision(rootdir).endswith("what differs from the commit: commit it")


def test_python_files_that_no_commit_has_are_named(repository, tmp_path):
    rootdir, git = repository
    for name in ("kept.py", "new.py", "ignored.py", "notes.txt"):
        (rootdir / name).write_text("pass\n")
    (rootdir / ".gitignore").write_text("ignored.py\n")
    git("add", "kept.py", ".gitignore")
    git("commit", "-q", "-m", "first")
    assert untracked_python(rootdir) == ("new.py",)
    assert untracked_python(tmp_path / "absent") == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_checkout_of_another_user_is_not_known_until_it_is_safe(repository, monkeypatch, tmp_path_factory):
    rootdir, git = repository
    git("commit", "-q", "--allow-empty", "-m", "first")
    for path in (rootdir, *rootdir.rglob("*")):
        os.chown(path, 65534, 65534)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    assert why_no_revision(rootdir).endswith(f": git config --global --add safe.directory {rootdir}")
    (home / ".gitconfig").write_text(f"[safe]\n\tdirectory = {rootdir}\n")
    assert why_no_revision(rootdir) == ""


def test_git_revision_without_git(tmp_path, monkeypatch):
    assert git_revision(tmp_path / "absent") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_revision(tmp_path) is None


def test_a_git_that_hangs_is_given_up(tmp_path, monkeypatch):
    fake = tmp_path / "git"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("pytest_npubench.store.fingerprint.GIT_TIMEOUT_S", 0.05)
    assert git_revision(tmp_path) is None
