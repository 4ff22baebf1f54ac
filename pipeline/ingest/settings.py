"""The recipe's `[ingest]` section."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, field_validator, model_validator

from pipeline.ingest.blocklist import BlocklistSettings
from pipeline.ingest.sources import registry
from pipeline.ingest.sources.base import SourceSettings
from pipeline.settings import Settings


class FetchSettings(Settings):
    """How pictures and pages are fetched over HTTP."""

    contact: str = Field(
        "", description="web page or e-mail address in the User-Agent, so that a site's owner can reach you; "
        "required when a source lies on the web"
    )
    concurrency: int = Field(64, ge=1, description="requests under way at once, over all hosts")
    connections_per_host: int = Field(4, ge=1, description="requests under way at once to one host; fewer for one "
                                      "that answers 429 or 503, until it answers well again")
    delay_s: float = Field(
        0.0, ge=0, description="pause between two requests to one host, seconds; a longer Crawl-delay in "
        "robots.txt wins, up to max_wait_s"
    )
    deadline_s: float = Field(30.0, gt=0, description="one attempt, from connecting to the last byte, seconds")
    connect_s: float = Field(10.0, gt=0, description="connecting, TLS included, seconds")
    idle_s: float = Field(10.0, gt=0, description="longest silence while reading, seconds")
    max_bytes: int = Field(
        32_000_000, ge=1, description="largest picture or page, bytes, counted after decompression"
    )
    max_redirects: int = Field(5, ge=0, description="redirects followed for one address")
    retries: int = Field(
        2, ge=0, description="further attempts after time-outs, broken connections, 429 and 5xx answers"
    )
    backoff_s: float = Field(
        0.5, ge=0, description="wait before the first further attempt, seconds; doubled with each"
    )
    max_wait_s: float = Field(
        30.0, ge=0, description="longest wait before a further attempt, also for Retry-After, seconds; a server "
        "that asks for more is left alone"
    )
    respect_robots: bool = Field(True, description="obey robots.txt")
    opt_outs: tuple[str, ...] = Field(
        ("noai", "noimageai"), description="directives in X-Robots-Tag and meta robots that keep a picture out; "
        "add noindex or noimageindex to be stricter, empty to ignore them"
    )
    respect_tdm: bool = Field(
        True, description="keep out what carries a TDM-Reservation of 1 in its header or its page's meta"
    )
    allow_hosts: tuple[str, ...] = Field(
        (), description="hosts (or host:port) that may lie in a private network, e.g. 127.0.0.1 for the demo"
    )

    @field_validator("allow_hosts", "opt_outs")
    @classmethod
    def _lower(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.strip().lower() for word in words)


if TYPE_CHECKING:
    AnySource = SourceSettings
else:  # every registered source's settings, told apart by `kind`
    AnySource = Annotated[
        reduce(or_, [source.Settings for source in registry().values()]), Field(discriminator="kind")
    ]


class IngestSettings(Settings):
    """What is gathered, and how."""

    sources: tuple[AnySource, ...] = Field((), description="where pictures come from, in row order")
    fetch: FetchSettings = Field(FetchSettings(), description="limits and manners on the network")
    blocklist: BlocklistSettings = Field(
        BlocklistSettings(), description="what is kept out before anything is stored or shown"
    )
    chunk_rows: int = Field(
        256, ge=1, description="rows fetched together and written to one raw tar; up to 32 such chunks are under "
        "way at once, and a killed run fetches the unfinished ones again"
    )

    @field_validator("sources")
    @classmethod
    def _names_differ(cls, sources: tuple[SourceSettings, ...]) -> tuple[SourceSettings, ...]:
        names = [source.name for source in sources]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two sources are named {name!r}; row ids hang on the name, so give each its own")
        return sources

    @model_validator(mode="after")
    def _web_needs_contact(self) -> IngestSettings:
        on_web = [source.name for source in self.sources if registry()[source.kind].asks_web(source)]
        if on_web and not self.fetch.contact.strip():
            raise ValueError(
                f"fetch.contact is empty, but source {on_web[0]!r} lies on the web: give a web page or an e-mail "
                "address at which a site's owner can reach you"
            )
        return self
