"""What can become of a row's bytes: the closed set of `fetch_outcome`, each with an explanation for people.

`ok` rows have bytes; every other row ends at `ingest` with its outcome as drop reason. `http_status`,
`final_url` and `fetch_detail` say more about the single case.
"""

from __future__ import annotations

from pipeline.errors import RecipeError, near_miss

OK = "ok"
AWAY = "bytes_away"
"""The outcome that every run tries to better."""

OUTCOMES: dict[str, str] = {
    "ok": "The bytes arrived whole and begin like a picture.",
    "not_found": "The server has no such picture (404 or 410), or the local file is gone. Nothing to be done.",
    "http_error": "The server answered with another error status, see http_status. 5xx and 429 were tried again.",
    "dns": "The host's name could not be resolved. If many hosts fail at once, look at your resolver, not at the web.",
    "connect": "No connection: refused, unreachable, or reset before anything was said. Tried again.",
    "tls": "The secure connection failed: expired or wrong certificate, or no common cipher.",
    "timeout": "Not complete within ingest.fetch.deadline_s, or silent for ingest.fetch.idle_s. Tried again.",
    "disconnected": "The connection broke before the announced end of the body. Tried again.",
    "bad_response": "The answer is no valid HTTP: broken header, chunk or compression.",
    "too_large": "More bytes than ingest.fetch.max_bytes; reading stopped there. Raise it if you want such files.",
    "not_an_image": "The bytes do not begin like any picture format, whatever the header or the name says.",
    "no_picture": "The sample in the tar has no member with a picture's ending, or none with the one asked for; or the "
                  "cell of the Parquet file is null.",
    "not_in_archive": "The archive (WARC) does not hold the picture, or only its beginning. fetch_missing = true in "
                      "its source gets such pictures from the web.",
    "empty": "The answer or the file has no bytes.",
    "robots": "The site's robots.txt asks not to fetch this address (RFC 9309); it was not fetched.",
    "opt_out": "The page or the picture asks not to be used for training (noai, noimageai, TDM-Reservation); "
               "its bytes were not stored.",
    "blocked": "A rule of ingest.blocklist keeps it out; the detail names the rule. Nothing of it is stored or shown. "
               "Without the rule it is fetched again.",
    "forgotten": "`curate forget` took it down; the detail says when and why. Its bytes and words are gone, and no "
                 "rerun brings them back.",
    "private_address": "The address leads into a private, loopback or link-local network. "
                       "ingest.fetch.allow_hosts is the only exception.",
    "redirect_loop": "Redirects lead back to an address already visited.",
    "too_many_redirects": "More redirects than ingest.fetch.max_redirects.",
    "bad_url": "Not an http(s) address, or not well-formed.",
    "unreadable_file": "The file with the picture exists but cannot be read there: no permission, cut, or damaged.",
    AWAY: "The disk or server with the file did not answer, several times. It is asked again on every run.",
}
"""Outcome → explanation with advice, as `curate explain` prints it."""


def failures(names: str) -> frozenset[str]:
    """Outcomes other than `ok`, given with commas between. Raises RecipeError for one that does not exist."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    known = sorted(OUTCOMES.keys() - {OK})
    for name in chosen:
        if name not in known:
            raise RecipeError(f"no failure is called {name!r}",
                              hint=near_miss(name, known, else_say=f"choose from {', '.join(known)}"))
    return frozenset(chosen)
