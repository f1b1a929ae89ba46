"""What is said on the page, and where things stand on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from discretion.spatial.maps.style import MARGIN, WIDTH

__all__ = ["Key", "Layout", "Words"]

_PROMISE = "Drawn from a differentially private release and public geometry only. No record is shown."


@dataclass(frozen=True)
class Key:
    """What the lines and areas of a map mean, in words; what has no words is left out of the legend.

    question
        Stands above the entries, such as "Is the local mean at least 13?".
    inner, outer
        The solid and the dashed line.
    between
        The hatched area inside the dashed and outside the solid line.
    absent
        Grey places, where there is no value.
    note
        Stands below the entries, such as the confidence of the lines.
    """

    question: str = ""
    inner: str = ""
    outer: str = ""
    between: str = ""
    absent: str = ""
    note: str = ""


def _wrap(text: str, size: float, weight: str = "normal", width: float = WIDTH) -> list[str]:
    """Lines no wider than so many inches, by the measured width of the words."""
    font = FontProperties(size=size, weight=weight)
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        wide, _, _ = text_to_path.get_text_width_height_descent(longer, font, False)
        if lines and wide <= 0.98 * width * 72:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@dataclass(frozen=True)
class Words:
    """The lines above and below the maps."""

    title: list[str]
    subtitle: list[str]
    units: list[str]
    question: list[str]
    entries: list[tuple[str, list[str]]]
    note: list[str]
    guarantee: list[str]
    closing: list[str]

    TITLE, SUBTITLE, KEY, NOTE = 16.0, 10.0, 8.5, 7.8

    @classmethod
    def of(cls, title: str, subtitle: str, units: str, key: Key, epsilon_text: str, plane: str, source: str) -> Words:
        parts = (_PROMISE, plane and f"Coordinates: {plane}", source)
        closing = " ".join(part.rstrip(". ") + "." for part in parts if part)
        room = Layout.KEY_WIDTH - Layout.KEY_INDENT
        signs = {"inner": key.inner, "outer": key.outer, "between": key.between, "absent": key.absent}
        return cls(
            _wrap(title, cls.TITLE, "bold"),
            _wrap(subtitle, cls.SUBTITLE),
            _wrap(units, cls.KEY, width=Layout.BAR_WIDTH),
            _wrap(key.question, cls.KEY, "bold", Layout.KEY_WIDTH),
            [(sign, _wrap(text, cls.KEY, width=room)) for sign, text in signs.items() if text],
            _wrap(key.note, cls.NOTE, width=Layout.KEY_WIDTH),
            _wrap(f"Privacy: {epsilon_text}", cls.NOTE),
            _wrap(closing, cls.NOTE),
        )


@dataclass(frozen=True)
class Layout:
    """Where things stand on the page, in inches from its upper left corner."""

    rows: int
    columns: int
    panel_width: float
    panel_height: float
    panel_head: float
    panel_foot: float
    words: Words

    TOP, GAP = 0.32, 0.2
    TITLE_LINE, SUBTITLE_LINE, KEY_LINE, NOTE_LINE = 0.29, 0.2, 0.17, 0.16
    BAR_WIDTH, BAR_HEIGHT = 0.47 * WIDTH, 0.14
    KEY_WIDTH, KEY_INDENT = 0.48 * WIDTH, 0.44

    @classmethod
    def of(cls, aspect: float, rows: int, columns: int, titled: bool, panel_foot: float, words: Words) -> Layout:
        width = (WIDTH - cls.GAP * (columns - 1)) / columns
        # a tall map is made narrower rather than longer than a page
        width = min(width, 8.2 / rows / aspect)
        return cls(rows, columns, width, width * aspect, 0.26 if titled else 0.0, panel_foot, words)

    @property
    def width(self) -> float:
        return WIDTH + 2 * MARGIN

    @property
    def height(self) -> float:
        notes = len(self.words.guarantee) + len(self.words.closing)
        return self.foot + self.legend + 0.1 + self.NOTE_LINE * notes + 0.25

    @property
    def head(self) -> float:
        """Where the panels begin."""
        lines = len(self.words.title) * self.TITLE_LINE + len(self.words.subtitle) * self.SUBTITLE_LINE
        return self.TOP + lines + 0.18

    @property
    def foot(self) -> float:
        """Where the panels end."""
        each = self.panel_head + self.panel_height + self.panel_foot
        return self.head + self.rows * each + (self.rows - 1) * self.GAP

    @property
    def legend(self) -> float:
        """Height of the colour bar and the key, whichever is higher, with the space around them."""
        words = self.words
        bar = len(words.units) * self.KEY_LINE + self.BAR_HEIGHT + 0.42
        lines = len(words.question) + sum(len(text) for _, text in words.entries)
        key = lines * self.KEY_LINE + len(words.entries) * 0.05 + len(words.note) * self.NOTE_LINE + 0.1
        return 0.22 + max(bar, key) + 0.1

    def box(self, left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
        """A box as matplotlib wants it: fractions of the page from its lower left corner."""
        return left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height

    def point(self, left: float, top: float) -> tuple[float, float]:
        return self.box(left, top, 0, 0)[:2]

    def panel(self, index: int) -> tuple[float, float, float, float]:
        row, column = divmod(index, self.columns)
        left = MARGIN + column * (self.panel_width + self.GAP)
        top = self.head + row * (self.panel_head + self.panel_height + self.panel_foot + self.GAP)
        return self.box(left, top + self.panel_head, self.panel_width, self.panel_height)

    def write(
        self, figure: Figure, left: float, top: float, lines: list[str], size: float, step: float, **look: Any
    ) -> float:
        """Set lines of text one below the other; where the next one would stand."""
        for line in lines:
            figure.text(*self.point(left, top), line, fontsize=size, va="top", parse_math=False, **look)
            top += step
        return top
