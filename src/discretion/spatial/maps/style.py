"""How maps look: colours, dashes, sizes."""

from __future__ import annotations

from matplotlib.colors import Colormap, LinearSegmentedColormap

INK, QUIET, RULE, PAPER, ABSENT = "#1d2935", "#5b6772", "#cdd4da", "#ffffff", "#e6e9ec"
OUTLINE = "#d1335b"
DASHES = (3.0, 1.6)  # in widths of the line
HATCH = 5.0  # points between the lines
MARGIN, WIDTH = 0.45, 8.6  # inches

# Equal steps of CIE lightness L*, from 96 down to 20, so that equal differences of value look equally large
# in colour, in grey print and to colour-blind readers; hue only helps to tell places apart.
RAMP = (
    "#f7f6cf",
    "#c4e1b1",
    "#87cca9",
    "#52b4ac",
    "#2f97ac",
    "#297ba6",
    "#305d95",
    "#2f437a",
    "#292b5e",
)
COLOURS: Colormap = LinearSegmentedColormap.from_list("discretion", RAMP, N=512)
