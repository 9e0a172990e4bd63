import doctest
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_examples_of_the_docs_run():
    outcome = doctest.testfile(str(DOCS / "lens.md"), module_relative=False)
    assert outcome.attempted > 10
    assert outcome.failed == 0
