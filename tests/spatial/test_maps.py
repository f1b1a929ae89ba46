import hashlib
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from scipy.ndimage import gaussian_filter

from discretion.gp.domain import Box
from discretion.posterior.excursion import excursion_polygons
from discretion.spatial.hexagons import HexagonLattice
from discretion.spatial.maps import COLOURS, DPI, Key, draw_map, draw_paths, map_figure
from discretion.spatial.region import Region

X, Y = np.linspace(503_000, 562_000, 60), np.linspace(155_000, 201_000, 50)
FIELD = gaussian_filter(np.random.default_rng(1).standard_normal((50, 60)), 4) * 3 + 13
MASK = np.hypot((X[None, :] - 532_000) / 30_000, (Y[:, None] - 178_000) / 23_000) > 1
WORDS = {
    "title": "House prices",
    "units": "log price",
    "epsilon_text": "epsilon = 4.95 at delta = 1e-5; the unit of privacy is one hexagon's record",
}


def figure(panels=(FIELD,), **options):
    options = {"polygons": [()] * len(panels), **WORDS, **options}
    return map_figure(list(panels), X, Y, **options)


def words(figure):
    return [text.get_text() for text in figure.texts]


def test_the_picture_is_drawn_and_bears_the_guarantee(tmp_path):
    outline = excursion_polygons(FIELD, X, Y, 13.0, mask=MASK)
    path = draw_map(tmp_path / "map.png", values=FIELD, x=X, y=Y, polygons=outline, threshold=13.0, mask=MASK, **WORDS)
    picture = imread(path)
    drawn = figure(polygons=[outline], threshold=13.0, mask=MASK)
    assert picture.shape[:2] == (round(drawn.get_figheight() * DPI), round(drawn.get_figwidth() * DPI))
    told = " ".join(words(drawn))
    assert "epsilon = 4.95 at delta = 1e-5" in told
    assert "unit of privacy is one hexagon's record" in told
    assert "No record is shown" in told
    assert "At least 13" in told
    assert "log price" in told


def test_the_same_release_gives_the_same_bytes(tmp_path):
    digests = {
        hashlib.sha256(draw_map(tmp_path / name, values=FIELD, x=X, y=Y, **WORDS).read_bytes()).hexdigest()
        for name in ("a.png", "b.png")
    }
    assert len(digests) == 1


def test_north_is_up_and_high_values_are_dark(tmp_path):
    ramp = np.add.outer(np.linspace(0, 3, 50), np.linspace(0, 1, 60))
    for x, y, values in ((X, Y, ramp), (X[::-1], Y[::-1], ramp[::-1, ::-1])):
        picture = imread(draw_map(tmp_path / "ramp.png", values=values, x=x, y=y, metres_per_unit=None, **WORDS))
        drawn = map_figure([values], x, y, polygons=[()], metres_per_unit=None, **WORDS)
        box = drawn.axes[0].get_position()
        height, width = picture.shape[:2]

        def colour(u, v, box=box, picture=picture, height=height, width=width):
            column = int((box.x0 + u * box.width) * width)
            row = int((1 - box.y0 - v * box.height) * height)
            return picture[row, column, :3]

        assert colour(0.02, 0.02) == pytest.approx(COLOURS(0.02)[:3], abs=0.06)
        assert colour(0.98, 0.98) == pytest.approx(COLOURS(0.98)[:3], abs=0.06)
        assert colour(0.02, 0.98) == pytest.approx(COLOURS(0.75)[:3], abs=0.06)


def test_lightness_falls_at_a_constant_rate():
    share = np.linspace(0, 1, 65)
    rgb = np.array([to_rgb(COLOURS(s)) for s in share])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16
    assert np.abs(lightness - (96 - 76 * share)).max() < 1.5
    assert (np.diff(lightness) < 0).all()


def test_one_unit_of_the_plane_is_as_long_up_as_across():
    drawn = figure()
    axes = drawn.axes[0]
    box = axes.get_position()
    across = box.width * drawn.get_figwidth() / np.ptp(axes.get_xlim())
    up = box.height * drawn.get_figheight() / np.ptp(axes.get_ylim())
    assert up == pytest.approx(across, rel=1e-9)
    assert axes.get_xlim() == (503_000, 562_000)


@pytest.mark.parametrize(
    ("metres_per_unit", "said"), [(1.0, "10 km"), (1000.0, "10000 km"), (0.3048, "2 km"), (0.001, "10 m")]
)
def test_the_scale_bar_is_a_round_length_and_true(metres_per_unit, said):
    axes = figure(metres_per_unit=metres_per_unit).axes[0]
    (label,) = [text.get_text() for text in axes.texts]
    assert label == said
    (bar,) = axes.lines
    metres = np.ptp(bar.get_xdata()) * metres_per_unit
    number, unit = said.split()
    assert metres == pytest.approx(float(number) * {"km": 1000, "m": 1}[unit], rel=1e-9)


def test_without_a_length_the_axes_are_marked_instead():
    axes = figure(metres_per_unit=None).axes[0]
    assert not axes.texts
    assert not axes.lines


def test_absent_places_show_no_colour():
    picture = figure(mask=MASK).axes[0].images[0].get_array()
    assert np.ma.getmaskarray(picture)[0, 0]
    assert not np.ma.getmaskarray(picture)[picture.shape[0] // 2, picture.shape[1] // 2]
    share = np.ma.getmaskarray(picture).mean()
    assert share == pytest.approx(MASK.mean(), abs=0.03)
    hidden = np.where(MASK, np.nan, FIELD)
    same = figure((hidden,)).axes[0].images[0].get_array()
    assert (np.ma.getmaskarray(same) == np.ma.getmaskarray(picture)).all()
    # values under the mask do not set the colours
    loud = np.where(MASK, 1e9, FIELD)
    assert figure((loud,), mask=MASK).axes[0].images[0].norm.vmax == FIELD[~MASK].max()


def test_the_outline_follows_the_level_and_not_the_edge_of_the_map():
    ramp = np.tile(np.linspace(0, 1, 60), (50, 1))
    outline = excursion_polygons(ramp, X, Y, 0.5)
    (patch,) = figure((ramp,), polygons=[outline], threshold=0.5).axes[0].patches
    path = patch.get_path()
    drawn = path.vertices[1:][path.codes[1:] == path.LINETO]
    assert drawn[:, 0] == pytest.approx(np.full(len(drawn), 532_500.0))


# --- inner and outer sets

INNER, OUTER = (excursion_polygons(FIELD, X, Y, level) for level in (13.2, 12.8))
KEY = Key(question="Is it at least 13?", inner="yes", outer="no", between="open", absent="no value", note="95 %")


def test_the_key_says_what_lines_and_areas_mean_and_leaves_out_the_rest():
    said = words(figure(polygons=[INNER], outer=[OUTER], key=KEY))
    assert {"Is it at least 13?", "yes", "no", "open", "no value", "95 %"} <= set(said)
    assert not {"open", "At least 13"} & set(words(figure(polygons=[INNER], key=Key(inner="yes"), threshold=13.0)))


def test_the_outer_line_is_dashed_and_the_inner_one_is_not():
    outer, inner = figure(polygons=[INNER], outer=[OUTER], key=KEY).axes[0].patches
    assert inner.get_linestyle() == "solid"
    assert outer.get_linestyle() != "solid"
    assert inner.get_edgecolor() == outer.get_edgecolor()


def test_only_what_lies_between_the_two_sets_is_hatched(tmp_path):
    """The hatched picture differs from the plain one inside the outer and outside the inner set alone."""
    sets = {"polygons": [INNER], "outer": [OUTER]}
    pictures = []
    for drop in (False, True):
        drawn = figure(**sets)
        (hatch,) = [each for each in drawn.axes[0].collections if isinstance(each, LineCollection)]
        hatch.set_visible(not drop)
        drawn.savefig(tmp_path / "map.png", dpi=DPI)
        pictures.append(imread(tmp_path / "map.png"))
    rows, columns = np.nonzero((pictures[0] != pictures[1]).any(axis=-1))
    axes = drawn.axes[0]
    height = pictures[0].shape[0]
    places = axes.transData.inverted().transform(np.column_stack([columns + 0.5, height - rows - 0.5]))
    i, j = (
        np.rint(np.interp(at, axis, np.arange(axis.size))).astype(int)
        for at, axis in zip(places.T, (X, Y), strict=True)
    )
    assert len(rows) > 10_000
    cells = np.zeros(FIELD.shape, dtype=bool)
    cells[j, i] = True
    # half a grid step from the cell's middle the surface may be a little beyond either level
    slack = max(np.abs(np.diff(FIELD, axis=0)).max(), np.abs(np.diff(FIELD, axis=1)).max())
    assert (np.abs(FIELD[cells] - 13.0) < 0.2 + slack).all()
    assert cells[np.abs(FIELD - 13.0) < 0.2 - slack].all()


def test_nothing_is_drawn_outside_the_region_and_nothing_there_sets_the_colours(tmp_path):
    ring = np.array([(515e3, 165e3), (550e3, 165e3), (550e3, 190e3), (515e3, 190e3), (515e3, 165e3)])
    hole = np.array([(525e3, 172e3), (535e3, 172e3), (535e3, 182e3), (525e3, 182e3), (525e3, 172e3)])
    region = Region(((ring[::-1], hole[::-1]),))  # whatever way its rings turn
    inside = region.contains(np.stack(np.meshgrid(X, Y), axis=-1).reshape(-1, 2)).reshape(FIELD.shape)
    loud = np.where(inside, FIELD, 1e9)
    drawn = figure((loud,), region=region)
    axes = drawn.axes[0]
    assert axes.images[0].norm.vmax == FIELD[inside].max()
    drawn.savefig(tmp_path / "map.png", dpi=DPI)
    picture = imread(tmp_path / "map.png")

    def colour(x, y):
        column, row = axes.transData.transform((x, y))
        return picture[picture.shape[0] - int(row), int(column), :3]

    assert colour(508e3, 160e3) == pytest.approx(1.0)
    assert colour(530e3, 177e3) == pytest.approx(1.0)
    assert (colour(520e3, 187e3) < 1.0).any()
    with pytest.raises(ValueError, match="no finite value"):
        figure(region=Region(((ring + 1e6,),)))


@pytest.mark.parametrize("panels", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("shift", [0.0, 5_500_000.0])
def test_marks_on_the_axes_do_not_meet(panels, shift):
    titles = [str(i) for i in range(panels)]
    drawn = map_figure(
        [FIELD] * panels,
        X + shift,
        Y + shift,
        metres_per_unit=None,
        panel_titles=titles,
        polygons=[()] * panels,
        **WORDS,
    )
    drawn.canvas.draw()
    boxes = [
        label.get_window_extent()
        for axes in drawn.axes[:panels]
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if (label := tick.label1).get_visible() and label.get_text()
    ]
    assert len(boxes) >= 4
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= drawn.bbox.x1 for box in boxes)
    assert not [1 for i, one in enumerate(boxes) for other in boxes[:i] if one.overlaps(other)]


def test_the_words_of_the_legend_do_not_meet():
    long = Key(*(f"{word} " * 20 for word in ("question", "inner", "outer", "between", "absent", "note")))
    drawn = figure(
        polygons=[INNER], outer=[OUTER], key=long, units="a clipped local mean " * 8, subtitle="a word " * 40
    )
    drawn.canvas.draw()
    boxes = [text.get_window_extent() for text in drawn.texts]
    # lines that follow each other share a pixel or two of empty ascent
    overlaps = [1 for i, a in enumerate(boxes) for b in boxes[:i] if a.shrunk(0.98, 0.8).overlaps(b.shrunk(0.98, 0.8))]
    assert not overlaps
    assert all(box.x1 <= drawn.bbox.x1 and box.y0 >= 0 for box in boxes)


def test_panels_share_one_scale(tmp_path):
    panels = np.stack([FIELD, FIELD + 1, FIELD - 1])
    drawn = figure(panels, panel_titles=["a", "b", "c"])
    scales = {(axes.images[0].norm.vmin, axes.images[0].norm.vmax) for axes in drawn.axes[:3]}
    assert scales == {(panels.min(), panels.max())}
    outlines = [excursion_polygons(panel, X, Y, 13.0) for panel in panels]
    path = draw_paths(tmp_path / "paths.png", values=panels, x=X, y=Y, polygons=outlines, threshold=13.0, **WORDS)
    assert path.stat().st_size > 10_000
    with pytest.raises(ValueError, match="1 to 12"):
        draw_paths(path, values=np.zeros((13, 50, 60)), x=X, y=Y, **WORDS)
    with pytest.raises(ValueError, match="as many"):
        draw_paths(path, values=panels, x=X, y=Y, polygons=outlines[:2], **WORDS)


def test_the_public_lattice_is_drawn_in_full():
    lattice = HexagonLattice(5000.0, Box((503_000.0, 155_000.0), (562_000.0, 201_000.0)))
    (lines,) = figure(hexagons=lattice).axes[0].collections
    assert len(lines.get_segments()) == lattice.count()


def test_values_are_written_as_asked_and_dollars_stay_dollars():
    drawn = figure(
        threshold=13.0,
        polygons=[excursion_polygons(FIELD, X, Y, 13.0)],
        value_label=lambda v: f"${np.exp(v):,.0f}",
        value_ticks=[12.9, 13.0, 99.0],
        value_range=(12.0, 14.0),
        title="$5 to $9",
    )
    drawn.canvas.draw()
    bar = drawn.axes[-1]
    assert [tick.get_text() for tick in bar.get_xticklabels()] == [r"\$400,312", r"\$442,413"]
    assert "At least $442,413" in words(drawn)
    (heading,) = [text for text in drawn.texts if text.get_text() == "$5 to $9"]
    assert heading.get_parse_math() is False


def test_long_words_are_wrapped_within_the_page():
    drawn = figure(title="Prices " * 30, subtitle="by place " * 40, epsilon_text="epsilon is 1 " * 60)
    drawn.canvas.draw()
    page = drawn.bbox
    for text in drawn.texts:
        extent = text.get_window_extent()
        assert extent.x1 <= page.x1
        assert extent.y0 >= page.y0
        assert extent.y1 <= page.y1


def test_a_constant_surface_is_drawn():
    norm = figure((np.full((50, 60), 13.0),)).axes[0].images[0].norm
    assert norm.vmin < 13.0 < norm.vmax


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        (np.zeros((3, 3)), {}, "shape"),
        (np.full((50, 60), np.nan), {}, "no finite"),
        (FIELD, {"mask": np.zeros((50, 60))}, "boolean"),
        (FIELD, {"value_range": (1.0, 1.0)}, "value_range"),
    ],
)
def test_what_cannot_be_drawn_is_refused(values, options, said):
    with pytest.raises(ValueError, match=said):
        figure((values,), **options)


def test_matplotlib_keeps_its_global_state():
    code = """if True:
        import sys, matplotlib
        before = matplotlib.rcParams.copy()
        from discretion.spatial.maps import map_figure
        square = [[0.0, 1.0], [1.0, 0.0]]
        map_figure([square], [0, 1], [0, 1], polygons=[()], title="t", units="u", epsilon_text="e")
        assert "matplotlib.pyplot" not in sys.modules
        assert matplotlib.rcParams.copy() == before
        """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
