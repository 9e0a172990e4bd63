"""What other tools do of what users ask for, tried: python benchmarks/rivals.py FOLDER [--only TEXT] [--rounds 2]

FOLDER/TOOL becomes an environment of each tool (pip). Each row and tool has one small trial, a shell script in a fresh
copy of a project with nine commits: three sums of squares, of which one does 10 % more work from c6 on. Servers are the
known-answer server: the first token after 200 ms, then one every 50 ms. A cell is what a pattern reads in a trial's
output; FOLDER/log.txt keeps all output. The tables are printed as Markdown.

For the first two rows c1, c2 and c3 are stored, as files or as medians in ReFrame's reference, and c4 or c6 is judged
as the fourth session, at a tolerance of 5 % where the user chooses one. asv measures it beside the commit before.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = "npubench"
PACKAGES = {
    "pytest-benchmark": ["pytest-benchmark"],
    "pytest-codspeed": ["pytest-codspeed"],
    "asv": ["asv", "virtualenv"],
    "ReFrame": ["ReFrame-HPC"],
    "GuideLLM": ["guidellm"],
    "AIPerf": ["aiperf"],
}
CODE, SERVERS = (*list(PACKAGES)[:4], OURS), (*list(PACKAGES)[4:], OURS)
LIMIT_S = 400.0

CASES = "@pytest.mark.parametrize('case', ['first', 'second', 'third'])\n"
COPIED = "import shutil, sysconfig; shutil.copy('{build_dir}/work.py', sysconfig.get_path('purelib'))"
PROJECT = {
    "work.py": "def first(): return sum(n * n for n in range(20_000))\ndef second(): return first()\n"
    "def third(): return sum(n * n for n in range(COUNT))\nCOUNT = 20_000\n",
    "test_theirs.py": f"import pytest, work\n{CASES}def test_work(benchmark, case): benchmark(getattr(work, case))\n",
    "test_ours.py": f"import pytest, work\n{CASES}@pytest.mark.cpu\n@pytest.mark.npubench(rounds=300)\n"
    "def test_work(npubench, case): npubench(getattr(work, case))\n",
    "suite/__init__.py": "",
    "suite/bench.py": "import work\nclass Work:\n  params = ['first', 'second', 'third']\n"
    "  def time_work(self, case): getattr(work, case)()\n  def peakmem_work(self, case): getattr(work, case)()\n",
    "asv.conf.json": json.dumps(
        {"version": 1, "project": "work", "repo": ".", "branches": ["main"], "benchmark_dir": "suite"}
        | {"environment_type": "virtualenv", "build_command": [], "install_command": [f'python -c "{COPIED}"']}
    ),
    "setup.py": "from setuptools import setup\nsetup(name='work', py_modules=['work'])\n",
    "pytest.ini": "[pytest]\n",
    "timed.py": "import statistics, sys, timeit, work\n"
    "print('median', statistics.median(timeit.repeat(getattr(work, sys.argv[1]), number=1, repeat=300)))\n",
    "check.py": """import pathlib, statistics, reframe as rfm, reframe.utility.sanity as sn
@rfm.simple_test
class Work(rfm.RunOnlyRegressionTest):
    case = parameter(['first', 'second', 'third'])
    valid_systems, valid_prog_environs, executable, sourcesdir = ['*'], ['*'], 'python3', None
    @run_after('init')
    def prepare(self):
        here = pathlib.Path(__file__).parent
        self.executable_opts = [str(here / 'timed.py'), self.case]
        medians = [float(text) for text in (here / f'{self.case}.txt').read_text().split()[1::2]]
        self.reference = {'*': {'median': (statistics.median(medians), None, 0.05, 's')}}
    @sanity_function
    def ended(self): return sn.assert_found('median', self.stdout)
    @performance_function('s')
    def median(self): return sn.extractsingle(r'median (\\S+)', self.stdout, 1, float)
""",
}
TOKENIZER = """from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
vocabulary = {sign: number for number, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
tokens = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokens).save_pretrained('tokenizer')"""
COMMITS = """git init -q -b main . && git config user.email a@b && git config user.name a
printf '%s\\n' '*' '!/*.py' '!/suite' '!/suite/*.py' '!/*.json' '!/*.ini' > .git/info/exclude
for i in 0 1 2 3 4 5 6 7 8; do
  [ $i = 6 ] && sed -i 's/COUNT = 20_000/COUNT = 22_000/' work.py
  echo "# $i" >> work.py; git add .; git commit -q -m "commit $i"; git tag c$i; done"""
PRELUDE = """trap 'kill $(jobs -p) 2>/dev/null' EXIT; URL=http://127.0.0.1:$PORT
mine() { pytest -q test_ours.py --npubench-other-load 1 --npubench-lock-timeout 60 -p no:cacheprovider "$@"; }
serve() { PYTHONPATH=$ROOT $PY $ROOT/benchmarks/known_answer.py --port $PORT --ttft-s 0.2 --itl-s 0.05 \\
  "$@" &
  for i in $(seq 100); do curl -sf $URL/sent >/dev/null && return; sleep 0.2; done; }
sent() { curl -s $URL/sent | $PY -c "import json, sys; sent = json.load(sys.stdin)[-8:]; print('sent', $1)"; }
read_json() { $PY -c "import json; d = json.load(open('$1')); print('read', $2)"; }
guide() { guidellm run --disable-console-interactive --constraint kind=max_requests,count=20 --backend \\
  kind=openai_http,target=$URL,model=known,request_format=/v1/${API:-completions},validate_backend=false \\
  --output kind=json,path=out.json "$@" 2>&1; }
air() { aiperf profile --model known --url $URL --endpoint-type ${API:-completions} --streaming \\
  --tokenizer $TOKENIZER --use-server-token-count --use-legacy-max-tokens --ui none \\
  --request-count 20 --output-artifact-dir out "$@" 2>&1; }
ours() { npubench load --url $URL/v1 --model known --warmup 0 --num-requests 20 --workload lengths.csv "$@" 2>&1; }
echo input_tokens,output_tokens > lengths.csv; for i in $(seq 20); do echo 16,8 >> lengths.csv; done
for i in $(seq 20); do echo '{"prompt": "prompt '$i'", "output_tokens_count": 8}' >> lines.jsonl; done
LINES="--data kind=json_file,path=lines.jsonl --profile kind=poisson,rate=5"; AIR="--request-rate 5 --isl 16 --osl 8"
"""
# tool: (stores the session of the commit that is checked out, judges it)
JUDGED = {
    "pytest-benchmark": (
        "pytest -q test_theirs.py --benchmark-autosave",
        "pytest -q test_theirs.py --benchmark-compare --benchmark-compare-fail=median:5%",
    ),
    "pytest-codspeed": ("true", "pytest -q --codspeed --codspeed-mode=walltime test_theirs.py"),
    "asv": ("asv machine --yes >/dev/null", "asv continuous -f 1.05 -b time_work HEAD~1 HEAD"),
    "ReFrame": ("for c in first second third; do python3 timed.py $c >> $c.txt; done", "reframe -c check.py -r"),
    OURS: ("mine --npubench-accept", "mine"),
}
FOUND, ALARMS = "exit status not 0 for a case 10 % slower in the 4th session", "the same at equal speed"
THEIR_FIGURES = ("time_to_first_token", "inter_token_latency")
READ = {
    "GuideLLM": "read_json out.json \"*(round(d['benchmarks'][-1]['metrics'][k + '_ms']['successful']['mean'], 1) "
    f'for k in {THEIR_FIGURES})"',
    "AIPerf": f"read_json out/profile_export_aiperf.json \"*(round(d[k]['avg'], 1) for k in {THEIR_FIGURES})\"",
}
OUR_PATTERN = r"ttft_mean_s\W+([\d.]+) ms[^\0]*tbt_mean_s\W+([\d.]+) ms"
GAPS = "{0} and {1} ms"
PREFIX = "; sent \"len(__import__('os').path.commonprefix([s['prompt'] for s in sent]))\""
HELP = "pytest --help"
ASV = "asv machine --yes; ASV_PYTHONPATH=$PWD asv run -E existing -q"
ASV_RUN = f"{ASV} -b time_work --set-commit-hash $(git rev-parse HEAD)"
SLOWER = "sed -i 's/COUNT = .*/COUNT = 90_000/' work.py; git commit -qam slower"
STORED = f"for c in c1 c2 c3; do git checkout -q $c; {{}}; done; git checkout -q c4; {SLOWER}"
Trial = tuple[
    str, str, str
]  # a shell script, a pattern, the cell where its output has the pattern; else the cell is "no"
TRIALS: dict[str, dict[str, Trial]] = {
    "a limit on a test's figure, without an earlier run": {
        "pytest-benchmark": (HELP, "benchmark-(max-median|limit)", "yes"),
        "pytest-codspeed": (HELP, "codspeed-limit", "yes"),
        "asv": ("asv run --help", "limit", "yes"),
        "ReFrame": (
            "for c in first second third; do echo median 1e-9 > $c.txt; done; reframe -c check.py -r",
            "failed to meet reference",
            "yes, on any that it prints",
        ),
        OURS: ("sed -i 's/rounds=300/rounds=100, max_p99_s=1e-9/' test_ours.py; mine", "3 failed", "yes, to the p99"),
    },
    "passes over tests of hardware that is absent": {
        "pytest-benchmark": (HELP, "hardware", "yes"),
        "pytest-codspeed": (HELP, "hardware", "yes"),
        "asv": ("asv run --help", "hardware", "yes"),
        "ReFrame": ("sed -i \"s/= .'[*]'., /= ['+gpu'], /\" check.py; reframe -c check.py -l", "Found 0 check", "yes"),
        OURS: ("sed -i s/mark.cpu/mark.cuda/ test_ours.py; mine -rs", r"\d skipped", "yes, with the reason"),
    },
    "names the commits that made a case slower": {
        "pytest-benchmark": (
            f"{STORED.format(JUDGED['pytest-benchmark'][0])}; {JUDGED['pytest-benchmark'][1]}",
            r"third\] \(0003_\w{7}\) - Field",
            "the earlier one",
        ),
        "pytest-codspeed": (HELP, "codspeed-(commit|compare)", "yes"),
        "asv": (
            f"for c in c1 c2 c3 c4 @; do git checkout -q -B main $c; [ $c = @ ] && {{ {SLOWER}; }}; {ASV_RUN}; done; "
            "asv publish; cat html/regressions.json",
            r"third[^\0]*\[\[\w+, \d+, ",
            "yes",
        ),
        "ReFrame": ("reframe --help", "commit|revision", "yes"),
        OURS: (
            f"{STORED.format('mine --npubench-accept')}; mine; git log -3 --format=%h --abbrev=8; "
            "npubench show --case 'callable/test_ours.py::test_work[third]'",
            r"(\w{8})\n\w{8}\n(\w{8})\n[^\0]*between commits \2 and \1",
            "yes",
        ),
    },
    "peak memory of a call": {
        "pytest-benchmark": (HELP, "peak", "yes"),
        "pytest-codspeed": (
            "pytest --codspeed --codspeed-mode=memory test_theirs.py",
            "3 passed",
            "not run: its runner",
        ),
        "asv": (f"{ASV} -b peakmem", r"\d+(\.\d+)?M", "yes"),
        "ReFrame": ("reframe --help", "peak", "yes"),
        OURS: (
            "sed -i 's/rounds=300/rounds=9, memory=True/' test_ours.py; mine --npubench-journal j; npubench show -v j",
            r"python_peak_bytes +\S+ k?B",
            "yes",
        ),
    },
    "bisects commits": {
        "pytest-benchmark": ("py.test-benchmark --help", "bisect", "yes"),
        "pytest-codspeed": (HELP, "bisect", "yes"),
        "asv": (
            "asv machine --yes; asv find c4..c8 'time_work.*third'; git rev-parse c6",
            r"(\w{8})[ >][^\0]*\1",
            "yes",
        ),
        "ReFrame": ("reframe --help", "bisect", "yes"),
        OURS: ("npubench bisect --commits c4..c8 -- test_ours.py -k third --npubench-other-load 1", "between", "yes"),
    },
    "a static site of the history": {
        "pytest-benchmark": ("py.test-benchmark --help", "site|html|publish", "yes"),
        "pytest-codspeed": (HELP, "codspeed-(site|html)", "yes"),
        "asv": (f"{ASV_RUN}; asv publish; ls html", "index.html", "yes"),
        "ReFrame": ("reframe --help", "html|publish", "yes"),
        OURS: ("mine --npubench-history h.db; npubench site h.db -o out; ls out", "index.html", "yes"),
    },
    "results as": {
        "pytest-benchmark": (
            "pytest -q test_theirs.py --benchmark-json out.json; py.test-benchmark compare out.json --csv out.csv; ls",
            r"out.csv\s+out.json",
            "CSV, JSON",
        ),
        "pytest-codspeed": (
            "pytest -q --codspeed --codspeed-mode=walltime test_theirs.py; find . -name '*.json'",
            r"codspeed\S*\.json",
            "JSON",
        ),
        "asv": (f"{ASV_RUN}; ls results/*", r"\w{8}-existing\S+\.json", "JSON"),
        "ReFrame": (
            "for c in first second third; do echo median 1 > $c.txt; done; "
            "reframe -c check.py -r --report-file out.json --report-junit out.xml; "
            "reframe --list-stored-sessions --table-format csv > out.csv; ls -s out.*",
            r"[1-9]\d* out.csv\s+\d+ out.json\s+\d+ out.xml",
            "CSV, JSON, JUnit",
        ),
        OURS: (
            "mine --npubench-journal j --npubench-openmetrics out.om --junit-xml out.xml; "
            "for f in csv html json markdown; do npubench show j --$f -o out.$f; done; ls",
            r"out.csv\s+out.html\s+out.json\s+out.markdown\s+out.om\s+out.xml",
            "CSV, HTML, JSON, Markdown, OpenMetrics, JUnit",
        ),
    },
    "results of a load as": {
        "GuideLLM": (
            "serve; guide $LINES --output kind=csv,path=out.csv --output kind=html,path=out.html; ls",
            r"out.csv\s+out.html\s+out.json",
            "CSV, HTML, JSON",
        ),
        "AIPerf": (
            "serve; air $AIR; ls out; aiperf profile --help",
            r"csv[^\0]*jsonl[^\0]*otel-url",
            "CSV, JSON; its help has OTLP",
        ),
        OURS: (
            "serve; ours --rate 5 --json --requests-out out.jsonl; ls",
            r'"unit"[^\0]*out.jsonl',
            "JSON; its requests as JSONL",
        ),
    },
    "mean TTFT and gap of the server": {
        "GuideLLM": (f"serve; guide $LINES; {READ['GuideLLM']}", r"read (\S+) (\S+)", GAPS),
        "AIPerf": (f"serve; air $AIR; {READ['AIPerf']}", r"read (\S+) (\S+)", GAPS),
        OURS: ("serve; ours --rate 5", OUR_PATTERN, GAPS),
    },
    "the same, in a tool call's arguments": {
        "GuideLLM": (
            f"API=chat/completions; serve --calls-tools; guide $LINES; {READ['GuideLLM']}",
            r"read (\S+) (\S+)",
            GAPS,
        ),
        "AIPerf": (f"API=chat; serve --calls-tools; air $AIR; {READ['AIPerf']}", r"read (\S+) (\S+)", GAPS),
        OURS: ("serve --calls-tools; ours --api chat --rate 5", OUR_PATTERN, GAPS),
    },
    "prompts that begin alike": {
        "GuideLLM": (
            "serve; guide --profile kind=poisson,rate=5 --tokenizer kind=hf_auto,model=$TOKENIZER "
            "--data kind=synthetic_text,prompt_tokens=16,output_tokens=8,prefix_tokens=64" + PREFIX,
            r"sent (6\d)",
            "yes",
        ),
        "AIPerf": ("serve; air $AIR --num-prefix-prompts 1 --prefix-prompt-length 64" + PREFIX, r"sent (6\d)", "yes"),
        OURS: ("sed -i s/16/96/ lengths.csv; serve; ours --rate 5 --shared-prefix 64" + PREFIX, r"sent (6\d)", "yes"),
    },
    "several rates in one run": {
        "GuideLLM": (
            "serve; guide --profile kind=sweep,sweep_size=3 --data kind=json_file,path=lines.jsonl; "
            "read_json out.json \"len(d['benchmarks'])\"",
            r"read (\d)",
            "yes, {0}",
        ),
        "AIPerf": (
            "serve; air --isl 16 --osl 8 --request-rate 5,10; ls -R out",
            "request_rate_10|rate.*10",
            "yes, a list",
        ),
        OURS: ("serve; ours --sweep --slo-ttft 1s --slo-tbt 1s", "knee|capacity", "yes, to the limits' end"),
    },
    "exit status not 0 where a limit on TTFT is missed": {
        "GuideLLM": ("serve; guide $LINES --metrics kind=generative,slo.ttft_ms=10; echo exit $?", "exit [1-9]", "yes"),
        "AIPerf": ("serve; air $AIR --goodput time_to_first_token:10; echo exit $?", "exit [1-9]", "yes"),
        OURS: ("serve; ours --rate 5 --slo-ttft 10ms --slo-tbt 1s; echo exit $?", "exit ([1-9])", "yes, {0}"),
    },
}


def cell(trial: Trial, output: str) -> str:
    """`trial`'s cell with the pattern's groups filled in, or "no"."""
    _, pattern, text = trial
    seen = re.search(pattern, output)
    return text.format(*seen.groups()) if seen else "no"


def table(rows: Mapping[str, Mapping[str, str]], tools: Sequence[str]) -> str:
    """A Markdown table of the rows that have a cell of any of the tools; a cell that a row lacks is empty."""
    lines = [["", *tools], ["---"] * (len(tools) + 1)]
    lines += [
        [name, *(cells.get(tool, "") for tool in tools)] for name, cells in rows.items() if set(cells) & set(tools)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Bench:
    """The folder in which the trials run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / "log.txt").open("a", encoding="utf-8")

    def prepare(self) -> None:
        """Makes the environments that are missing, the tokenizer, and the project with its commits."""
        for tool, packages in PACKAGES.items():
            if not (self.folder / tool).exists():
                venv.create(self.folder / tool, with_pip=True)
                subprocess.run([self.folder / tool / "bin" / "pip", "install", "-q", *packages], check=True)
        subprocess.run([self.folder / "AIPerf" / "bin" / "python", "-c", TOKENIZER], cwd=self.folder, check=True)
        project = self.folder / "project"
        shutil.rmtree(project, ignore_errors=True)
        for name, text in PROJECT.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text, encoding="utf-8")
        subprocess.run(["bash", "-c", COMMITS], cwd=project, check=True)

    def run(self, tool: str, script: str, project: Path) -> tuple[int, str]:
        """Exit status and output of a script with the tool's environment before others; 124 where it takes too long."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        first = Path(sys.executable).parent if tool == OURS else self.folder / tool / "bin"
        changed = {"PATH": f"{first}:{os.environ['PATH']}", "PY": sys.executable, "PORT": str(port), "COLUMNS": "200"}
        changed |= {"PYTHONPATH": str(ROOT) if tool == OURS else "", "TOKENIZER": str(self.folder / "tokenizer")}
        changed |= {"ROOT": str(ROOT), "GUIDELLM__MAX_WORKER_PROCESSES": "1"}
        command = ["timeout", "-k", "5", str(LIMIT_S), "bash", "-c", PRELUDE + script]
        done = subprocess.run(
            command, cwd=project, env={**os.environ, **changed}, capture_output=True, text=True, errors="replace"
        )
        self.log.write(f"\n##### {tool}: {script}\n{done.stdout}{done.stderr}\nstatus {done.returncode}\n")
        self.log.flush()
        return done.returncode, done.stdout + done.stderr

    def judged(self, rounds: int) -> dict[str, dict[str, str]]:
        """The two rows of JUDGED; the tools take turns, so that what else the machine does meets all alike."""
        projects = {tool: self._copy(tool) for tool in JUDGED}
        for commit in ("c1", "c2", "c3"):
            for tool, (store, _) in JUDGED.items():
                self.run(tool, f"git checkout -q {commit}; {store}", projects[tool])
        counts = {(tool, commit): 0 for tool in JUDGED for commit in ("c6", "c4")}
        for number in range(rounds):
            for tool, commit in counts:
                project = self._copy(f"{tool}-{number}-{commit}", projects[tool])
                status, _ = self.run(tool, f"git checkout -q {commit}; {JUDGED[tool][1]}", project)
                counts[tool, commit] += status == 1
        names = {FOUND: "c6", ALARMS: "c4"}
        return {
            name: {tool: f"{counts[tool, commit]} of {rounds}" for tool in JUDGED} for name, commit in names.items()
        }

    def _copy(self, name: str, source: Path | None = None) -> Path:
        """A fresh folder that holds what the project, or `source`, holds."""
        target = self.folder / "trials" / name
        shutil.rmtree(target, ignore_errors=True)
        return shutil.copytree(source or self.folder / "project", target, symlinks=True)

    def tried(self, name: str, of: str) -> dict[str, str]:
        """The cells of a row of TRIALS, of the tools whose names hold `of`."""
        cells = {}
        for tool in filter(lambda tool: of in tool, TRIALS[name]):
            trial = TRIALS[name][tool]
            cells[tool] = cell(trial, self.run(tool, trial[0], self._copy(tool))[1])
            print(f"{name}: {tool}: {cells[tool]}", file=sys.stderr, flush=True)
        return cells


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="What other tools do, tried.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="rows whose names hold this")
    parser.add_argument("--tool", default="", help="trials of tools whose names hold this")
    parser.add_argument("--rounds", type=int, default=2, help="of the first two rows")
    options = parser.parse_args()
    bench = Bench(options.folder.resolve())
    bench.prepare()
    rows = bench.judged(options.rounds) if options.only in FOUND else {}
    rows |= {name: bench.tried(name, options.tool) for name in TRIALS if options.only in name}
    print(table(rows, CODE), table(rows, SERVERS), sep="\n\n")


if __name__ == "__main__":
    main()
