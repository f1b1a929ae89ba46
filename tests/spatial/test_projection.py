import builtins

import numpy as np
import pytest

from discretion.gp.domain import Box
from discretion.spatial.projection import Projection, suggest_crs

pytest.importorskip("pyproj")

LONDON = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
LONDON_DEGREES = Box((-0.52, 51.28), (0.34, 51.70))


def test_longitude_comes_first_whatever_the_authority_says():
    grid = Projection("EPSG:27700")
    assert grid.from_lonlat([[-0.1, 51.5]])[0] == pytest.approx([531_979.29, 179_606.91], abs=0.01)
    assert grid.to_lonlat([[531_979.29, 179_606.91]])[0] == pytest.approx([-0.1, 51.5], abs=1e-6)


@pytest.mark.parametrize("crs", ["EPSG:27700", "EPSG:32630", "EPSG:3035"])
def test_there_and_back_within_a_centimetre(crs):
    projection = Projection(crs)
    lonlat = np.random.default_rng(1).uniform([-5, 50.5], [-0.5, 58], (500, 2))
    assert np.abs(projection.to_lonlat(projection.from_lonlat(lonlat)) - lonlat).max() < 1e-7


def test_swapped_points_raise_and_say_so():
    grid = Projection("EPSG:27700")
    with pytest.raises(ValueError, match="look swapped: longitude comes first"):
        grid.from_lonlat([[51.5, -0.1]])
    with pytest.raises(ValueError, match="look swapped: easting comes first"):
        grid.to_lonlat([[1_079_606.0, 131_979.0]])


@pytest.mark.parametrize("bad", [[[1e12, 1e12]], [[np.nan, 0.0]], [[0.0, np.inf]], [[531_979.0, -1e6]]])
def test_points_that_cannot_be_placed_raise_and_never_become_infinite(bad):
    grid = Projection("EPSG:27700")
    with pytest.raises(ValueError, match="points"):
        grid.to_lonlat(bad)
    with pytest.raises(ValueError, match="points"):
        grid.from_lonlat(bad)


def test_messages_count_points_and_quote_none():
    points = np.array([[531_979.0, 179_606.0], [7_654_321.0, 179_606.0]])
    with pytest.raises(ValueError, match="1 of 2 points") as caught:
        Projection("EPSG:27700").to_lonlat(points)
    assert "7654321" not in str(caught.value).replace("_", "").replace(",", "")


def test_degrees_are_refused_with_a_projected_system_to_use():
    with pytest.raises(ValueError, match=r"in degrees.*EPSG:32630 \(WGS 84 / UTM zone 30N\)"):
        Projection("EPSG:4326", LONDON_DEGREES)
    with pytest.raises(ValueError, match="suggest_crs"):
        Projection("EPSG:4326")
    # a geographic system of one country suggests by its own area
    with pytest.raises(ValueError, match="EPSG:32630"):
        Projection("EPSG:4277")


@pytest.mark.parametrize(
    ("crs", "said"), [("nonsense", "not a coordinate reference system"), ("EPSG:4978", "not a projected")]
)
def test_what_is_no_projected_system_is_refused(crs, said):
    with pytest.raises(ValueError, match=said):
        Projection(crs)


def test_the_domain_is_checked():
    assert Projection("EPSG:27700", LONDON).domain == LONDON
    with pytest.raises(ValueError, match="looks like degrees"):
        Projection("EPSG:27700", LONDON_DEGREES)
    with pytest.raises(ValueError, match="area of use"):
        Projection("EPSG:27700", Box((503_000.0, 155_000.0), (1_562_000.0, 201_000.0)))
    with pytest.raises(ValueError, match="two axes"):
        Projection("EPSG:27700", Box((0.0,), (1.0,)))


def test_names_and_units():
    grid = Projection("EPSG:27700")
    assert grid.unit == "m"
    assert grid.metres_per_unit == 1.0
    assert grid.label == "OSGB36 / British National Grid (EPSG:27700)"
    feet = Projection("EPSG:2263")
    assert "foot" in feet.unit
    assert feet.metres_per_unit == pytest.approx(1200 / 3937, rel=1e-12)


def test_an_area_across_the_antimeridian():
    fiji = Projection("EPSG:3460")
    lonlat = np.array([[178.0, -18.0], [-179.5, -17.0]])
    plane = fiji.from_lonlat(lonlat)
    assert np.linalg.norm(plane[1] - plane[0]) < 400_000
    assert fiji.to_lonlat(plane) == pytest.approx(lonlat, abs=1e-7)


def test_suggestions():
    assert suggest_crs(LONDON_DEGREES).startswith("EPSG:32630")
    assert suggest_crs(Box((144.0, -38.5), (146.0, -37.0))).startswith("EPSG:32755")
    with pytest.raises(ValueError, match="polar"):
        suggest_crs(Box((0.0, 85.0), (1.0, 86.0)))
    with pytest.raises(ValueError, match="longitude"):
        suggest_crs(LONDON)


def test_without_pyproj_the_message_names_the_extra(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == "pyproj":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r'pip install "discretion\[geo\]"'):
        Projection("EPSG:27700")
