"""What every source is: settings in, rows out, always in the same order.

A source is one file in this package (its name is the kind), or an entry point in the group
`gristmill.sources`. It names pictures and the captions found with them; it fetches no picture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa
from pydantic import Field

from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.run import Run

WEB_STATE = "web"
"""The fingerprint of a source that lies wholly on the web: it is looked at again only when asked."""


class SourceSettings(Settings):
    """Base of every source's settings; subclasses pin `kind` with a `Literal`."""

    kind: str = Field("", description="the source's kind")
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
        description="name of the source in the manifests; row ids hang on it, so keep it",
    )


@dataclass(frozen=True)
class Found:
    """One picture at one address with the captions found there: a row to be.

    Either `url` is an address on the web (what is not well-formed becomes a `bad_url` row), or `path` is a
    local file, used where it lies, or `place` is (file URL, member, offset, length) of bytes inside a file, used where
    they lie. With `packing` they are taken out of it and copied, see `pipeline.ingest.packed`, which also says what
    offset and length mean then. `address` is what the id hangs on where that is not the canonical URL.
    `state` changes when the bytes behind the address may have changed. `refused` is an outcome known before
    fetching (`opt_out`), `refused_detail` its reason in words. `extra` fills the columns the source declares.
    `license_url` may hold words such as CC BY 4.0; the listing tells them from links.
    """

    url: str = ""
    path: str | None = None
    place: tuple[str, str, int, int] | None = None
    packing: str | None = None
    captions: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    page_url: str | None = None
    label: str | None = None
    license_url: str | None = None
    address: str | None = None
    state: str | None = None
    refused: str | None = None
    refused_detail: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """A picture as a page shows it; `url` is canonical."""

    url: str
    captions: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    license_url: str | None = None


@dataclass(frozen=True)
class Page:
    """What came of reading one page. `url` is the address after redirects; `outcome` is `ok` for HTML.

    `opt_out` is the directive by which the page keeps its pictures out of training, `canonical` the address that the
    page itself prefers, if any.
    """

    url: str
    outcome: str
    detail: str = ""
    pictures: tuple[Picture, ...] = ()
    links: tuple[str, ...] = ()
    opt_out: str | None = None
    canonical: str | None = None


@dataclass(frozen=True)
class File:
    """What came of reading one file for robots, such as a sitemap. `url` is the address after redirects."""

    url: str
    outcome: str
    detail: str = ""
    content: bytes = b""


class Web(Protocol):
    """What a source may ask of the network: read these pages or files, answer in the same order."""

    def pages(self, urls: Sequence[str]) -> list[Page]: ...

    def files(self, urls: Sequence[str], max_bytes: int) -> list[File]: ...

    def read(self, url: str, body: bytes, headers: Mapping[str, tuple[str, ...]]) -> Page:
        """A page that is at hand, as if the network had answered so; header names are lower case."""
        ...

    def opt_out(self, headers: Mapping[str, tuple[str, ...]]) -> str | None:
        """The opt-out that an answer's headers carry, in words."""
        ...


@dataclass
class Log:
    """What a source has to say about its run, kept beside the frozen listing."""

    counts: dict[str, int] = field(default_factory=dict)
    failed: list[dict[str, str]] = field(default_factory=list)

    def count(self, what: str, by: int = 1) -> None:
        if by:
            self.counts[what] = self.counts.get(what, 0) + by

    def fail(self, url: str, outcome: str, detail: str) -> None:
        self.failed.append({"url": url, "outcome": outcome, "detail": detail})


class Source(ABC):
    """One place where pictures come from. `Settings` must pin `kind`; `version` rises when rows would differ."""

    Settings: ClassVar[type[SourceSettings]]
    on_web: ClassVar[bool] = False
    version: ClassVar[int] = 1
    streams: ClassVar[bool] = False
    """Whether rows may be fetched while later ones are still being listed: for long lists whose fingerprint is their
    content. Others, such as a crawl, are listed whole before the first picture is asked for."""

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings

    def columns(self) -> dict[str, pa.DataType]:
        """Further columns, without their `source_` prefix. Raises SourceError when the source is unreadable."""
        return {}

    @abstractmethod
    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        """All rows in their lasting order. Raises SourceError when the source is unreadable."""

    def length(self) -> int | None:
        """How many rows there will be, where that is known without reading them."""
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the rows may have changed: folders by path, size and mtime, lists by content."""

    @classmethod
    def asks_web(cls, settings: SourceSettings) -> bool:
        """Whether listing or fetching with these settings asks servers, whose owners then want a contact."""
        return cls.on_web

    def at_a_glance(self) -> Source:
        """This source, or one that looks at less of the web where listing all of it takes long; for estimates."""
        return self

    def session(self, run: Run) -> AbstractContextManager[None]:
        """Entered around listing and fetching, for a source that must keep something open meanwhile."""
        return nullcontext()
