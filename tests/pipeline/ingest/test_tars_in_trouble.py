"""Tars that lie, repeat themselves, change, move or are away for a while."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import SourceError
from pipeline.ingest.sources.base import Log
from pipeline.ingest.sources.tars import TarsSource
from tests.pipeline.ingest import hostile, ranged
from tests.pipeline.ingest.test_ingest_stage import ingest
from tests.pipeline.ingest.test_tars_source import rows_of, tar_of

png = hostile.png


def settings(path: Path | str, **fetch: Any) -> dict[str, Any]:
    return {"sources": [{"kind": "tars", "name": "t", "path": str(path)}], "fetch": fetch}


def id_of(address: str, occurrence: int = 0) -> str:
    """As the manifests' page says: BLAKE2b of 16 bytes over source name, kind, address, occurrence, each with a NUL."""
    text = f"t\0tars\0{address}\0{occurrence}\0"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def test_a_name_that_comes_twice_is_two_pictures(tmp_path: Path) -> None:
    members = [("0.png", png(1)), ("0.png", png(2)), ("1.png", png(3)), ("0.png", png(4))]
    (tmp_path / "a.tar").write_bytes(tar_of(members))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path / "a.tar"))
    assert [row["sha256"] for row in rows] == [hashlib.sha256(png(n)).digest() for n in (1, 2, 3, 4)]
    assert [row["id"] for row in rows] == [id_of("a.tar/0"), id_of("a.tar/0", 1), id_of("a.tar/1"), id_of("a.tar/0", 2)]
    assert len({row["url"] for row in rows}) == 4  # one address for two would make the second a copy of the first


def test_ids_hang_on_the_path_below_the_common_folder(tmp_path: Path) -> None:
    for number, folder in enumerate("ab"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "00000.tar").write_bytes(tar_of([("0.png", png(number))]))
    both = [id_of("a/00000.tar/0"), id_of("b/00000.tar/0")]
    for path in (tmp_path, f"{tmp_path}/*/00000.tar", f"{tmp_path}/**/*.tar"):
        assert [row["id"] for row in ingest(tmp_path / "run", settings(path))[0]] == both
    (tmp_path / "b" / "00000.tar").unlink()
    assert [row["id"] for row in ingest(tmp_path / "run", settings(f"{tmp_path}/*/00000.tar"))[0]] == both[:1]
    for path in (tmp_path / "a", tmp_path / "a" / "00000.tar", f"{tmp_path}/a/*.tar"):  # as ever in one folder
        assert [row["id"] for row in ingest(tmp_path / "run", settings(path))[0]] == [id_of("00000.tar/0")]


@pytest.mark.parametrize("age", ["ETag", "Last-Modified"])
def test_a_tar_over_http_is_looked_at_again_when_it_changes(tmp_path: Path, age: str) -> None:
    headers = {age: "Thu, 01 Jan 2026 00:00:00 GMT"}
    with ranged.serve({"/a.tar": tar_of([("0.png", png(1))])}, headers=headers) as server:
        first, _ = ingest(tmp_path, settings(f"{server.base}/a.tar"))
        assert ingest(tmp_path, settings(f"{server.base}/a.tar")) == (first, False)
        server.files["/a.tar"], server.headers[age] = tar_of([("0.png", png(2))]), "Thu, 01 Jan 2026 00:00:01 GMT"
        [row], computed = ingest(tmp_path, settings(f"{server.base}/a.tar"))
    assert computed
    assert (row["id"], row["sha256"]) == (first[0]["id"], hashlib.sha256(png(2)).digest())


def test_a_server_that_tells_no_age_is_said(tmp_path: Path) -> None:
    with ranged.serve({"/a.tar": tar_of([("0.png", png(1))])}) as server:
        _, log = rows_of(f"{server.base}/a.tar")
    assert [(what, count) for what, count in log.counts.items() if "Last-Modified" in what] == [
        ("files whose server gives neither ETag nor Last-Modified: changes show by their length alone", 1)]


def test_a_server_that_fails_while_tars_are_listed(tmp_path: Path) -> None:
    with ranged.serve({"/a.tar": tar_of([(f"{n}.png", png(n) + bytes(3_000_000)) for n in range(5)])}) as server:
        source = TarsSource(TarsSource.Settings(name="t", path=f"{server.base}/a.tar"))
        listing = source.rows(None, Log())  # type: ignore[arg-type]
        next(listing)
        server.ends_after = 0
        with pytest.raises(SourceError, match=r"cannot read http.*a\.tar to its end") as caught:
            list(listing)
    assert "run the same command again" in caught.value.hint


def test_a_server_without_parts_of_files_is_refused(tmp_path: Path) -> None:
    with ranged.serve({"/a.tar": tar_of([("0.png", png(1) + bytes(9_000_000))])}, ranges=False) as server:
        with pytest.raises(SourceError, match="cannot read") as caught:
            rows_of(f"{server.base}/a.tar")
    assert "copy the tars" in caught.value.hint


def test_an_outage_while_hashing_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.ingest.fetch.PAUSE_S", 0.01)
    with ranged.serve({"/a.tar": tar_of([("0.png", png(1)), ("1.png", png(2))])}, headers={"ETag": "1"}) as server:
        first, _ = ingest(tmp_path / "untroubled", settings(f"{server.base}/a.tar"))
        server.ends_after, server.asked = server.asked - 2, 0  # both pictures are read last
        rows, _ = ingest(tmp_path / "run", settings(f"{server.base}/a.tar"))
        assert [row["fetch_outcome"] for row in rows] == ["bytes_away"] * 2
        assert "503" in rows[0]["fetch_detail"]
        server.ends_after = None
        assert ingest(tmp_path / "run", settings(f"{server.base}/a.tar")) == (first, True)
        assert ingest(tmp_path / "run", settings(f"{server.base}/a.tar")) == (first, False)


def header(name: str, size: int, kind: bytes = b"0") -> bytes:
    """A header by the book (POSIX.1-1988 ustar), its size in base 256 (GNU) where eleven octal digits will not do."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    block[124:136] = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def sparse() -> bytes:
    """GNU tar --sparse, format 1.0: the map of the pieces lies before the data."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("GNUSparseFile.0/1.png")
        data = b"1\n0\n100\n".ljust(512, b"\0") + png(2)
        info.size = len(data)
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "1.png",
                            "GNU.sparse.realsize": "5000"}
        tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


BEFORE = tar_of([("0.png", png(1))])[:1024 if len(png(1)) <= 512 else None]


@pytest.mark.parametrize(("rest", "outcomes", "told"), [
    (lambda: header("1.png", 3 << 30), ["ok", "unreadable_file"], "unexpected end"),
    (lambda: header("1.png", 1 << 61), ["ok", "unreadable_file"], "unexpected end"),
    (lambda: header("1.png", 1 << 80), ["ok", "unreadable_file"], "unexpected end"),
    (lambda: header("./PaxHeaders/1", 1 << 61, b"x"), ["ok"], "a header of"),
    (lambda: header("./PaxHeaders/1", 60 << 30, b"x"), ["ok"], "a header of"),
    (lambda: header("././@LongLink", 40 << 30, b"L"), ["ok"], "a header of"),
    (lambda: (header("././@LongLink", 1, b"L") + b"x".ljust(512, b"\0")) * 5000, ["ok"], "recursion"),
    (sparse, ["ok", "unreadable_file"], None),
])
def test_headers_that_claim_too_much(
        tmp_path: Path, rest: Callable[[], bytes], outcomes: list[str], told: str | None) -> None:
    (tmp_path / "a.tar").write_bytes(BEFORE + rest() + (b"" if told else bytes(1024)))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path / "a.tar"))
    assert [row["fetch_outcome"] for row in rows] == outcomes
    failed = rows_of(tmp_path / "a.tar")[1].failed
    assert [told in entry["detail"] for entry in failed] == [True] if told else failed == []


def test_long_names_of_both_kinds(tmp_path: Path) -> None:
    long = "/".join(["folder" * 10] * 5) + "/1.png"
    for number, kind in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        with tarfile.open(tmp_path / f"{number}.tar", "w", format=kind) as tar:
            info = tarfile.TarInfo(long)
            info.size = len(png(1))
            tar.addfile(info, io.BytesIO(png(1)))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path))
    assert [row["fetch_outcome"] for row in rows] == ["ok", "ok"]
    assert [row["id"] for row in rows] == [id_of(f"{n}.tar/{long.removesuffix('.png')}") for n in (0, 1)]


def test_a_member_longer_than_max_bytes_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "a.tar", "wb") as file:  # sparse on disk: 5 GiB that take no room
        file.write(BEFORE + header("1.png", 5 << 30) + png(2))
        file.seek(len(BEFORE) + 512 + (5 << 30))
        file.write(header("2.png", len(png(3))) + png(3).ljust(-(-len(png(3)) // 512) * 512, b"\0") + bytes(1024))
    rows, _ = ingest(tmp_path / "run", settings(tmp_path / "a.tar", max_bytes=1_000_000))
    assert [row["fetch_outcome"] for row in rows] == ["ok", "too_large", "ok"]
    assert rows[2]["offset"] == len(BEFORE) + 512 + (5 << 30) + 512
