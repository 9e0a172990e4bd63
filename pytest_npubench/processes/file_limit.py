"""How many files this process may have open, sockets among them: as many as it needs, or its own fault by name.

A soft limit (often 1024, `ulimit -n`) may be raised up to the hard one by anybody. A connection that finds no file left
says nothing of the server it was to reach.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_npubench.errors import MeasurementError

SPARE = 32  # name servers, certificates, a journal
NONE_LEFT = (errno.EMFILE, errno.ENFILE)


@contextmanager
def enough_files(number: int) -> Iterator[None]:
    """Makes room for `number` more open files, up to the hard limit, and takes it back. Raises MeasurementError, with
    the limit and the need, where the block ends in an error of `ran_out`."""
    needed = len(list(Path("/dev/fd").iterdir())) + number + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        with suppress(OSError, ValueError):  # a system may hold more than its hard limit back
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
            )
    try:
        yield
    except OSError as error:
        if not ran_out(error):
            raise
        raise MeasurementError(_why(needed)) from error
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ran_out(error: OSError) -> bool:
    """Whether an error may come of too few files here: an unresolved name, or several errors in one, do not say, so
    this tries it."""
    if error.errno is not None and error.errno > 0:
        return error.errno in NONE_LEFT
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as other:
        return other.errno in NONE_LEFT
    return False


def _why(needed: int) -> str:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed >= needed:
        return "the client itself ran out of files: this machine has none left to open (fs.file-max)"
    return (
        f"the client itself ran out of files: {allowed} may be open at once (ulimit -Hn), and as many connections as "
        f"requests need {needed}; nothing is said of the server"
    )
