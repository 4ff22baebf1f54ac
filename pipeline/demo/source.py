"""Kind `demo`: the generated website, built when it is not there yet, served on loopback and crawled like any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from pydantic import Field

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest.sources.base import WEB_STATE, Found, Log, Source, SourceSettings, Web
from pipeline.ingest.sources.site import SiteSource

from .address import DEFAULT_PORT, FOLDER, HOST, VERSION

if TYPE_CHECKING:
    from pipeline.run import Run


class DemoSite(Source):
    """Crawls its own website; everything else is what kind `site` does."""

    on_web: ClassVar[bool] = True

    class Settings(SourceSettings):
        kind: Literal["demo"] = Field("demo", description="the demo's generated website")
        seed: int = Field(0, ge=0, description="decides the whole website; another seed, another website")
        scenes: int = Field(
            3000, ge=30, description="pictures drawn; copies and other plants make about a fifth more addresses"
        )
        port: int = Field(
            DEFAULT_PORT, ge=1, le=65535, description="TCP port on 127.0.0.1; addresses and so row ids hang on it"
        )

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._own = cast(DemoSite.Settings, settings)
        self._base_url = f"http://{HOST}:{self._own.port}"
        start = (f"{self._base_url}/index.html",)
        self._site = SiteSource(SiteSource.Settings(name=settings.name, start=start))

    def fingerprint(self) -> str:
        return f"{WEB_STATE} {VERSION}"

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        for found in self._site.rows(web, log):
            yield replace(found, state=f"{VERSION}.{self._own.seed}.{self._own.scenes}")

    @contextmanager
    def session(self, run: Run) -> Iterator[None]:
        """Build the site under the run's data unless it stands, and serve it meanwhile. Raises GristmillError."""
        from .server import serve  # every recipe reads this file; few draw a website
        from .site import build

        folder = storage.local(storage.join(run.data, FOLDER))
        if folder is None:
            raise SourceError(
                f"the demo website cannot be served from {run.data}", hint="give the demo a local --workdir"
            )
        build(folder, self._own.seed, self._own.scenes, base_url=self._base_url)
        with serve(folder, self._own.port):
            yield
