"""Tests of the vLLM engine. Those that need vLLM skip without it; the others run everywhere."""


def child_program_name() -> str:
    """child_program as `python -m` finds it, with the path that pytest imported this folder by."""
    return f"{__name__}.child_program"
