"""What starting a command costs: what it does not need is not loaded, and pandas is there when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from PIL import Image

SLOW = {"pandas.core.frame", "torch", "scipy", "fsspec", "diffusers", "open_clip", "transformers", "PIL.ImageDraw",
        "numba"}
"""PIL.ImageDraw stands for what draws the demo website."""


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=120)


def test_ingest_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    Image.new("RGB", (64, 64), "teal").save(folder / "one.png")
    ended = _python("-X", "importtime", "-m", "pipeline", "ingest", "--source", str(folder), "--workdir", str(tmp_path))
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert {"aiohttp", "pyarrow", "pipeline.ingest.fetch"} <= loaded
    assert not loaded & SLOW
    assert "ingest   done  1 rows" in ended.stderr


def test_pandas_is_loaded_when_a_frame_is_wanted(tmp_path: Path) -> None:
    """pyarrow takes note that there is no pandas while a command starts; that must not be its last word."""
    ended = _python("-c", """if True:
        import gc, sys
        from pipeline.startup import loading
        with loading():
            import pyarrow as pa
        assert gc.isenabled()
        table = pa.table({"words": ["a", None], "number": pa.array([1, 2])})
        assert "pandas" not in sys.modules
        frame = table.to_pandas()
        assert frame["number"].tolist() == [1, 2] and type(frame).__module__.startswith("pandas")
        import pandas as pd
        assert pa.array(pd.Series([3, None])).to_pylist() == [3.0, None]
        """)
    assert ended.returncode == 0
