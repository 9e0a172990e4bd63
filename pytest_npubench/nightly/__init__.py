"""The nightly measurement on a self-hosted runner, as steps that each can be called alone and that lose nothing.

A runner's checkout cleans its work tree (`git clean -ffdx`), so what one night leaves for the next lies elsewhere:

- a state folder outside of the work tree: the journal of the latest nights, the history in SQLite, what became of each
  session (`state`);
- accepted baselines on a branch of the repository (`branch`), or in the state folder.

restore -> lock -> measure -> promote -> upload -> publish. Each step leaves a line in the night's record (`night`); the
night is green where none of them failed. What a step could not finish, because a branch moved, a token was missing or
the runner was killed, the next night's step takes up: every session in the journal that has no settled end is
accepted again onto the branch as it is then, and a session is accepted once however often that is tried.
"""
