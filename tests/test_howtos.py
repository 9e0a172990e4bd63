"""Every command and Python block of README and docs/ works in the order of its page, or its row here says why not.

Commands run in one folder with the journal of a made-up device, two drivers' nights, a server that is a stand-in, and
what else the pages name. Where a page shows output, a line of it stands for a line of the real one, as in the tutorial.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from comparison.made_nights import stack, write_nights
from extensions.pairs.partition.fake_pair import FakePair
from extensions.planning.cli.test_published_calibration import MODEL, PEAK
from reports.journals import make_plan, measure, write_run
from test_tutorial import NUM_TRIES, ROOT, Shown, missing_lines, run_command

from pytest_npubench.cli.main import main
from pytest_npubench.extensions.pairs.partition import units

FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if path.name != "tutorial.md")
DATA = {"csv", "json", "jsonl", "mermaid", "text", "toml", "yaml"}
GPU, TPU, INDEX = "an NVIDIA GPU", "a TPU", "an index of packages"
NEEDS = {
    ".ci/setup-vllm": INDEX,
    "export NPUBENCH_VLLM_PYTHON": "an environment with vLLM",
    "gh pr comment": "a pull request on GitHub",
    "git fetch origin npubench-baselines": "a repository on GitHub",
    "git worktree add ../baselines": "a repository on GitHub",
    "npubench ab --commits main..HEAD -- -m cuda": GPU,
    "npubench ab --env-a .venv-old": GPU,
    "npubench bisect --commits v1.4..main -- -m cuda": GPU,
    "npubench bisect --package jaxlib": INDEX,
    "npubench hardware --new my-hardware/nvidia-a10.toml": "an NVIDIA A10",
    "npubench nightly lock": INDEX,
    "npubench nightly measure --family cuda": GPU,
    "npubench nightly run --family tpu": TPU,
    "npubench predict --journal .npubench/preflight.jsonl": "what libtpu compiled",
    "npubench preflight -m cuda": "a compiler for an NVIDIA GPU",
    "npubench preflight -m qualcomm": "Qualcomm's compiler",
    "npubench preflight -m tpu": "libtpu",
    "npubench run -m cuda -k nvidia-a10- --npubench-hardware my-hardware -rs": "an NVIDIA A10",
    "npubench run -m cuda --npubench-baselines": GPU,
    "npubench run -m tpu": TPU,
    "npubench run buckets -m npu": TPU,
    "npubench run buckets scheduling -m cpu --npubench-engine vllm": "an environment with vLLM",
    "npubench run graphs": "a token of AI Hub",
    "pip install": INDEX,
    'pytest -m "compiled and tpu"': "libtpu",
    "qai-hub configure": "a token of AI Hub",
    "vllm serve": GPU,
    "export VLLM_USE_V2_MODEL_RUNNER": GPU,
    "docs/adapters.md: from pytest_npubench.extensions.adapters.maxtext": "MaxText",
    "docs/adapters.md: from pathlib": "NxD Inference",
}
ELSEWHERE = {
    "docs/adapters.md: ": "engines/test_adapter_document.py",
    "docs/lens.md: ": "predictors/test_lens_docs.py",
    "docs/own-cases.md: ": "test_readme.py",
    "docs/serving-metrics.md: ": "serving/metrics/test_summaries.py",
    "README.md: ": "test_readme.py",
    "npubench demo": "cli/test_demo.py",
    "npubench run partition": "extensions/pairs/test_partition_suite.py",
    "NPUBENCH_SERVER_URL=http://127.0.0.1:8000/v1 npubench run server": "plugin/test_server_suite.py",
    "npubench selfcheck": "cli/test_selfcheck.py",
}
SMALLER = {
    "npubench calibrate": "--num-requests 8",
    "npubench load": "--num-requests 2 --warmup 0 --workload lengths.csv",
    "npubench partition profile": "--budget 5",
    "npubench run buckets -m openvino": "-k canary --npubench-other-load 1 --npubench-journal openvino.jsonl",
    "npubench run buckets scheduling -m cpu -k tiny": (
        '-k "canary and b1" --npubench-other-load 1 --npubench-journal tiny.jsonl --npubench-baselines tiny'
    ),
    "npubench search --hardware": "--num-requests 20",
}
ANOTHER_MACHINES = (
    "npubench baseline accept",
    "npubench history show",
    "npubench journal check",
    "npubench load",
    "npubench partition plan",
    "npubench predict",
    "npubench probe",
    "npubench profile",
    "npubench search batch",
    "npubench search buckets",
)
"""The page shows what they print of other journals, profiles and devices."""
OTHER_STATUSES = {"npubench compare": (0, 3), "npubench load": (0, 1, 2)}
URL = "http://127.0.0.1:8000/v1"
SERVED = (
    "simulate --model Llama-3.1-8B/config.json --hardware rtx-pro-6000.toml --policy chunked --workload lens-sharegpt "
    "--rate 10 --num-requests 20 --requests-out runs/monday/requests.jsonl"
)
AZURE = "input_tokens,output_tokens\n374,44\n396,109\n879,55\n91,16\n"
AZURE_TXT = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"


@dataclass(frozen=True)
class Python:
    """A block of Python with the page that it is from."""

    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def _steps(page: Path) -> Iterator[Shown | Python]:
    """The commands and Python blocks of a page, in its order."""
    for indent, language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        text = textwrap.dedent(indent + block.replace("\\\n", " "))
        if language == "python":
            yield Python(str(page.relative_to(ROOT)), text)
        elif language == "console":
            for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                typed, *output = command.splitlines()
                yield Shown(typed.partition("  #")[0].strip(), tuple(output), (0,))
        elif language == "sh":
            yield from (Shown(line.partition("  #")[0].strip(), (), (0,)) for line in text.splitlines())
        else:
            assert language in DATA, f"{page}: a block of language {language!r}; want console, sh, python or {DATA}"


def _of(step: Shown | Python, table: dict[str, str]) -> str | None:
    text = step.command if isinstance(step, Shown) else str(step)
    return next((entry for beginning, entry in table.items() if text.startswith(beginning)), None)


def _is_run(step: Shown | Python) -> bool:
    return _of(step, NEEDS) is None and _of(step, ELSEWHERE) is None


STEPS = {page: tuple(_steps(page)) for page in PAGES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the pages' commands read."""
    path = tmp_path_factory.mktemp("howtos")
    files = {"pytest.ini": "[pytest]\n", "mine.csv": AZURE, "lengths.csv": "input_tokens,output_tokens\n5,2\n"}
    files |= {"traces/mine.csv": AZURE, "traces/mine.txt": AZURE_TXT}
    files |= {"Llama-3.1-8B/config.json": json.dumps(MODEL), "rtx-pro-6000.toml": PEAK, "runs/monday/meta.json": "{}"}
    page = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    files["my-hardware/nvidia-a10.toml"] = page.split("```toml\n")[1].split("```")[0]
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    journal = path / ".npubench" / "journal.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        for seed in range(4):
            write_nights(journal, 1, seed=seed)
            assert main(["baseline", "accept", str(journal)]) == 0
        write_nights(journal, 4, seed=4, fingerprint=stack("580.12"))
        write_nights(path / "after.jsonl", 1, seed=5)
        for batch_size in (2, 4, 8, 1):
            written = journal if batch_size == 1 else path / "others.jsonl"
            write_run(written, measure(make_plan(batch_size)))
            campaign = ("--campaign", f"cpu-tiny-llama-b{batch_size}")
            assert main(["profile", "--journal", str(written), *campaign, "-o", f"b{batch_size}.json"]) == 0
        assert main(["history", "upload", str(journal)]) == 0
        assert main(shlex.split(SERVED)) == 0
    return path


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(_is_run, STEPS[page]))], ids=lambda page: page.stem)
def test_what_a_page_shows_works(
    page: Path,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("MY_KEY", "sk-0")
    monkeypatch.setattr(units, "open_pair", lambda name, **sizes: FakePair(sync_s=1e-6))
    for step in filter(_is_run, STEPS[page]):
        text = step.text if isinstance(step, Python) else f"{step.command} {_of(step, SMALLER) or ''}"
        if URL in text:
            text = text.replace(URL, request.getfixturevalue("url"))
        if isinstance(step, Python):
            exec(text, {})
            continue
        if re.match(r"(npubench run|pytest) ", text):
            for _ in range(NUM_TRIES):  # it measures for real, on processors that other tests load
                done = run_command(text, folder)
                if done.returncode == 0:
                    break
            status, printed = done.returncode, done.stdout
        else:
            capfd.readouterr()
            status = main(shlex.split(text)[1:])
            printed = "".join(capfd.readouterr())
        assert status in (_of(step, OTHER_STATUSES) or (0,)), f"{text}\n{printed}"
        if not step.command.startswith(ANOTHER_MACHINES):
            assert missing_lines(step.output, printed) == [], f"{text}\n{printed}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install pytest-npubench[http]")
    from campaign.server.stand_in import StandIn
    from known_answer import KnownAnswer

    server = StandIn(known=KnownAnswer(ttft_s=0.01, itl_s=0.001)).start()
    yield server.url
    server.stop()


def test_every_row_is_about_something_that_a_page_shows() -> None:
    shown = [step.command if isinstance(step, Shown) else str(step) for steps in STEPS.values() for step in steps]
    rows = [*NEEDS, *ELSEWHERE, *SMALLER, *ANOTHER_MACHINES]
    assert [row for row in rows if not any(text.startswith(row) for text in shown)] == []
    assert [name for name in ELSEWHERE.values() if not (ROOT / "tests" / name).is_file()] == []
