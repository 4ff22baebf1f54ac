"""Settings: what a section keeps of its defaults when a recipe gives it only in part."""

from __future__ import annotations

from pydantic import Field

from pipeline.settings import Settings


class Oven(Settings):
    degrees: int = Field(180, description="heat, °C")
    minutes: int = Field(30, description="time, min")


class Bread(Settings):
    oven: Oven = Field(Oven(degrees=240), description="hotter than the oven's own default")


class Bakery(Settings):
    bread: Bread = Field(Bread(oven=Oven(minutes=45)), description="another default again")


def test_a_section_given_in_part_keeps_the_rest_of_its_own_default() -> None:
    assert Bread.model_validate({"oven": {"minutes": 50}}).oven == Oven(degrees=240, minutes=50)
    assert Bread.model_validate({}).oven == Oven(degrees=240, minutes=30)
    assert Bread.model_validate({"oven": Oven(minutes=5)}).oven == Oven(degrees=180, minutes=5)


def test_so_it_does_two_levels_down() -> None:
    assert Bakery.model_validate({"bread": {"oven": {}}}).bread.oven == Oven(degrees=180, minutes=45)
    assert Bakery.model_validate({"bread": {}}).bread.oven == Oven(degrees=180, minutes=45)
