"""The page of a release: for a data-protection officer, a statistician and a journalist.

It is made of the certificate, of released values and of public words; of a ledger only what was spent and is left
enters, not who spent it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from discretion.privacy import html
from discretion.privacy.certificate import Certificate, canonical
from discretion.privacy.conversion import round_up, round_up_significant
from discretion.privacy.ledger import Ledger
from discretion.privacy.loss import PrivacyLoss
from discretion.privacy.power import attack_power
from discretion.report.document import data_block, document
from discretion.report.folder import digest
from discretion.report.scene import View

__all__ = ["Contents", "page"]

WEAK = 5.0
"""Above this epsilon the page says that the promise is weak."""
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}((a|b|rc|\.post|\.dev)[0-9]{1,6})*", re.ASCII)


@dataclass(frozen=True)
class Contents:
    """What a page is made of; everything but the certificate may be missing.

    Attributes:
        certificate: of the release.
        view: public words.
        scene: the map, as `Scene.data` returns it.
        findings: further released results: a heading, and a piece of HTML, for each.
        ledger: that paid.
        audit: what an attack found, as `to_dict` of an audit returns it.
        signed: whether the certificate is signed.
        names: files of the release that the page may name.
    """

    certificate: Certificate
    view: View = field(default_factory=View)
    scene: Mapping[str, Any] | None = None
    findings: tuple[tuple[str, str], ...] = ()
    ledger: Ledger | None = None
    audit: Mapping[str, Any] | None = None
    signed: bool = False
    names: tuple[str, ...] = ()


def page(contents: Contents) -> str:
    """The page as HTML."""
    made = contents.certificate
    loss = PrivacyLoss.from_dict(made.loss)
    title = contents.view.title or f"A private release: {made.mechanism}"
    parts = [
        ("map", "The map", "" if contents.scene is None else _map(contents.scene)),
        *((f"finding-{i}", heading, piece) for i, (heading, piece) in enumerate(contents.findings)),
        ("privacy", "Privacy", html.certificate_card(made)),
        ("price", "How much: epsilon and delta", _price(made, loss)),
        ("budget", "What was spent, and what is left", _budget(made, contents.ledger)),
        ("assumptions", "What the promise rests on", _assumptions(made)),
        ("attack", "What an attack found", "" if contents.audit is None else audit_piece(contents.audit, loss)),
        ("verify", "Cite it, check it", _verify(contents)),
        ("settings", "All settings", _settings(made)),
    ]
    parts = [part for part in parts if part[2]]
    links = "".join(f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, heading, _ in parts)
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{escape(heading)}</h2>'
        f'<div class="dis">{piece}</div></section>'
        for name, heading, piece in parts
    )
    guarantee = (
        "nothing is promised"
        if math.isinf(made.epsilon)
        else f"epsilon {round_up(made.epsilon, 2)} at delta {round_up_significant(made.delta, 2)}"
    )
    unit = made.protects().split(". ")[0]
    head = (
        f"<div><h1>{escape(title)}</h1><p>Released{escape(made.of_records)} with differential privacy: {guarantee}. "
        f"The unit of privacy: {escape(unit)}.</p>"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></div>'
    )
    blocks = data_block("certificate-data", made.to_json() + "\n")
    if contents.scene is not None:
        words = {"certificate": digest(made), "title": title, "source": contents.view.source}
        blocks += data_block("map-data", dict(contents.scene) | words)
    source = f"<p>{escape(contents.view.source)}</p>" if contents.view.source else ""
    foot = (
        f"{source}<p>Made {escape(made.created)} with {escape(made.library)} {escape(made.library_version)}. This page "
        "holds released values and public parameters only, asks nothing of the network, and may be passed on.</p>"
    )
    scripts = ["values.js", "map.js", "theme.js"] if contents.scene is not None else ["theme.js"]
    return document(title=title, head=head, body=body + blocks, foot=foot, scripts=scripts)


# --- parts


def _map(scene: Mapping[str, Any]) -> str:
    words = str(scene.get("words") or "")
    plane = f" Coordinates: {escape(str(scene['plane']))}." if scene.get("plane") else ""
    help_ = "Drag, or click and turn the wheel. With the keyboard: arrows move, + and - zoom, 0 shows all."
    return (
        f"{html.paragraphs(words)}"
        '<noscript><p class="alarm">The map needs JavaScript, which this page brings along; the numbers are in the '
        "tables beside it.</p></noscript>"
        '<div id="map-part" class="columns" hidden><div>'
        '<div class="canvas"><canvas id="canvas" tabindex="0" role="application" aria-label="Map of the release" '
        'aria-describedby="map-help"></canvas></div>'
        '<div class="buttons screen"><button type="button" id="zoom-in" aria-label="Zoom in">+</button>'
        '<button type="button" id="zoom-out" aria-label="Zoom out">&#8722;</button>'
        '<button type="button" id="zoom-all">Whole map</button></div>'
        f'<p id="map-help" class="quiet screen">{help_}{plane}</p>'
        '<output id="readout" class="readout screen" aria-live="polite"></output></div>'
        '<div><div class="ramp" aria-hidden="true"></div><div class="ticks" id="ticks"></div>'
        '<p id="units"></p><div id="controls"></div></div></div>'
    )


def _price(made: Certificate, loss: PrivacyLoss) -> str:
    words = (
        "One unit changes the chance of anything that can be seen here by no more than the factor e^epsilon, plus "
        "delta: the probability mass that the factor need not cover, not a chance of failure. One loss has an epsilon "
        "for every delta. The dot is what the certificate states."
    )
    weak = (
        "An epsilon this large is a weak promise in the worst case, which is what is promised against."
        if WEAK < made.epsilon < math.inf
        else ""
    )
    return html.summary(made) + html.paragraphs(words, *([weak] if weak else [])) + html.curve(loss, made.delta)


def _budget(made: Certificate, ledger: Ledger | None) -> str:
    if ledger is not None:
        after = html.paragraphs(
            "All releases that this ledger had paid for when this page was made, composed as losses. Later ones and "
            "other ledgers it does not know."
        )
        return html.ledger_card(ledger, entries=False) + after
    booked = f"It was booked as {made.ledger_entry}" if made.ledger_entry else "It was not booked in a ledger"
    return html.paragraphs(
        f"{booked}. This page was made without looking into one, so it can't say what is left: discretion report "
        "FOLDER --ledger FILE does."
    )


def _assumptions(made: Certificate) -> str:
    return (
        f"<h3>Enforced by the software</h3>{html.bullets(made.enforced)}"
        f"<h3>Declared by whoever made the release, who answers for it</h3>{html.bullets(made.declared)}"
        + html.paragraphs("No computation can check what is only declared.")
    )


def audit_piece(audit: Mapping[str, Any], loss: PrivacyLoss | None = None) -> str:
    """An attack's lower bound beside what is claimed, and its rates beside what the `loss` allows."""
    lower, claimed = float(audit["epsilon_lower"]), audit.get("claimed")
    sure = ""
    if "confidence" in audit:
        sure = f" with {100 * audit['confidence']:g} % confidence"
    floor = math.floor(lower * 1e3) / 1e3
    pairs = [
        ("Attack proves", f"epsilon is at least {floor:.3f} at delta {audit['delta']:g}{sure}"),
        ("Claimed", "nothing" if claimed is None else f"epsilon at most {round_up(float(claimed), 3)}"),
    ]
    if audit.get("auc") is not None:
        pairs.append(("Area under its curve", f"{audit['auc']:.3f} (0.5 is guessing)"))
    piece = html.facts(pairs)
    if audit.get("rates"):
        piece += _rates(audit, loss)
    if audit.get("refuted"):
        return '<p class="alarm">The attack refutes the claim: the release leaks more than it says.</p>' + piece
    return piece + html.paragraphs(
        "The truth lies between the two. An attack that finds little is no proof that there is little to find; the "
        "claim is proved for every attack."
    )


def _rates(audit: Mapping[str, Any], loss: PrivacyLoss | None) -> str:
    """Measured rates, their intervals, and the ceiling that no attack passes."""
    runs = audit.get("each") or [audit]
    # Each interval of a repetition has the confidence that all of them hold together: so do the means of their ends.
    known = all("interval" in rate for run in runs for rate in run["rates"])
    trials = sum(run.get("trials") or 0 for run in runs)
    error = f"the error of {trials:,} trials" if trials else "the error of its trials"
    rows, readings = [], {}
    for i, rate in enumerate(audit["rates"]):
        alarms, found = rate["false_positive"], rate["true_positive"]
        row = [f"{100 * alarms:.3g} %", f"{100 * found:.3g} %"]
        low = high = found
        if known:
            low, high = (sum(run["rates"][i]["interval"][end] for run in runs) / len(runs) for end in (0, 1))
            row.append(f"{100 * low:.3g} to {100 * high:.3g} %")
        if loss is not None:
            most = attack_power(loss, alarms)
            row.append(html.percent(most))
            if known:
                # A test is tried at a threshold: its false alarms are measured too, and may be more than it aims at.
                aimed = [run["rates"][i].get("false_positive_interval", (alarms, alarms))[1] for run in runs]
                above = low > attack_power(loss, min(sum(aimed) / len(aimed), 1.0))
                reading = f"above it by more than {error}" if above else f"within {error}"
                readings.setdefault("below it" if high <= most else reading, []).append(f"{100 * alarms:.3g} %")
        rows.append(tuple(row))
    head = ["False alarms", "Records found"]
    if known:
        head.append(f"{100 * audit['confidence']:g} % interval" if "confidence" in audit else "Interval")
    if loss is not None:
        head.append("Any attack, at most")
    beside = "Beside the most that any attack finds: at {} false alarms {}."
    read = [beside.format(" and ".join(alarms), how) for how, alarms in readings.items()]
    return html.table(head, rows, "What the attack reached") + html.paragraphs(*read)


def _verify(contents: Contents) -> str:
    made = contents.certificate
    year, stated = made.created[:4], f"epsilon {round_up(made.epsilon, 3)}, delta {round_up_significant(made.delta)}"
    title = contents.view.title or f"Private release by {made.mechanism}"
    cite = (
        f"{title}. Differentially private release ({stated}; unit: {made.protects(short=True)}), "
        f"{made.library} {made.library_version}, {year}. Certificate SHA-256 {digest(made)}."
    )
    # A certificate comes from elsewhere: no text of it becomes a command, unless it is a version and nothing else.
    version = made.library_version
    copy = f"pip install .    # in a copy of the repository, at version {version}"
    commands = [copy] if _VERSION.fullmatch(version) else []
    commands.append("discretion certificate verify certificate.json")
    if made.ledger_entry:
        commands[-1] += " --ledger LEDGER"
    if contents.signed:
        commands.append("discretion certificate verify certificate.signed.json --public-key STEWARD.pub")
    commands.append("sha256sum certificate.json")
    code = escape("\n".join(commands))
    explained = (
        "discretion certificate verify computes every number of the certificate again from its parameters: VERIFIED; "
        "REFUSED, where a claim is refuted; or NOT CHECKED, where that version can't compute it again. It can't tell "
        "whether the release was made as stated, for which there are signatures and the ledger."
    )
    named = f"Beside this page: {', '.join(contents.names)}." if contents.names else ""
    return (
        f"<h3>Cite as</h3><p>{escape(cite)}</p><h3>Check</h3>"
        f"<pre>{code}</pre>"
        f"{html.paragraphs(explained, *([named] if named else []))}"
        '<p class="screen"><button type="button" id="save" hidden>Save certificate.json</button></p>'
    )


def _settings(made: Certificate) -> str:
    rows = [(key, _plain(value)) for key, value in sorted(made.parameters.items()) if value not in (None, {}, [])]
    inner = html.table(("Setting", "Value"), rows, "Public parameters")
    return f"<details><summary>The {len(rows)} public parameters of the mechanism</summary>{inner}</details>"


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else canonical(value)
    return text if len(text) <= 600 else f"{text[:600]} ... (whole in the certificate)"


def tuning_piece(found: Mapping[str, Any]) -> str:
    """How a search ended."""
    pairs = [("Outcome", str(found.get("outcome")))]
    pairs += [(str(key).replace("_", " "), _number(value)) for key, value in (found.get("choice") or {}).items()]
    if found.get("score") is not None:
        pairs.append(("Score", f"{found['score']:.4g}: {found.get('score_is', '')}"))
    if found.get("one_run_epsilon") is not None:
        pairs.append(("One run alone would cost", f"epsilon {found['one_run_epsilon']}; the search is what was paid"))
    return html.facts(pairs)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
