"""The recipe: near misses named, overrides applied, every key documented, the written recipe reads back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from pipeline.errors import GristmillError, RecipeError
from pipeline.ingest.sources import registry as sources
from pipeline.recipe import RECIPES, from_dict, load, recipe_model
from pipeline.start import recipe_text, toml_value, write_recipe

MINIMAL = {"name": "x", "ingest": {"sources": [{"kind": "folder", "name": "f", "path": "."}]}}


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_recipes_are_valid(path: Path) -> None:
    assert load(path.stem).name == path.stem


@pytest.mark.parametrize(("raw", "key", "near"), [
    ({"filter": {"resolution": {"min_sid": 3}}}, "filter.resolution.min_sid", "min_side"),
    ({"filtr": {}}, "filtr", "filter"),
    ({"filter": {"blurr": {}}}, "filter.blurr", "blur"),
    ({"train": {"resolutoin": 64}}, "train.resolutoin", "resolution"),
    ({"ingest": {"sources": [{"kind": "folder", "name": "f", "paht": "."}]}}, "paht", "path"),
    ({"ingest": {"fetch": {"retrys": 1}}}, "ingest.fetch.retrys", "retries"),
])
def test_unknown_keys_are_refused_with_the_near_miss(raw: dict[str, object], key: str, near: str) -> None:
    with pytest.raises(RecipeError) as caught:
        from_dict(MINIMAL | raw)
    assert key in str(caught.value)
    assert near in caught.value.hint


@pytest.mark.parametrize("raw", [
    {"seed": "many"}, {"seed": -1}, {"name": "a/b"}, {"filter": {"resolution": {"min_side": "big"}}},
    {"select": {"top_fraction": 0}}, {"filter": {"blur": {"action": "destroy"}}}, {"engine": {"kind": "spark"}},
    {"ingest": {"sources": [{"kind": "ftp", "name": "f"}]}}, {"ingest": []}, {"filter": 3},
])
def test_bad_values_are_one_line_with_a_hint(raw: dict[str, object]) -> None:
    with pytest.raises(RecipeError) as caught:
        from_dict(MINIMAL | raw)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_overrides_reach_sections_and_list_items() -> None:
    recipe = load("folder", ["filter.resolution.min_side=512", "ingest.sources.0.name=other", "seed = 3",
                             'score.zero_shot={photo = ["a photo"], drawing = ["a drawing"]}'])
    assert recipe.checks["resolution"].model_dump()["min_side"] == 512
    assert recipe.ingest.sources[0].name == "other"
    assert recipe.seed == 3
    assert recipe.score.zero_shot == {"photo": ["a photo"], "drawing": ["a drawing"]}


@pytest.mark.parametrize(("override", "said"), [
    ("filter.bluur.min_sharpness=3", "--set: unknown key 'filter.bluur'"),
    ("seed=many", "--set: seed"),
    ("ingest.sources.0.kind=fodler", "--set: ingest.sources.0.kind: no kind 'fodler'"),
])
def test_a_fault_of_an_override_is_not_blamed_on_the_file(override: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load("folder", [override])
    assert str(caught.value).startswith(said)


def test_an_override_of_the_vaes_steps_leaves_its_other_settings_alone() -> None:
    plain, changed = (load("folder", words).model_dump()["train"]["vae"]["optimiser"]
                      for words in ([], ["train.vae.optimiser.steps=7"]))
    assert changed == {**plain, "steps": 7}


@pytest.mark.parametrize("override", ["filter.resolution.min_side", "ingest.sources.7.name=x", "name.first=x",
                                      "ingest.sources.first.name=x", "=3"])
def test_bad_overrides_are_said_plainly(override: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load("folder", [override])
    assert caught.value.hint


@pytest.mark.parametrize("text", ["name = ", "\x00", "name = 'x'\nname = 'y'"])
def test_broken_toml_is_said_plainly(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(RecipeError, match="TOML"):
        load(str(path))


def test_a_missing_recipe_names_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load(str(tmp_path / "none.toml"))
    assert "demo" in caught.value.hint
    with pytest.raises(GristmillError):
        load(str(tmp_path))


def test_a_folder_of_its_name_hides_no_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with WORKDIR=demo, which makes such a folder."""
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("demo").name == "demo"


def test_a_source_folder_names_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "My pictures (2024)"
    folder.mkdir()
    recipe = load("demo", source=str(folder))
    assert recipe.name == "My-pictures-2024"
    assert recipe.manifests_url == "./manifests/My-pictures-2024"
    with pytest.raises(GristmillError, match="not a folder"):
        load("demo", source=str(tmp_path / "nowhere"))


def _undocumented(model: type[BaseModel], path: str = "") -> list[str]:
    missing = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            missing += _undocumented(kind, f"{path}{name}.")
        elif not (field.description or "").strip():
            missing.append(path + name)
    return missing


def test_every_key_is_documented() -> None:
    assert _undocumented(recipe_model()) == []
    assert [(k, _undocumented(s.Settings)) for k, s in sources().items() if _undocumented(s.Settings)] == []


@pytest.mark.parametrize("kind", ["folder", "site", "urls"])
def test_the_written_recipe_is_valid_and_its_comments_are_the_defaults(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine.toml"
    write_recipe(path, kind)
    text = path.read_text()
    assert load(str(path)).name == "mine"
    lines = text.splitlines()
    opened = "\n".join(line[2:] if line.startswith("# ") and " = " in line and "(unset)" not in line
                       and _is_toml(line[2:]) else line for line in lines)
    plain, full = tomllib.loads(text), tomllib.loads(opened)
    assert len(full) > len([key for key in plain if key not in ("name",)]) - 1
    assert from_dict(full) == from_dict(plain)


def _is_toml(line: str) -> bool:
    try:
        return len(tomllib.loads(line)) == 1 and line.split(" = ")[0].isidentifier()
    except tomllib.TOMLDecodeError:
        return False


def test_an_existing_recipe_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    with pytest.raises(GristmillError, match="exists"):
        write_recipe(path, "folder")
    assert path.read_text() == "mine"


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(GristmillError) as caught:
        recipe_text("x", "ftp")
    assert "folder" in caught.value.hint
    with pytest.raises(GristmillError) as caught:
        recipe_text("x", "sites")
    assert caught.value.hint == "did you mean 'site'?"


def test_values_are_written_as_toml() -> None:
    value = {"a b": [1, 2.5, True, "x\"y"], "c": {"d": ()}}
    assert tomllib.loads(f"v = {toml_value(value)}")["v"] == {"a b": [1, 2.5, True, 'x"y'], "c": {"d": []}}
