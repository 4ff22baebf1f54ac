"""From what the network library raises to one of the documented outcomes."""

from __future__ import annotations

import socket
import ssl

import aiohttp
from aiohttp.http_exceptions import BadHttpMessage, ContentLengthError, TransferEncodingError

from pipeline.ingest.guard import PrivateAddress
from pipeline.ingest.resolver import MAY_PASS

RETRIED = frozenset({"timeout", "connect", "disconnected"})
"""Outcomes that may be different next time, beside those of `RETRIED_STATUS`."""

RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
ATTEMPTS = 3
PAUSE_S = 0.5
"""How often a file whose disk or server does not answer is asked, and the first pause between, seconds; it doubles."""
TEMPORARY = " (temporary)"
"""Ends the detail of a name server's failure that may pass."""


def explain(error: BaseException) -> tuple[str, str]:
    """(outcome, detail) for an exchange that ended with `error`."""
    for each in _chain(error):
        if isinstance(each, PrivateAddress):
            return "private_address", str(each)
        if isinstance(each, socket.gaierror):
            return "dns", f"{each.strerror or each}{TEMPORARY if each.errno in MAY_PASS else ''}"
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return _outcome(error), text


def _chain(error: BaseException) -> list[BaseException]:
    linked = (error, getattr(error, "os_error", None), error.__cause__, error.__context__)
    return [each for each in linked if isinstance(each, BaseException)]


def _outcome(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return "tls"
    if isinstance(error, aiohttp.InvalidURL):
        return "bad_url"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connect"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "disconnected" if _broke_off(error.__cause__) else "bad_response"
    if isinstance(error, (aiohttp.ClientResponseError, ValueError)):
        return "bad_response"
    return "disconnected"


def _broke_off(cause: BaseException | None) -> bool:
    """Whether a body ended too early. The library says so of chunks by the same error as of broken ones."""
    if isinstance(cause, TransferEncodingError):
        return "Not enough data" in cause.message
    return not isinstance(cause, BadHttpMessage) or isinstance(cause, ContentLengthError)


def worth_retrying(outcome: str, status: int | None, detail: str) -> bool:
    """Whether asking again may help: only for what can change."""
    if outcome == "dns":
        return detail.endswith(TEMPORARY)
    return outcome in RETRIED or (outcome == "http_error" and status in RETRIED_STATUS)
