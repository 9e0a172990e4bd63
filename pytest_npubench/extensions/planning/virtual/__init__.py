"""An engine without tensors: iteration plans run on a virtual clock, by bytes and operations over a hardware file.

    memory.py     what the group's memory leaves for keys and values
    cost.py       seconds of an iteration from bytes and operations
    router.py     which experts a batch activates
    held.py       how many tokens every request holds
    executor.py   the four together, as an iteration.Executor

docs/scheduling.md has the formulas and how far they can be trusted.
"""
