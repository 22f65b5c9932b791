"""Set-up from a bare Python: `python3.11 -m app.bootstrap serve|test|lint|web|lock`.

Standard library only, and of the rest of `app` only `app.embedded_model`'s check, since it runs before anything is
installed. Each step says what it does, is skipped when a stamp of its inputs' hashes still matches, and fails with one
line that says what to do.
"""
