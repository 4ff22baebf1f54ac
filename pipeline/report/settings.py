"""The `[report]` section of the recipe."""

from __future__ import annotations

from pydantic import Field

from pipeline.settings import Settings


class ReportSettings(Settings):
    """How many pictures the report shows, and how large."""

    samples: int = Field(24, ge=0, le=500, description="pictures shown per drop reason, drawn by hash of id")
    kept_samples: int = Field(48, ge=0, le=2000, description="kept pictures shown, drawn by hash of id")
    near_threshold: int = Field(
        6, ge=0, le=60, description="pictures shown on either side of each check's threshold, nearest first"
    )
    duplicate_pairs: int = Field(
        18, ge=0, le=500, description="duplicates shown, each beside the row kept in its place"
    )
    captions: int = Field(24, ge=0, le=500, description="rows shown whose caption was replaced")
    thumbnail_side: int = Field(208, ge=64, le=1024, description="longer side of a thumbnail, px")
    crop_side: int = Field(
        96, ge=0, le=512,
        description="side of the detail shown for faults that thumbnails hide (blur, compression), px; 0: none",
    )
    quality: int = Field(72, ge=20, le=95, description="WebP quality of thumbnails, 20..95")
