"""`vllm bench serve` again and again in one process: python benchmarks/vllm_bench_loop.py, in vLLM's environment.

Reads the command's arguments from standard input, a JSON list a line, and writes DONE behind each run's own output.
vllm.benchmarks.serve is the module behind the command; importing it takes half a minute, so it is imported once.
"""

from __future__ import annotations

import json
import sys

from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser

DONE = "=== done ==="


def main() -> None:
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    print(DONE, flush=True)
    for line in sys.stdin:
        serve.main(parser.parse_args(json.loads(line)))
        print(DONE, flush=True)


if __name__ == "__main__":
    main()
