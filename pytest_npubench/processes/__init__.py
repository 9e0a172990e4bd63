"""Processes of our own: how one starts, how it learns that its owner is gone, how the owner learns that it is.

guard      the process between an owner and a command: ends it with the owner, at its limit, with all it has started
guarded    a command under a guard: run to its end, or listened to
child      a guarded command that its owner talks to; the owner's side
owner      the child's side; run as a program, it makes an object and answers its methods
messages   what goes between the two
"""

CHILD = "NPUBENCH_CHILD"
"""The variable that tells a child the number of its end of the socket to its owner."""
