"""The suites of compilers: what they say of devices that are not here, and what a service profiles on phones."""
