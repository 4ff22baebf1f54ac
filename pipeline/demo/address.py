"""Which demo website there is, and where it lies and is served: what a recipe says of it, without what draws it."""

VERSION = 2
"""Rises whenever the same seed would give another site; an older site is then built anew."""

FOLDER = "site"
"""Where a run keeps it, under its data."""

HOST = "127.0.0.1"
DEFAULT_PORT = 8737
DEFAULT_BASE_URL = f"http://{HOST}:{DEFAULT_PORT}"
