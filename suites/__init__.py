"""The suites, as pytest files: `npubench run`, or `pytest suites/` in a checkout.

An installed package has them under the name npubench_suites: `pytest --pyargs npubench_suites` from any folder.
"""
