import json

import numpy as np
import pytest

pytest.importorskip("shapely")

from discretion.gp.precision import NotAPrior
from discretion.posterior.sampler import PosteriorSampler
from discretion.spatial.districts import Districts


def square(x: float, y: float, side: float = 1.0) -> dict:
    ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    return {"type": "Polygon", "coordinates": [ring]}


def written(path, shapes, names=None):
    names = names or [f"D{number}" for number in range(len(shapes))]
    features = [
        {"type": "Feature", "properties": {"code": name}, "geometry": shape}
        for name, shape in zip(names, shapes, strict=True)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


FOUR = [square(0, 0), square(1, 0), square(0, 1), square(1, 1)]


def pairs(districts: Districts) -> set[tuple[int, int]]:
    return set(zip(*(each.tolist() for each in districts.neighbours), strict=True))


def test_districts_that_share_a_border_are_neighbours_but_not_at_a_corner(tmp_path):
    districts = Districts.read(written(tmp_path / "d.geojson", FOUR), "code")
    assert districts.names == ("D0", "D1", "D2", "D3")
    assert pairs(districts) == {(0, 1), (0, 2), (1, 3), (2, 3)}


def test_a_tolerance_closes_gaps_of_drawn_borders(tmp_path):
    path = written(tmp_path / "d.geojson", [square(0, 0), square(1.001, 0), square(3, 3)])
    assert pairs(Districts.read(path)) == set()
    assert pairs(Districts.read(path, tolerance=0.001)) == {(0, 1)}


def test_points_lie_in_their_district_or_the_nearest(tmp_path):
    districts = Districts.read(written(tmp_path / "d.geojson", FOUR))
    X = [[0.5, 0.5], [1.5, 0.5], [0.2, 1.9], [9.0, 9.0], [1.0, 0.5]]
    assert districts.locate(X).tolist() == [0, 1, 2, 3, 0]


def test_the_prior_of_districts_by_killing_and_by_car(tmp_path):
    districts = Districts.read(written(tmp_path / "d.geojson", FOUR))
    lattice = districts.lattice(0.5)
    np.testing.assert_allclose(
        lattice.precision.toarray() / lattice.unit,
        np.array([[2.5, -1, -1, 0], [-1, 2.5, 0, -1], [-1, 0, 2.5, -1], [0, -1, -1, 2.5]]),
        rtol=1e-12,
    )
    np.testing.assert_allclose(districts.lattice(share=0.9).killing / lattice.unit > 0.0, True)
    with pytest.raises(NotAPrior, match="intrinsic"):
        districts.lattice(share=1.0)
    with pytest.raises(ValueError, match="not both"):
        districts.lattice()


def test_a_map_of_districts_is_released(tmp_path):
    districts = Districts.read(written(tmp_path / "d.geojson", FOUR))
    rng = np.random.default_rng(0)
    public = {"response_range": (0.0, 1.0), "ridge": 5.0, "scale": 0.2, "delta": 1e-3, "rule": "closed-form"}
    model = PosteriorSampler(prior=districts.lattice(0.5), **public, paths=20).fit(
        rng.uniform(0, 2, (100, 2)), rng.uniform(size=100)
    )
    share, low, high = model.release_.exceedance(0.5)
    assert share.shape == (4,)
    assert ((low <= share) & (share <= high)).all()


@pytest.mark.parametrize(
    ("text", "word"),
    [("{", "not GeoJSON"), ('{"type": "FeatureCollection", "features": []}', "no districts")],
)
def test_files_without_districts_are_refused(tmp_path, text, word):
    path = tmp_path / "d.geojson"
    path.write_text(text)
    with pytest.raises(ValueError, match=word):
        Districts.read(path)


def test_broken_shapes_missing_names_and_twins_are_refused(tmp_path):
    bow = {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}
    with pytest.raises(ValueError, match=r"no valid polygons: D1 \(Self-intersection"):
        Districts.read(written(tmp_path / "d.geojson", [square(0, 0), bow]), "code")
    with pytest.raises(ValueError, match="property 'nam'"):
        Districts.read(written(tmp_path / "d.geojson", FOUR), "nam")
    with pytest.raises(ValueError, match="stand twice: A"):
        Districts.read(written(tmp_path / "d.geojson", FOUR[:2], ["A", "A"]), "code")
    with pytest.raises(ValueError, match="can't be read"):
        Districts.read(tmp_path / "none.geojson")
