"""Whether the server of NPUBENCH_SERVER_URL repeats itself, and answers as it did when it was accepted."""

import pytest

pytestmark = pytest.mark.server


@pytest.mark.npubench_cases("answers")
def test_answers(npubench_case):
    """Fails where answers do not depend on what is asked; inconclusive where the server does not repeat itself."""
    npubench_case.run()
