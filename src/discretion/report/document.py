"""A page in one file: styles and scripts inside, nothing from elsewhere, and a policy that makes browsers see to it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any

from discretion.privacy.html import STYLE

__all__ = ["asset", "data_block", "document"]


@lru_cache
def asset(name: str) -> str:
    """The text of a style or script of this package."""
    return (files("discretion.report") / "assets" / name).read_text(encoding="utf-8")


def data_block(name: str, data: Any) -> str:
    """JSON in a page, for its scripts, where no text in it can end the block."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def document(*, title: str, head: str, body: str, foot: str, scripts: Sequence[str], own_server: bool = False) -> str:
    """A whole page.

    The policy in its head allows the style and the scripts of the page, known by their digests, and nothing else: no
    request leaves it, whatever stands in its data.

    Args:
        title: of the window.
        head, body, foot: HTML of the three parts.
        scripts: names of package files.
        own_server: whether the scripts may ask the server that the page came from.
    """
    style, code = asset("page.css") + STYLE, [asset(name) for name in scripts]
    asks = "'self'" if own_server else "'none'"
    policy = (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {' '.join(map(_digest, code))}; connect-src {asks}; base-uri 'none'; form-action 'none'"
    )
    blocks = "".join(f"<script>{each}</script>\n" for each in code)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">To the contents</a>\n'
        f'<header>\n{head}\n<button type="button" id="theme" class="screen" hidden>Dark page</button>\n</header>\n'
        f'<main id="main" tabindex="-1">\n{body}\n</main>\n<footer>\n{foot}\n</footer>\n{blocks}</body>\n</html>\n'
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
