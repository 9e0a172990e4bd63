"""The plugin's settings are tested on pytest configurations made in process."""

import signal

from hypothesis import settings

pytest_plugins = ["pytester"]

# A shell's background job ignores interrupts, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline is an absolute time, which says more about the machine's load than about the code.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
