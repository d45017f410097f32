"""The local server: OpenAI's interface over HTTP, for programs on this machine.

`app.py` is the main path; `guard.py` keeps strangers out; `models.py` has the loaded models. Knows requests and answers,
computes nothing. Needs the extra `server`. Next hop: `app.py`.
"""
