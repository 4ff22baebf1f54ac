"""Gristmill's curation half: from scraped pages to WebDataset shards.

    import pipeline
    run = pipeline.open("manifests/demo")
    run.joined(["id", "url", "kept", "reason"]).pandas()
    run.stage("measure").duckdb().filter("width < 512")
"""

from pipeline.manifest import Manifests, View
from pipeline.manifest import open_manifests as open

__all__ = ["Manifests", "View", "open"]
