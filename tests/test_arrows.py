"""The allowed import arrows, read from the code itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted([*ROOT.glob("pipeline/**/*.py"), *ROOT.glob("train/**/*.py")])

FOUNDATION = {"pipeline", "pipeline.errors", "pipeline.schema", "pipeline.storage", "pipeline.settings"}
TRAIN_MAY = {"pipeline.recipe", "pipeline.schema", "pipeline.storage", "pipeline.manifest", "pipeline.errors",
             "pipeline.image", "pipeline.clip", "pipeline.settings", "pipeline.sides"}
LEAVES = {
    # room → what its files may import of the project, besides their own room's base
    "pipeline/checks/": {"pipeline.image", "pipeline.schema", "pipeline.errors", "pipeline.settings",
                         # kernels: arrays in, numbers out
                         "pipeline.edges", "pipeline.spectrum", "pipeline.quantisation", "pipeline.tiles",
                         "pipeline.kernels"},
    "pipeline/captioners/": {"pipeline.image", "pipeline.schema", "pipeline.errors", "pipeline.settings",
                             "pipeline.clip"},
    "pipeline/ingest/sources/": {"pipeline.schema", "pipeline.errors", "pipeline.settings", "pipeline.storage",
                                 # what an address is, and a body's codings
                                 "pipeline.ingest.addresses", "pipeline.ingest.coding"},
}


def _module(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def _imports(path: Path, *, typing_too: bool = False) -> set[str]:
    """Project modules imported by a file; those under TYPE_CHECKING only when asked."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not typing_too:
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = (ROOT / inner.replace(".", "/")).with_suffix(".py").exists() or (
                    ROOT / inner.replace(".", "/") / "__init__.py").exists()
                found.add(inner if is_module else node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return {name for name in found if name.split(".")[0] in ("pipeline", "train")}


def _below(room: str) -> list[Path]:
    return [path for path in FILES if str(path.relative_to(ROOT)).startswith(room)]


def test_the_rooms_are_there() -> None:
    assert len(FILES) > 60
    for room in LEAVES:
        assert _below(room), room


@pytest.mark.parametrize("path", _below("pipeline/"), ids=_module)
def test_pipeline_never_imports_train(path: Path) -> None:
    assert not {name for name in _imports(path, typing_too=True) if name.startswith("train")}


@pytest.mark.parametrize("path", _below("train/"), ids=_module)
def test_train_imports_little_of_pipeline(path: Path) -> None:
    assert {name for name in _imports(path) if name.startswith("pipeline")} <= TRAIN_MAY


@pytest.mark.parametrize("room", LEAVES)
def test_leaves_import_only_their_base(room: str) -> None:
    own = room.rstrip("/").replace("/", ".")
    for path in _below(room):
        if path.name == "__init__.py":
            continue
        others = {name for name in _imports(path) if name.split(".")[0] == "pipeline" and not name.startswith(own)}
        assert others <= LEAVES[room], f"{_module(path)} imports {others - LEAVES[room]}"
        siblings = {name for name in _imports(path) if name.startswith(own + ".")}
        known = {f"{own}.{_stem(p)}" for p in _below(room) if _stem(p) in ("base", "__init__") or _stem(p)[0] == "_"}
        assert siblings <= known | {f"{own}.site"}, f"{_module(path)} imports its sibling {siblings - known}"


def _stem(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize(("low", "allowed"), [
    ("pipeline.errors", set()), ("pipeline.settings", set()), ("pipeline.schema", set()),
    ("pipeline.drivers", {"pipeline.errors"}), ("pipeline.storage", {"pipeline.errors", "pipeline.drivers"}),
    ("pipeline.receipt", {"pipeline", "pipeline.errors", "pipeline.schema", "pipeline.storage"}),
    ("pipeline.manifest", {"pipeline", "pipeline.errors", "pipeline.schema", "pipeline.storage", "pipeline.receipt"}),
])
def test_the_foundation_stands_on_less(low: str, allowed: set[str]) -> None:
    assert _imports(ROOT / (low.replace(".", "/") + ".py")) <= allowed


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_files_stay_small_and_named(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 320
    assert path.stem not in ("util", "utils", "common", "helper", "helpers", "misc")


def test_the_top_level_is_as_designed() -> None:
    import subprocess

    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    top = {name.split("/")[0] for name in listed if name and not name.startswith(".")}
    assert top <= {"pyproject.toml", "README.md", "Makefile", "pipeline", "train", "tests", "manifests", "LICENSE",
                   "requirements.lock"}
