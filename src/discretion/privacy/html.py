"""Losses, certificates and ledgers as pieces of HTML: what notebooks show, and what a report is made of.

Pieces carry no scripts, no links and no ids, take the colours of the page around them (`currentColor`), and hold what
their objects hold: public parameters. Pictures are SVG.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from discretion.privacy.budget import OVERDRAWN
from discretion.privacy.conversion import round_up, round_up_significant
from discretion.privacy.loss import Neighbours, PrivacyLoss
from discretion.privacy.power import attack_power, guessing
from discretion.privacy.units import TOGETHER, by_unit, mixed

if TYPE_CHECKING:
    from discretion.privacy.certificate import Certificate
    from discretion.privacy.ledger import Ledger

__all__ = [
    "STYLE",
    "bullets",
    "certificate_card",
    "curve",
    "facts",
    "in_notebook",
    "ledger_card",
    "line_chart",
    "loss_card",
    "paragraphs",
    "percent",
    "spent_bar",
    "table",
]

STYLE = """
.dis { line-height: 1.5; max-width: 60rem; }
.dis h3 { font-size: 1.05em; margin: 1.1em 0 .3em; }
.dis p, .dis li { overflow-wrap: anywhere; }
.dis p { margin: .3em 0; max-width: 70ch; }
.dis ul { margin: .3em 0; padding-left: 1.3em; max-width: 70ch; }
.dis dl { display: grid; grid-template-columns: fit-content(45%) minmax(0, 1fr); gap: .15em 1em; margin: .4em 0; }
.dis dt { opacity: .85; }
.dis dd { margin: 0; overflow-wrap: anywhere; }
.dis table { border-collapse: collapse; margin: .4em 0; font-variant-numeric: tabular-nums; }
.dis th, .dis td { text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid rgb(128 128 128 / .35); }
.dis caption { text-align: left; }
.dis .wide { overflow-x: auto; }
.dis svg { display: block; width: 100%; max-width: 34rem; height: auto; color: inherit; }
.dis svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
@media (max-width: 30rem) { .dis svg text { font-size: 14px; } }
.dis .axis { stroke: currentColor; stroke-opacity: .35; fill: none; }
.dis .line { stroke: var(--accent, #2f7fb5); stroke-width: 2.5; fill: none; stroke-linejoin: round; }
.dis .line.l1 { stroke: var(--second, #c0622d); stroke-dasharray: 7 4; }
.dis .line.l2 { stroke: currentColor; stroke-dasharray: 2 3; }
.dis .mark { fill: var(--outline, #d1335b); }
.dis .spent { fill: var(--accent, #2f7fb5); }
.dis .frame { fill: none; stroke: currentColor; stroke-opacity: .6; }
.dis .alarm { border-left: .4em solid var(--outline, #d1335b); padding: .5em .9em; font-weight: 600; }
"""
"""Style of the pieces; all of it inside the class `dis`."""


# --- Small pieces


def paragraphs(*texts: str) -> str:
    """Each text, as it is, a paragraph."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def bullets(texts: Iterable[str], none: str = "None.") -> str:
    """A list of sentences, or one that says there are none."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else paragraphs(none)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(what)}</dd>" for name, what in pairs) + "</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table whose first column names its rows. On narrow screens it scrolls by itself, with the keyboard too."""
    top = "".join(f'<th scope="col">{escape(each)}</th>' for each in head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>' + "".join(f"<td>{escape(each)}</td>" for each in rest) + "</tr>"
        for first, *rest in rows
    )
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    label = escape(caption or "Table", quote=True)
    inner = f"<table>{named}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="{label}">{inner}</div>'


def in_notebook(piece: str) -> str:
    """The piece with its style, as `_repr_html_` returns it."""
    return f'<div class="dis"><style>{STYLE}</style>{piece}</div>'


# --- Pictures

_WIDTH, _HEIGHT = 480.0, 270.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 12.0, 12.0, 42.0


def line_chart(
    lines: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    words: str,
    log_x: bool = False,
    log_y: bool = False,
    marks: Sequence[tuple[float, float]] = (),
) -> str:
    """Lines in a plane, as SVG: at most three, told apart by colour and dashes.

    Args:
        lines: name, x and y of each; points that are not finite are left out.
        x_label, y_label: names of the axes.
        words: the picture in words, for those who don't see it.
        log_x, log_y: logarithmic axes.
        marks: points to be marked.
    """
    shown = []
    for name, xs, ys in lines:
        x, y = np.asarray(xs, dtype=np.float64), np.asarray(ys, dtype=np.float64)
        keep = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not log_x)) & ((y > 0) | (not log_y))
        if keep.any():
            x, y = x[keep], y[keep]
            shown.append((name, np.log10(x) if log_x else x, np.log10(y) if log_y else y))
    if not shown:
        return paragraphs("There is nothing to draw: no value is finite.")
    x_ends = _ends(np.concatenate([x for _, x, _ in shown]))
    y_ends = _ends(np.concatenate([y for _, _, y in shown]))

    def across(value: float) -> float:
        return _LEFT + (value - x_ends[0]) / (x_ends[1] - x_ends[0]) * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _TOP + (y_ends[1] - value) / (y_ends[1] - y_ends[0]) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{escape(words, quote=True)}">']
    for tick in _ticks(*x_ends):
        at, text = across(tick), _number(tick, log_x)
        parts.append(f'<path class="axis" d="M{at:.1f} {_TOP:g}V{_HEIGHT - _BOTTOM:g}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16:g}" text-anchor="middle">{text}</text>')
    for tick in _ticks(*y_ends):
        at, text = down(tick), _number(tick, log_y)
        parts.append(f'<path class="axis" d="M{_LEFT:g} {at:.1f}H{_WIDTH - _RIGHT:g}"/>')
        parts.append(f'<text x="{_LEFT - 6:g}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:g}" y="{_HEIGHT - 6:g}" text-anchor="middle">{escape(x_label)}</text>')
    height = (_TOP + _HEIGHT - _BOTTOM) / 2
    turned = f'transform="rotate(-90 14 {height:g})" text-anchor="middle"'
    parts.append(f'<text x="14" y="{height:g}" {turned}>{escape(y_label)}</text>')
    for index, (name, x, y) in enumerate(shown[:3]):
        points = "L".join(f"{across(u):.1f} {down(v):.1f}" for u, v in zip(x.tolist(), y.tolist(), strict=True))
        parts.append(f'<path class="line l{index}" d="M{points}"><title>{escape(name)}</title></path>')
        if len(shown) > 1:
            above = _TOP + 14 + 15 * index
            parts.append(f'<path class="line l{index}" d="M{_WIDTH - 150:g} {above - 4:g}h24"/>')
            parts.append(f'<text x="{_WIDTH - 120:g}" y="{above:g}">{escape(name)}</text>')
    for x, y in marks:
        u, v = math.log10(x) if log_x and x > 0 else x, math.log10(y) if log_y and y > 0 else y
        if x_ends[0] <= u <= x_ends[1] and y_ends[0] <= v <= y_ends[1]:
            parts.append(f'<circle class="mark" cx="{across(u):.1f}" cy="{down(v):.1f}" r="5"/>')
    return "".join(parts) + "</svg>"


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        pad = max(abs(high), 1e-300) if high else 1.0
        return (0.0, 1.5 * high) if low >= 0 and high > 0 else (low - pad, high + pad)
    return low, high


def _number(tick: float, logarithm: bool) -> str:
    """A tick in words; on a logarithmic axis the number it stands for."""
    return f"{tick:g}" if not logarithm else f"{10**tick:.3g}" if -2 <= tick <= 3 else f"{10**tick:.0e}"


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between the ends."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, math.floor(high / step + 1e-9) + 1)]


def curve(loss: PrivacyLoss, delta: float | None = None) -> str:
    """The epsilon that a loss has at each delta: a picture, and a table of the same.

    Args:
        loss: what was or would be spent.
        delta: where a guarantee is stated, to be marked.
    """
    least = 1e-10 if not delta else min(1e-10, delta / 100)
    deltas = np.geomspace(0.1, max(least, 1e-300), 34)
    epsilons = [loss.epsilon(each) for each in deltas.tolist()]
    marked = [] if not delta else [(loss.epsilon(delta), delta)]
    rows = [(f"1e{k}", _epsilon(loss.epsilon(10.0**k))) for k in (-2, -4, -6, -8, -10)]
    spoken = "; ".join(f"at delta {at} epsilon {value}" for at, value in rows)
    picture = line_chart(
        [("epsilon, delta", epsilons, deltas.tolist())],
        x_label="epsilon (smaller is more private)",
        y_label="delta",
        words=f"The epsilon of this loss at each delta: {spoken}.",
        log_y=True,
        marks=marked,
    )
    return picture + table(("delta", "epsilon, at most"), rows, "The same in numbers")


def spent_bar(spent: float, budget: float) -> str:
    """How much of a budget is spent."""
    share = 1.0 if not budget > 0 or not math.isfinite(spent) else min(spent / budget, 1.0)
    label = f"{100 * share:.1f} % of the budget's epsilon is spent."
    return (
        f'<svg viewBox="0 0 400 22" role="img" aria-label="{label}">'
        f'<rect class="spent" x="1" y="1" width="{398 * share:.1f}" height="20"/>'
        '<rect class="frame" x="1" y="1" width="398" height="20"/></svg>'
    )


# --- Losses


def loss_card(loss: PrivacyLoss) -> str:
    """A loss: what it is, its curve, and what an attack could reach at most."""
    low, high = loss.order_range
    orders = "all orders" if math.isinf(high) else f"Renyi orders from {low:g} to below {high:g}"
    rule = loss.rule if isinstance(loss.rule, str) else type(loss).__name__
    pairs = [
        ("Kind", type(loss).__name__),
        ("Neighbours", str(loss.neighbours)),
        ("Rule", rule),
        ("Finite on", orders),
        *attack_facts(loss),
    ]
    return f"<h3>Privacy loss</h3>{facts(pairs)}{curve(loss)}"


def attack_facts(loss: PrivacyLoss) -> list[tuple[str, str]]:
    """What an attacker could reach at most, as names and figures."""
    return [
        ("An attack finds, at most", f"{percent(attack_power(loss, 0.05))} of true cases at 5 % false alarms"),
        (
            "A guess between two is right",
            f"with a chance of at most {percent(guessing(loss))} (50 % by tossing a coin)",
        ),
    ]


def percent(chance: float) -> str:
    """A chance that is an upper bound, rounded up."""
    return f"{round_up(100 * chance, 1) if chance < 1 else '100'} %"


def _epsilon(value: float) -> str:
    return "no bound" if math.isinf(value) else round_up(value, 3)


def _down(value: float) -> str:
    return f"{math.floor(value * 1e3) / 1e3:.3f}"


# --- Certificates


def certificate_card(made: Certificate) -> str:
    """What a release protects, against whom, and what it does not: the certificate in words."""
    alarm = "" if made.bookable else f'<p class="alarm">{escape(_test_only(made))}</p>'
    loss = PrivacyLoss.from_dict(made.loss)
    return (
        f"{alarm}<h3>What this protects</h3>"
        f"{paragraphs(f'The unit of privacy: {made.protects()}.', _whose(made), made.promise)}"
        f"{facts(attack_facts(loss))}"
        f"<h3>Against whom</h3>{bullets(_AGAINST)}"
        f"<h3>What it does not protect</h3>{bullets((*_NOT, *made.limits))}"
    )


_AGAINST = (
    "Anybody who sees what was released, whatever else they know, even every other record, and however much they "
    "compute, now or later.",
    "Anything computed from the release: it can be copied, combined and published further at no cost to privacy.",
)
_NOT = (
    "Facts about a whole group or place. The release exists to teach them, and they may tell something of a person "
    "whose record was never used.",
    "The records themselves where they are kept: whoever can read them, or the computer, needs no release.",
)


def _test_only(made: Certificate) -> str:
    if made.epsilon == math.inf:
        return f"TEST ONLY: nothing is promised ({made.rule}). This must not be published."
    return (
        f"TEST ONLY: the noise came from a known seed ({made.randomness}). Whoever knows the seed can remove it. This "
        "must not be published."
    )


def _whose(made: Certificate) -> str:
    source = "Its number of records is private too." if made.n is None else f"It was made from {made.n:,} records."
    one = "a unit's record" if made.protects() == made.unit.strip().rstrip(".") else "one row"
    what = {
        Neighbours.REPLACE: f"Everything that {one} says is protected: where, and what.",
        Neighbours.REPLACE_RESPONSE: "Only the response is protected; covariates are treated as public.",
        Neighbours.ADD_REMOVE: f"Whether {one} is in the data at all is protected, and everything in it.",
    }[made.neighbours]
    return f"{source} {what}"


def summary(made: Certificate) -> str:
    """A certificate in one line of names and figures."""
    booked = made.ledger_entry or "not booked in a ledger"
    return facts(
        [
            ("Mechanism", made.mechanism),
            ("Guarantee", f"epsilon <= {_epsilon(made.epsilon)} at delta = {round_up_significant(made.delta)}"),
            ("Neighbours", str(made.neighbours)),
            ("By the rule", made.rule),
            ("Made", f"{made.created} with {made.library} {made.library_version}"),
            ("Booked as", booked),
        ]
    )


# --- Ledgers


def ledger_card(book: Ledger, entries: bool = True) -> str:
    """What was spent of a budget and what is left; with `entries` each entry, by whom, and its state."""
    spent, left, room = book.spent().epsilon, book.remaining(), book.next_epsilon()
    booked = book.entries()
    units = by_unit((each.id, each.description.get("unit")) for each in booked)
    different = mixed(units)
    named = "; ".join(f"{unit.rstrip('.')} (entry {', '.join(map(str, of))})" for unit, of in units.items())
    together = "of no unit: see below" if different else "all entries together"
    until = f", as of entry {len(booked)}" if booked else ""
    kind = "Gaussian" if book.delta else "pure"
    piece = facts(
        [
            ("Data set", book.dataset),
            ("Budget", f"epsilon {book.epsilon:g} at delta {book.delta:g} ({book.neighbours} neighbours)"),
            ("Spent", f"epsilon {_epsilon(spent)}, {together}{until}"),
            *([("Units", f"{TOGETHER}{f' They are: {named}.' if entries else ''}")] if different else []),
            *([("Overdrawn", OVERDRAWN)] if book.overdrawn() else []),
            ("Left", f"epsilon {_down(left)}, a figure to plan with: losses add, epsilons do not"),
            ("Next", f"a {kind} release of epsilon up to about {_down(room)} would be accepted"),
        ]
    ) + spent_bar(spent, book.epsilon)
    if not entries:
        return piece
    rows = [
        (str(each.id), str(each.description.get("mechanism", "")), str(each.state), each.who, each.created)
        for each in booked
    ]
    return piece + (table(("Entry", "Mechanism", "State", "Who", "When"), rows, "Entries") if rows else "")
