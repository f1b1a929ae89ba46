import numpy as np
import pytest

from discretion.gp import Box, Lattice
from discretion.gp.tiling import cells_of_runs
from discretion.spatial.areas import Areas
from discretion.spatial.outlines import cell_corners, cell_outline

shapely = pytest.importorskip("shapely")

BOX = Box((10.0, 20.0), (22.0, 30.0))


@pytest.mark.parametrize("kind", ["hexagon", "square"])
@pytest.mark.parametrize("seed", range(6))
def test_an_outline_is_the_union_of_its_cells(kind, seed):
    tiles = getattr(Lattice, kind)(1.3, BOX, 0.3).tiles
    chosen = np.random.default_rng(seed).random(len(tiles.cells)) < 0.15 * (seed + 1)
    polygons = cell_outline(tiles, chosen)
    union = shapely.union_all([shapely.Polygon(each) for each in cell_corners(tiles)[chosen]], grid_size=1e-6)
    traced = [shapely.Polygon(rings[0], rings[1:]) for rings in polygons]
    assert all(each.is_valid for each in traced)
    assert sum(each.area for each in traced) == pytest.approx(union.area, rel=1e-6)
    assert shapely.union_all(traced, grid_size=1e-6).symmetric_difference(union, grid_size=1e-6).area < 1e-3


def test_nothing_and_everything():
    tiles = Lattice.hexagon(1.3, BOX, 0.3).tiles
    assert tiles is not None
    assert cell_outline(tiles, np.zeros(len(tiles.cells), dtype=bool)) == []
    (whole,) = cell_outline(tiles, np.ones(len(tiles.cells), dtype=bool))
    assert len(whole) == 1


@pytest.mark.parametrize("kind", ["hexagon", "square"])
def test_the_corners_of_a_cell_are_nearest_to_it(kind):
    lattice = getattr(Lattice, kind)(1.3, BOX, 0.3)
    corners = cell_corners(lattice.tiles)
    inside = 0.98 * corners + 0.02 * lattice.tiles.centres[:, None]
    inside = inside.reshape(-1, 2)
    number = np.repeat(np.arange(lattice.size), corners.shape[1])
    own = BOX.contains(inside)
    np.testing.assert_array_equal(lattice.node(inside[own]), number[own])


def test_runs_name_every_cell():
    tiles = Lattice.hexagon(1.3, BOX, 0.3).tiles
    assert tiles is not None
    np.testing.assert_array_equal(cells_of_runs(tiles.runs), tiles.cells)
    with pytest.raises(ValueError, match="first not above last"):
        cells_of_runs([[0, 3, 1]])


def test_a_tiled_lattice_follows_from_its_words():
    lattice = Lattice.hexagon(1.3, BOX, 0.3, cells=[[0, 1], [0, 2], [3, 1]])
    again = Lattice.of_words(lattice.words)
    assert again.words == lattice.words
    np.testing.assert_array_equal(again.precision.toarray(), lattice.precision.toarray())
    with pytest.raises(ValueError, match="supplied"):
        Lattice.of_words({"graph": "districts"})


def test_a_raster_shows_each_area_where_it_is():
    areas = Areas.of_tiles(Lattice.square(2.0, BOX, 0.3))
    x, y, number, absent = areas.raster()
    assert number.shape == absent.shape == (len(y), len(x))
    assert not absent.any()
    assert set(np.unique(number)) == set(range(areas.lattice.size))
