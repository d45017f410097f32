"""The conversation at a terminal or through a pipe. Next hop: `session.py`, then the file named after the idea."""
