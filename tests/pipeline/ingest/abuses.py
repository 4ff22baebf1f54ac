"""What servers may do to one request, and the outcome that a person gives it after RFC 9110, RFC 9112 and common sense.

Each table is outcome → name → what is sent. A name is a path; `PICTURE` is 69 bytes or so of a valid PNG.
"""

from __future__ import annotations

import gzip
import struct
import zlib

from tests.pipeline.ingest.abuse import Talk, first_then, then_reset, then_silent
from tests.pipeline.ingest.hostile import HTML, PICTURE, bomb, reply

MAX_BYTES = 200_000
SIZE = len(PICTURE)
Table = dict[str, dict[str, "bytes | Talk"]]


def raw(*headers: str, body: bytes = PICTURE, status: str = "HTTP/1.1 200 OK") -> bytes:
    """An answer with just these headers."""
    return "\r\n".join((status, *headers)).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def chunks(*sent: bytes) -> bytes:
    return raw("Transfer-Encoding: chunked", body=b"".join(sent))


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


def coded(name: str, body: bytes) -> bytes:
    return raw(f"Content-Encoding: {name}", f"Content-Length: {len(body)}", body=body)


LAST = b"0\r\n\r\n"
ZIPPED = gzip.compress(PICTURE, mtime=0)
RAW_DEFLATE = zlib.compress(PICTURE, wbits=-15)
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"

FRAMING: Table = {
    "ok": {
        "no-length": raw(), "no-length-one-zero": raw(status="HTTP/1.0 200 OK"),
        "length-with-zeros": raw(f"Content-Length: 000{SIZE}"),
        "length-with-spaces": raw(f"Content-Length:   {SIZE}  "),
        "one-chunk": chunks(chunk(PICTURE), LAST), "a-byte-a-chunk": chunks(*(chunk(PICTURE[n:n + 1])
                                                                            for n in range(SIZE)), LAST),
        "upper-case-size": chunks(b"%X\r\n%s\r\n" % (SIZE, PICTURE), LAST),
        "size-with-zeros": chunks(b"0000%x\r\n%s\r\n" % (SIZE, PICTURE), LAST),
        "chunk-extension": chunks(chunk(PICTURE, b';name="a;b"'), LAST),
        "trailers": chunks(chunk(PICTURE), b"0\r\nX-Checksum: 1\r\nX-Other: 2\r\n\r\n"),
        "after-last-chunk": chunks(chunk(PICTURE), LAST, b"HTTP/1.1 500 No\r\n\r\n"),
        "te-upper-case": raw("Transfer-Encoding: CHUNKED", body=chunk(PICTURE) + LAST),
        "keep-alive-lies": raw(f"Content-Length: {SIZE}", "Connection: keep-alive", "Keep-Alive: timeout=99999"),
        "just-fits": raw(f"Content-Length: {MAX_BYTES}", body=PICTURE + b"\0" * (MAX_BYTES - SIZE)),
    },
    "empty": {
        "length-zero": raw("Content-Length: 0", body=b""), "nothing": raw(body=b""), "last-chunk-only": chunks(LAST),
        "zipped-nothing": coded("gzip", gzip.compress(b"")), "zipped-of-length-zero": coded("gzip", b""),
    },
    "disconnected": {
        "length-says-more": raw("Content-Length: 9999"), "length-says-one-more": raw(f"Content-Length: {SIZE + 1}"),
        "no-last-chunk": chunks(chunk(PICTURE)), "chunk-breaks-off": chunks(b"fff\r\n" + PICTURE),
        "size-breaks-off": chunks(chunk(PICTURE), b"ff"), "no-chunk-at-all": chunks(),
        "last-chunk-breaks-off": chunks(chunk(PICTURE), b"0\r\n"),
        "trailers-break-off": chunks(chunk(PICTURE), b"0\r\nX-Sum: 1\r\n"),
        "extension-breaks-off": chunks(b"45;" + b"x" * 300_000), "nothing-said": b"",
        "half-a-status-line": b"HTTP/1.1 2", "only-a-status-line": b"HTTP/1.1 200 OK\r\n",
        "half-a-header": b"HTTP/1.1 200 OK\r\nContent-Le", "headers-without-end": raw("A: b")[:-SIZE - 2],
        "reset-at-once": then_reset(b""), "reset-in-status-line": then_reset(b"HTTP/1.1 2"),
        "reset-in-header": then_reset(b"HTTP/1.1 200 OK\r\nContent-Le"),
        "reset-in-body": then_reset(raw("Content-Length: 9999")),
        "reset-in-chunk": then_reset(chunks(b"fff\r\n" + PICTURE)),
        "zip-breaks-off": coded("gzip", ZIPPED[:-12]), "zip-sum-breaks-off": coded("gzip", ZIPPED[:-3]),
        "zip-header-breaks-off": coded("gzip", ZIPPED[:7]), "deflate-breaks-off": coded("deflate", RAW_DEFLATE[:-4]),
    },
    "bad_response": {
        **{f"length {text!r}".replace(" ", "-"): raw(f"Content-Length: {text}") for text in (
            "-5", "+5", "0x45", "1e2", "abc", "4 5", "5.0", "99999999999999999999999", "", "\u0665", "5;x", "5, 6")},
        "length-says-less": raw(f"Content-Length: {SIZE}", body=PICTURE + b"\0" * 500),
        "length-says-zero": raw("Content-Length: 0"), "204-with-a-body": raw(status="HTTP/1.1 204 No"),
        "304-with-a-body": raw(status="HTTP/1.1 304 No"),
        "two-lengths": raw("Content-Length: 5", f"Content-Length: {SIZE}"),
        "two-lengths-other-order": raw(f"Content-Length: {SIZE}", "Content-Length: 5"),
        "length-and-chunks": raw("Content-Length: 5", "Transfer-Encoding: chunked", body=chunk(PICTURE) + LAST),
        **{f"size {text!r}".replace(" ", "-"): chunks(text.encode("latin-1") + b"\r\n" + PICTURE + b"\r\n", LAST)
           for text in ("zz", "-5", "+5", "0x45", "", " ", "5 5", "\xa0", "g", "fffffffffffffffff", "1" + "0" * 40)},
        "no-line-end-after-chunk": chunks(b"%x\r\n%s" % (SIZE, PICTURE), LAST),
        "chunk-longer-than-said": chunks(b"%x\r\n%s\r\n" % (SIZE - 5, PICTURE), LAST),
        "garbage-instead-of-chunks": chunks(HTML * 3),
        "huge-trailer": chunks(chunk(PICTURE), b"0\r\nX: " + b"x" * 300_000),
    },
    "too_large": {
        "announces-much": raw("Content-Length: 99999999999"), "announces-one-too-many":
            raw(f"Content-Length: {MAX_BYTES + 1}"),
        "one-too-many": raw(body=PICTURE + b"\0" * (MAX_BYTES + 1 - SIZE)),
        "endless": first_then(raw(), b"\0" * 8192), "endless-of-a-length": first_then(
            raw("Content-Length: 9223372036854775807"), b"\0" * 8192),
        "endless-chunks": first_then(chunks(chunk(PICTURE)), chunk(b"\0" * 8192)),
        "endless-chunk": first_then(chunks(b"7fffffffffffff\r\n" + PICTURE), b"\0" * 8192),
        "endless-small-chunks": first_then(chunks(chunk(PICTURE)), chunk(b"x") * 2000),
    },
}

CODING: Table = {
    "ok": {
        "gzip": coded("gzip", ZIPPED), "x-gzip": coded("x-gzip", ZIPPED), "gzip-upper-case": coded("GZIP", ZIPPED),
        "zlib": coded("deflate", zlib.compress(PICTURE)), "deflate-without-header": coded("deflate", RAW_DEFLATE),
        "identity": coded("identity", PICTURE), "coding-empty": coded("", PICTURE),
        "gzip-and-identity": coded("gzip, identity", ZIPPED), "gzip-in-chunks": raw(
            "Content-Encoding: gzip", "Transfer-Encoding: chunked",
            body=b"".join(chunk(ZIPPED[n:n + 1]) for n in range(len(ZIPPED))) + LAST),
        "gzip-members": coded("gzip", gzip.compress(PICTURE[:20], mtime=0) + gzip.compress(PICTURE[20:], mtime=0)),
        "gzip-then-padding": coded("gzip", ZIPPED + b"\0" * 100),
        "gzip-then-garbage": coded("gzip", ZIPPED + b"garbage"),
        "stored-block": coded("gzip", gzip.compress(PICTURE, 0, mtime=0)),
        **{f"called-{name}": coded(name, PICTURE) for name in ("none", "utf-8", "binary", "base64", "br")},
    },
    "not_an_image": {"zipped-text": coded("gzip", gzip.compress(HTML)), "zipped-picture-as-file": raw(body=ZIPPED)},
    "bad_response": {
        **{f"coded-{name}": coded(name, b"\x1b\x03\x00" + PICTURE[9:]) for name in ("br", "zstd", "compress",
            "x" * 5000)},
        "gzip-twice": coded("gzip, gzip", gzip.compress(ZIPPED)), "gzip-under-br": coded("gzip, br", ZIPPED),
        "gzip-and-br-apart": raw("Content-Encoding: gzip", "Content-Encoding: br", body=b"\x1b\x03\x00" + ZIPPED),
        "plain-called-gzip": coded("gzip", PICTURE), "garbage-called-deflate": coded("deflate", b"\xff" * 64),
        "zip-of-bad-sum": coded("gzip", ZIPPED[:-8] + b"\0\0\0\0" + ZIPPED[-4:]),
        "zip-broken-inside": coded("gzip", ZIPPED[:14] + b"\xff" * 20 + ZIPPED[34:]),
    },
    "too_large": {
        "bomb": coded("gzip", bomb(40_000_000)),
        "deflate-bomb": coded("deflate", zlib.compress(PICTURE + b"\0" * 40_000_000)),
        "bomb-of-members": coded("gzip", ZIPPED * 4000),
        "bomb-without-length": raw("Content-Encoding: gzip", body=bomb(40_000_000)),
        "endless-zip": first_then(raw("Content-Encoding: gzip", body=gzip.compress(PICTURE)), ZIPPED * 50),
    },
}

HEADERS: Table = {
    "ok": {
        "no-reason": raw(status="HTTP/1.1 200 "), "no-reason-no-space": raw(status="HTTP/1.1 200"),
        "reason-in-latin": raw(status="HTTP/1.1 200 \udce9t\udce9"),
        "nul-in-reason": raw(status="HTTP/1.1 200 O\0K"), "long-reason": raw(status="HTTP/1.1 200 " + "x" * 5000),
        "no-headers": raw(), "one-early-hint": EARLY + raw(), "five-early-hints": EARLY * 5 + raw(),
        "continue-first": b"HTTP/1.1 100 Continue\r\n\r\n" + raw(),
        "processing-first": b"HTTP/1.1 102 P\r\n\r\n" + raw(),
        "cookies": raw(*(f"Set-Cookie: a{n}=b; Path=/" for n in range(50))),
        "odd-cookies": raw("Set-Cookie: =;;=", "Set-Cookie: \udcff=\udcfe", "Set-Cookie:"),
        "empty-value": raw("X-Empty:"), "value-with-colons": raw("X: a:b: c"), "latin-value": raw("X: \udce9"),
        "unknown-charset": raw("Content-Type: image/png; charset=x-no-such"), "no-type": raw("Content-Type:"),
        "odd-type": raw("Content-Type: ;;;/,"), "two-types": raw("Content-Type: text/html", "Content-Type: image/png"),
        "header-of-15-k": raw("X: " + "a" * 15_000), "a-hundred-headers": raw(*(f"X-{n}: y" for n in range(100))),
        "bad-dates": raw("Date: never", "Expires: -1", "Age: -5", "Last-Modified: 0"),
        "203": raw(status="HTTP/1.1 203 Maybe"),
        "connection-odd": raw("Connection: , ,,upgrade", "Upgrade: h2c"),
    },
    "http_error": {
        **{f"{code}": raw("Content-Length: 0", status=f"HTTP/1.1 {code} Odd", body=b"") for code in (
            201, 202, 204, 205, 206, 207, 226, 300, 304, 305, 306, 399, 400, 401, 402, 403, 405, 406, 407, 408, 409,
            411,
            413, 414, 415, 418, 421, 423, 425, 428, 429, 431, 451, 499, 500, 501, 502, 503, 504, 505, 511, 520, 599,
            600,
            999)},
        **{f"{code}-with-a-picture": raw(f"Content-Length: {SIZE}", status=f"HTTP/1.1 {code} Odd") for code in (
            201, 206, 300, 400, 403, 500)},
        "switches": raw("Upgrade: websocket", "Connection: upgrade", status="HTTP/1.1 101 Switching"),
        "401-asks-who": raw('WWW-Authenticate: Basic realm="x"', "Content-Length: 0", status="HTTP/1.1 401 No",
            body=b""),
        "407-proxy": raw('Proxy-Authenticate: Basic realm="x"', "Content-Length: 0", status="HTTP/1.1 407 No",
            body=b""),
        **{f"503-retry-{text!r}": raw(f"Retry-After: {text}", "Content-Length: 0", status="HTTP/1.1 503 Busy", body=b"")
           for text in ("", "soon", "-1", "999999999999999999999", "1e9", "Fri, 31 Dec 9999 23:59:59 GMT", "0, 0",
               "nan",
                        "\u0661", "Sun, 06 Nov 1994 08:49:37 GMT")},
    },
    "not_found": {"404": raw(status="HTTP/1.1 404 No"), "410": raw(status="HTTP/1.1 410 Gone"),
                  "404-endless": first_then(raw(status="HTTP/1.1 404 No"), b"\0" * 8192),
                  "404-announcing": raw("Content-Length: 99999999999", status="HTTP/1.1 404 No")},
    "bad_response": {
        "no-status-line": PICTURE, "html-alone": HTML, "zero-nine": b"hello\n", "garbage": b"\x00\x01\x02\r\n\r\n",
        "tls-alert": b"\x15\x03\x01\x00\x02\x02\x46", "smtp": b"220 mail.example.org ESMTP\r\n",
        "ssh": b"SSH-2.0-x\r\n",
        **{f"status {text!r}".replace(" ", "-"): raw(status=f"HTTP/1.1 {text}") for text in (
            "99 X", "1000 X", "abc OK", "-200 OK", "20 OK", "2x0 OK", "200.0 OK", "", "0x200 OK")},
        **{f"version {text!r}".replace(" ", "-"): raw(status=f"{text} 200 OK") for text in (
            "HTTP", "HTTP/", "HTTP/x.y", "HTTP/1", "http/1.1", "HTP/1.1", "HTTP/11", "HTTP/1.1.1", "HTTPS/1.1")},
        "nul-in-value": raw("X: a\0b"), "nul-in-name": raw("X\0Y: b"),
        "no-colon": raw("this is no header"), "name-with-space": raw("X Y: z"), "empty-name": raw(": z"),
        "control-in-name": raw("X\x07: z"), "return-in-value": raw("X: a\rb"),
        "header-of-1-mb": raw("X: " + "a" * 1_000_000), "name-of-1-mb": raw("X" * 1_000_000 + ": a"),
        "reason-of-1-mb": raw(status="HTTP/1.1 200 " + "x" * 1_000_000),
        "ten-thousand-headers": raw(*(f"X-{n}: y" for n in range(10_000))),
        "cookie-flood": raw(*(f"Set-Cookie: a{n}={'b' * 4000}" for n in range(2000))),
        "endless-headers": first_then(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100),
        "endless-header": first_then(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 8192),
        "endless-status-line": first_then(b"HTTP/1.1 200 ", b"y" * 8192),
    },
}

TYPES: Table = {
    "ok": {
        "png-as-html": reply(PICTURE, kind="text/html"), "png-as-js": reply(PICTURE, kind="application/javascript"),
        "png.exe": reply(PICTURE, kind="application/octet-stream"),
        "gif-and-script": reply(b"GIF89a/*" + b"\0" * 20 + b"*/=1;"),
        "jpeg-and-zip": reply(b"\xff\xd8\xff\xe0" + b"\0" * 40 + b"PK\x03\x04"),
        "svg-with-script": reply(b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'),
        "svg-late": reply(b"<!--" + b"x" * 2000 + b"--><svg></svg>"), "head-of-a-jpeg": reply(b"\xff\xd8\xff"),
        "webp": reply(b"RIFF\0\0\0\0WEBPVP8 "), "avif": reply(b"\0\0\0\x1cftypavif"),
    },
    "not_an_image": {
        **{f"{name}.jpg": reply(body, kind="image/jpeg") for name, body in {
            "html": HTML, "one-byte": b"\xff", "blank": b" ", "json": b'{"error": "no"}', "pdf": b"%PDF-1.7\n",
            "zip": b"PK\x03\x04",
            "mp4": b"\0\0\0\x20ftypisom", "webm": b"\x1aE\xdf\xa3", "exe": b"MZ" + b"\0" * 60, "nul": b"\0" * 500,
            "text": b"hello", "html-with-svg": b"<html><body><svg></svg>", "jpeg-late": b"\n\xff\xd8\xff\xe0",
            "riff": b"RIFF\0\0\0\0WAVE",
            "wav": struct.pack("<4sI4s", b"RIFF", 4, b"AVI "), "html-in-utf-16": HTML.decode().encode("utf-16"),
            "bm": b"BM are two letters", "p5": b"P5x"}.items()},
        "endless-text": first_then(raw(body=b""), b"text " * 1000),
    },
    "opt_out": {"noai": reply(PICTURE, X_Robots_Tag="noai"), "tdm": reply(PICTURE, TDM_Reservation="1"),
                "noai-second": raw("X-Robots-Tag: otherbot: noindex", "X-Robots-Tag: noimageai"),
                "noai-endless": first_then(raw("X-Robots-Tag: noai"), b"\0" * 8192)},
}

SLOW: Table = {
    "timeout": {
        "silent": then_silent(b""), "slow-status-line": first_then(b"HTTP/1.1 200 ", b"x", 0.05),
        "slow-header": first_then(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.05), "slow-headers": first_then(
            b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.05),
        "slow-body": first_then(raw("Content-Length: 9999"), b"\0", 0.05), "slow-chunks": first_then(
            chunks(chunk(PICTURE)), chunk(b"x"), 0.05),
        "slow-size": first_then(chunks(chunk(PICTURE)), b"0", 0.05), "slow-trailers": first_then(
            chunks(chunk(PICTURE), b"0\r\n"), b"X: y\r\n", 0.05),
        "slow-without-length": first_then(raw(), b"\0", 0.05),
        "stalls-in-body": then_silent(raw("Content-Length: 9999")),
        "stalls-in-header": then_silent(b"HTTP/1.1 200 OK\r\nContent-"),
        "stalls-in-chunk": then_silent(chunks(b"fff\r\n")),
        "stalls-before-last-chunk": then_silent(chunks(chunk(PICTURE))), "stalls-without-length": then_silent(raw()),
        "early-hints-for-ever": first_then(EARLY, EARLY, 0.02), "continue-for-ever": first_then(
            b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
        "extension-for-ever": first_then(chunks(b"45;"), b"x" * 8192, 0.001),
        "blank-lines-for-ever": first_then(b"", b"\r\n", 0.01),
        "slow-zip": first_then(raw("Content-Encoding: gzip", body=ZIPPED[:12]), b"", 0.05),
        "slow-text": first_then(raw(body=b"no picture"), b"\n", 0.05),
    },
    "ok": {"one-by-one": raw(f"Content-Length: {SIZE}")},
    "not_found": {"404-slow": first_then(raw("Content-Length: 9999", status="HTTP/1.1 404 No"), b"\0", 0.05)},
}
