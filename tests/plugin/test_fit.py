"""What does not fit a device is skipped with the numbers before anything is compiled; groups of devices of one host."""

import re

from .project import skipped
from .test_devices import passed

# mini-llama needs 100.7 MB a bucket, all but 0.1 of it binaries: two fit 252 MB, three do not
MEMORY = """
[peak.memory_bytes]
value = {num_bytes}
unit = "B"
source = "the test's own; https://example.org"
"""
GROUP = """
[[group]]
num_devices = 1
models = ["mini-llama"]
"""


def extend(project, text):
    project.write("hw/fake.toml", (project.root / "hw" / "fake.toml").read_text() + text)


def test_the_largest_bucket_is_skipped_with_the_numbers_and_the_others_run(project):
    project.fake()
    extend(project, MEMORY.format(num_bytes=280_000_000))
    result = project.run("-k", "fake", "-rAs", "--npubench-require", "fake")
    assert result.ret == 0, result.stdout.str()
    assert [name.split("[")[1] for name in passed(result)] == [
        "fake-mini-llama-b2-bucket16]",
        "fake-mini-llama-b2-bucket32]",
        "fake-mini-llama-b2-bucket16]",
    ]
    assert not [record["name"] for record in project.records("compile") if record["name"].endswith("64")]
    numbers = r"need 0\.0 GB of weights, 0\.0 GB of cache and 0\.3 GB of temporaries and binaries"
    (reason,) = skipped(result)
    assert re.fullmatch(
        rf"buckets up to 64 {numbers}; the device has 0\.3 GB \(90% of 0\.3 GB\); buckets up to 32 fit", reason
    )
    # what is skipped does not make a requirement true
    result = project.run("-k", "fake and bucket64", "--npubench-require", "fake")
    assert result.errlines[0] == f"ERROR: --npubench-require fake: found Fake accelerator, but {reason}"


def test_one_chip_runs_what_is_for_one_chip(project):
    project.fake(num_devices=4)
    extend(project, GROUP)
    select = "profile and bucket16"
    result = project.run("-k", select + " and fake", "-rAs", "--npubench-require", "fake,npu,fake-tp1")
    assert result.ret == 0, result.stderr.str()
    assert passed(result) == ["test_profile.py::test_profile[fake-tp1-mini-llama-b2-bucket16]"]
    needs = "needs 4 devices together, found 1: openvino:0"
    assert skipped(result) == {needs: 1}
    # behind a file of its family whose device is another one: what came furthest is named, not what came first
    (project.root / "hw" / "fake.toml").rename(project.root / "hw" / "zfake.toml")
    chosen = "profile and not tp1 and (zfake or intel)"
    result = project.run("-k", chosen, "--npubench-require", "openvino")
    assert result.errlines[0] == f"ERROR: --npubench-require openvino: found Fake accelerator, but {needs}"


def test_groups_of_one_and_of_four_on_one_host_are_cases_of_their_own(project):
    project.fake("num_devices=4, noise=0.01", num_devices=4)
    extend(project, GROUP)
    select = ("-k", "fake and profile and bucket16", "-rA")
    assert len(passed(project.run(*select))) == 5
    records = project.records("case")
    assert {(record["hardware"], record["device"]) for record in records} == {
        ("fake", "openvino:0, openvino:1, openvino:2, openvino:3"),
        *(("fake-tp1", f"openvino:{ordinal}") for ordinal in range(4)),
    }
    assert len({record["case"] for record in records}) == len({record["digest"] for record in records}) == 2
    assert {record["campaign"] for record in project.records("round")} == {
        "fake-mini-llama-b2",
        "fake-tp1-mini-llama-b2",
    }
    assert len(passed(project.run(*select, "--npubench-devices", "1,2"))) == 2
    assert [record["device"] for record in project.records("case")] == ["openvino:1", "openvino:2"]
