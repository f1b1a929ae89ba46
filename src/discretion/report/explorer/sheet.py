"""The explorer's page: sliders made of the model's ranges, and places for its answers."""

from __future__ import annotations

from functools import cache
from html import escape

from discretion.report.document import data_block, document
from discretion.report.explorer.model import CHOICES, LABELS, RANGES, Setting

__all__ = ["sheet"]


@cache
def sheet() -> str:
    """The page, the same for every setting."""
    choices = "".join(_choice(name) for name in CHOICES)
    sliders = "".join(_slider(name) for name in RANGES)
    limits = {
        name: {"low": each.low, "high": each.high, "whole": each.whole, "first": each.first}
        for name, each in RANGES.items()
    }
    head = (
        "<div><h1>What would it cost?</h1><p>Move the sliders: prices are exact or proved, maps are simulated. "
        "This page runs on this machine alone, and no record can be given to it.</p></div>"
    )
    body = (
        '<noscript><p class="alarm">This page needs JavaScript, which it brings along.</p></noscript>'
        '<div class="columns explorer"><form id="setting" aria-label="The release">'
        f'<div class="choices">{choices}</div>{sliders}</form><div class="dis">'
        '<p id="wrong" class="alarm" role="alert" hidden></p>'
        '<section aria-labelledby="price-title"><h2 id="price-title">Price</h2>'
        '<div aria-live="polite"><dl id="rules"></dl></div><p id="searching" class="quiet">Computing ...</p>'
        '<dl id="facts"></dl><div id="chart"></div></section>'
        '<section aria-labelledby="world-title"><h2 id="world-title">A map, and its private version</h2>'
        '<p id="world-words" aria-live="polite">The first map takes some seconds ...</p><div class="pair">'
        '<figure><canvas id="world-0" role="img" aria-label="The simulated world"></canvas><figcaption id="name-0">'
        'The world</figcaption></figure><figure><canvas id="world-1" role="img" aria-label="Its private version">'
        '</canvas><figcaption id="name-1">Its private version</figcaption></figure></div>'
        '<div class="ramp" aria-hidden="true"></div><div class="ticks"><span>low</span><span>high</span></div>'
        '<p><button type="button" id="again">Another world</button></p></section>'
        '<section aria-labelledby="command-title"><h2 id="command-title">As commands</h2>'
        f"{_command('command', 'The price')}{_command('calibration', 'The smallest scale within the budget')}"
        "</section></div></div>"
    )
    foot = "<p>Close the page and press Ctrl-C in the terminal to end it.</p>"
    return document(
        title="discretion explore",
        head=head,
        body=body + data_block("limits", limits),
        foot=foot,
        scripts=["values.js", "explore.js", "theme.js"],
        own_server=True,
    )


def _choice(name: str) -> str:
    first = str(getattr(Setting(), name))
    options = "".join(
        f'<option value="{escape(each)}"{" selected" if each == first else ""}>{escape(each)}</option>'
        for each in CHOICES[name]
    )
    return f'<label>{escape(LABELS[name])}<select name="{name}">{options}</select></label>'


def _slider(name: str) -> str:
    limits = RANGES[name]
    step = ' step="1"' if limits.whole else ' step="any"'
    return (
        f'<div class="slider" data-name="{name}"><label for="n-{name}">{escape(limits.label)}</label>'
        f'<input type="number" id="n-{name}" name="{name}" min="{limits.low:g}" max="{limits.high:g}"{step} '
        f'value="{limits.first:g}"><input type="range" id="s-{name}" min="0" max="1000" '
        f'aria-label="{escape(limits.label, quote=True)}, slider"></div>'
    )


def _command(name: str, title: str) -> str:
    return (
        f'<h3>{title}</h3><pre id="{name}"></pre>'
        f'<p><button type="button" class="copy" data-of="{name}">Copy</button></p>'
    )
