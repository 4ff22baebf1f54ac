"""Redirects and names that lead anywhere: followed where they may be, and never into a private network."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from pipeline.ingest.addresses import canonical
from tests.pipeline.ingest import abuse
from tests.pipeline.ingest.abuse import Abuse, Talk, Trap
from tests.pipeline.ingest.abuses import raw
from tests.pipeline.ingest.hostile import PICTURE, reply
from tests.pipeline.ingest.test_hostile import PATIENT, fetched, settings_for

INSIDE = [
    # literals of every special range, in every spelling that some parser takes for one
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1",
    "017700000001", "0177.1", "0177.0.0.01", "0.0.0.0", "0", "00", "0x0", "10.0.0.1", "10.1", "0xa000001", "172.16.0.1",
    "172.31.255.255", "192.168.0.1", "192.168.257", "169.254.169.254", "2852039166", "169.254.170.2", "100.64.0.1",
    "100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "127.0.0.1.",
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[fe80::1]", "[fd00::1]", "[fd00:ec2::254]", "[fc00::1]", "[fec0::1]",
    "[ff02::1]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]", "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]", "[64:ff9b::a00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]",
    "[2001:0:a00:1::]", "[3fff::1]", "[5f00::1]", "user:pw@127.0.0.1", "example.org@127.0.0.2",
    # names, see NAMES
    "localhost", "LOCALHOST", "localhost.", "inside.test", "six.test", "metadata.test", "mixed.test", "nat.test",
    "mapped.test", "zero.test",
]
FANCY = [
    "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "\u2460\u2461\u2466.0.0.1", "[fe80::1%25eth0]",
    "[fe80::1%eth0]", "127.0.0.1%00", "127.0.0.1\\", "0x7f.0.0.0x1.", "127.0.0.0x", "08.0.0.1", "[::1", "::1",
    "[127.0.0.1]",
]
"""What browsers read as an address, or nobody does: it is none for us."""
NAMES = {
    "localhost": ["127.0.0.1", "::1"], "localhost.": ["127.0.0.1"], "inside.test": ["127.0.0.1"], "six.test": ["::1"],
    "metadata.test": ["169.254.169.254"], "mixed.test": ["10.0.0.1", "::1"], "nat.test": ["64:ff9b::7f00:1"],
    "mapped.test": ["::ffff:127.0.0.1"], "zero.test": ["0.0.0.0"],
    "half.test": ["2d00::1", "127.0.0.1"], "xn--bcher-kva.test": ["127.0.0.1"],
}
NOBODY = "2d00::1"
"""A public address that IANA has given to nobody: no packet to it arrives."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The system's resolver answers from NAMES; `rebind.test` leads to a public address once, then inside."""
    count, real = Counter[str](), socket.getaddrinfo

    def answer(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if not name.rstrip(".").lower().endswith((".test", "localhost")):
            return real(host, port, *rest, **more)
        count[name] += 1
        there = NAMES.get(name.lower()) or [[NOBODY], ["127.0.0.1"], ["::1"]][min(count[name] - 1, 2)]
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (each, port, 0, 0)) if ":" in each
                else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in there]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return count


@pytest.fixture
def trap() -> Iterator[Trap]:
    with abuse.trap() as set_up:
        yield set_up


def outcomes(server: Abuse, data: Path, urls: list[str], **changes: Any) -> list[str]:
    rows = fetched(settings_for(PATIENT, server, **changes), str(data), urls)
    return [row["fetch_outcome"] for row in rows]


def to(target: str, code: int = 302) -> bytes:
    return raw(f"Location: {target}", "Content-Length: 0", status=f"HTTP/1.1 {code} There", body=b"")


@pytest.mark.usefixtures("asked")
def test_nothing_private_is_ever_connected_to(trap: Trap, tmp_path: Path) -> None:
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}  # this machine's further addresses
    own = {address for address in own if address.startswith(("10.", "172.", "192.168.", "127.", "fd", "fe80"))}
    hosts = INSIDE + [f"[{address.split('%')[0]}]" if ":" in address else address for address in sorted(own)]
    urls = [f"http://{host}:{trap.port}/x.png" for host in hosts]
    answers: dict[str, bytes | Talk] = {f"/{n}": to(url) for n, url in enumerate(urls)}
    with abuse.serve(answers) as server:
        direct = [canonical(url) or url for url in urls]
        found = outcomes(server, tmp_path, direct + [server.base + path for path in answers])
        found += outcomes(server, tmp_path, direct, respect_robots=False, respect_tdm=False)
    wrong = {(host, outcome) for host, outcome in zip(hosts * 3, found, strict=True) if outcome != "private_address"}
    assert wrong == set()
    assert {canonical(f"http://{host}:{trap.port}/") for host in FANCY} <= {None, f"http://127.0.0.1:{trap.port}/"}
    assert trap.caught == []


def test_the_trap_catches_whoever_comes(trap: Trap) -> None:
    for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0"):
        socket.create_connection((address, trap.port), 5).close()
    for _ in range(1000):
        if len(trap.caught) < 3:
            time.sleep(0.01)
    assert len(trap.caught) == 3
    assert set(trap.caught) <= {"127.0.0.1", "127.0.0.2"}


def test_a_name_that_changes_its_mind_leads_nowhere(trap: Trap, asked: Counter[str], tmp_path: Path) -> None:
    """DNS rebinding: what is connected to is what was judged, also on every further attempt and hop."""
    urls = [f"http://{name}:{trap.port}/{n}.png" for name in ("rebind.test", "half.test") for n in range(3)]
    answers: dict[str, bytes | Talk] = {f"/{n}": to(url) for n, url in enumerate(urls)}
    with abuse.serve(answers) as server:
        found = outcomes(server, tmp_path, urls + [server.base + path for path in answers], retries=2, connect_s=0.5)
        found += outcomes(server, tmp_path, urls[:1], retries=2, connect_s=0.5)  # a new process asks anew
    assert asked["rebind.test"] >= 1
    assert set(found[:-1]) <= {"connect", "timeout"}
    assert found[-1] == "private_address"
    assert trap.caught == []


def test_redirects(tmp_path: Path) -> None:
    hop = {f"/hop/{n}": to(f"/hop/{n - 1}") for n in range(1, 8)} | {"/hop/0": reply(PICTURE)}
    served: dict[str, bytes | Talk] = {
        "/ok.png": reply(PICTURE), "/with%20space.png": reply(PICTURE), "/%C3%A9.png": reply(PICTURE),
        "/%E9.png": reply(PICTURE), "/q?a=b": reply(PICTURE), "/ok/ok.png": reply(PICTURE), "/gone": reply(b"", 404),
        **hop}
    with abuse.serve(served) as server:
        here = f"127.0.0.1:{server.port}"
        ok = ["ok.png", "/ok.png", "./x/../ok.png", f"//{here}/ok.png", f"http://{here}/ok.png",
            f"HTTP://{here}/ok.png",
              f"http://me:pw@{here}/ok.png", "/ok.png#part", "/with space.png", "/with%20space.png", "/\u00e9.png",
              "/\udce9.png", "/q?a=b", f"  http://{here}/ok.png  ", "/hop/4", "/%6fk.png"]
        bad = ["file:///etc/passwd", "ftp://example.org/a.png", "data:image/png;base64,AAAA", "javascript:alert(1)",
               "about:blank", "mailto:a@example.org", "ws://example.org/", "gopher://example.org/",
               "view-source:http://h/",
               "http://", "http:///a.png", "http://[::1", "http://example.org:99999/", "http://example.org:65536/",
               "http://example.org:-1/", "http://ex ample/", "http://[fe80::1%25eth0]/", "http://1.2.3.4.5/",
               "http://256.1.1.1/", "http://0x/..", "/" + "a" * 9000, "http://\udce9/", "http://\u00ad/"]
        ways = {"ok": [to(each) for each in ok] + [to("/ok.png", code) for code in (301, 303, 307, 308)],
                "bad_url": [to(each) for each in bad],
                "redirect_loop": [to(each) for each in ("#top", "?", "/loop/2", "/loop/5")],
                "too_many_redirects": [to("/hop/5"), to("/hop/7")], "not_found": [to("/gone"), to("\\\\gone")],
                "bad_response": [to("/" + "a" * 64_000)],
                "http_error": [raw("Content-Length: 0", status="HTTP/1.1 302 Where", body=b""), to(""), to("/ok.png",
                    300),
                               to("/ok.png", 304), to("/ok.png", 305), to("/ok.png", 306), to("/ok.png", 201)]}
        loops: dict[str, bytes | Talk] = {f"/loop/{n}": to(f"/loop/{max(n - 1, 1)}") for n in range(1, 6)}
        loops["/loop/1"] = to("/loop/5")
        starts: dict[str, bytes | Talk] = {
            f"/{outcome}/{n}": way for outcome, group in ways.items() for n, way in enumerate(group)}
        server.answers = {**served, **loops, **starts}
        found = outcomes(server, tmp_path, [server.base + path for path in starts])
    wrong = [(path, outcome, starts[path][:120]) for path, outcome in zip(starts, found, strict=True)  # type: ignore[index]
             if path.split("/")[1] != outcome]
    assert wrong == []


ASK = """
import json, sys
from tests.pipeline.ingest.test_hostile import PATIENT, fetched
from pipeline.ingest.settings import FetchSettings
settings = FetchSettings.model_validate({**PATIENT, "allow_hosts": ("127.0.0.1",)})
print(*[row["fetch_outcome"] for row in fetched(settings, sys.argv[1], sys.argv[2:])])
"""


def test_tls(tmp_path: Path) -> None:
    """In a process of its own, whose system trusts one more authority: only a good certificate of it will do."""
    ours, other, now = trustme.CA(), trustme.CA(), datetime.datetime.now(datetime.UTC)
    ours.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    day = datetime.timedelta(days=1)
    certificates = {
        "ok": ours.issue_cert("127.0.0.1"), "other authority": other.issue_cert("127.0.0.1"),
        "expired": ours.issue_cert("127.0.0.1", not_before=now - 2 * day, not_after=now - day),
        "not yet valid": ours.issue_cert("127.0.0.1", not_before=now + day, not_after=now + 2 * day),
        "other host": ours.issue_cert("example.org"), "other address": ours.issue_cert("127.0.0.2"),
    }
    answers: dict[str, bytes | Talk] = {"/a.png": reply(PICTURE), "/robots.txt": reply(b"", 404)}
    with ExitStack() as stack:
        urls = {}
        for name, certificate in certificates.items():
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            urls[name] = f"https://127.0.0.1:{stack.enter_context(abuse.serve(answers, context)).port}/a.png"
        plain = stack.enter_context(abuse.serve(answers))
        urls["plain http on a TLS port"] = f"https://127.0.0.1:{plain.port}/a.png"
        urls["to a bad one"] = f"{plain.base}/to"
        plain.answers = {**answers, "/to": to(urls["expired"])}
        ran = subprocess.run([sys.executable, "-c", ASK, str(tmp_path), *urls.values()], capture_output=True, text=True,
                             timeout=60, check=True, env={**os.environ, "SSL_CERT_FILE": str(tmp_path / "ca.pem")})
    assert dict(zip(urls, ran.stdout.split(), strict=True)) == {name: "ok" if name == "ok" else "tls" for name in urls}
