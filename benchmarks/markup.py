"""HTML read strictly: what is opened is closed in order, ids are unique, references lead somewhere, nothing is far."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

__all__ = ["Markup"]

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
BLOCKS = {"p", "div", "ul", "ol", "dl", "table", "section", "h1", "h2", "h3", "pre", "fieldset", "details", "nav"}
SINGLE = {"title", "main", "h1", "body", "head"}


class Markup(HTMLParser):
    """A document and its mistakes.

    Attributes:
        mistakes: in words; empty for a good page.
        text: what a reader sees, without styles and scripts.
        data: the contents of blocks of JSON, by id.
        scripts, styles: their texts.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.mistakes: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.wanted: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.data: dict[str, str] = {}
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._block: str | None = None
        self.feed(page)
        self.close()
        self.mistakes += [f"<{name}> is never closed" for name in self.open]
        self.mistakes += [f"the id {name} stands twice" for name in {x for x in self.ids if self.ids.count(x) > 1}]
        self.mistakes += [f"nothing has the id {name}" for name in self.wanted if name not in self.ids]
        self.mistakes += [f"{self.seen.count(name)} of <{name}>" for name in SINGLE if self.seen.count(name) != 1]
        levels = [int(name[1]) for name in self.seen if re.fullmatch("h[1-6]", name)]
        self.mistakes += [f"h{b} after h{a}" for a, b in pairwise(levels) if b > a + 1]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if len(given) < len(attrs):
            self.mistakes.append(f"<{tag}> has an attribute twice")
        if tag in BLOCKS and "p" in self.open and "noscript" not in self.open[self.open.index("p") :]:
            self.mistakes.append(f"<{tag}> inside <p>")
        if "svg" not in self.open:
            self.seen.append(tag)
        if name := given.get("id"):
            self.ids.append(name)
        for key in ("aria-labelledby", "aria-describedby", "for"):
            self.wanted += (given.get(key) or "").split()
        if (link := given.get("href") or given.get("src")) is not None:
            if link.startswith("#"):
                self.wanted.append(link[1:])
            elif not link.startswith("data:"):
                self.mistakes.append(f"<{tag}> refers to {link}")
        if any(key.startswith("on") or key == "style" for key in given):
            self.mistakes.append(f"<{tag}> has a handler or a style of its own")
        if tag == "svg" and not (given.get("aria-label") or given.get("aria-hidden")):
            self.mistakes.append("an <svg> without words")
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "style"):
            self._block = given.get("id") if given.get("type") == "application/json" else None

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.mistakes.append(f"</{tag}> closes {self.open[-1:] or 'nothing'}")
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "style":
            self.styles.append(data)
        elif inside == "script" and self._block is not None:
            self.data[self._block] = self.data.get(self._block, "") + data
        elif inside == "script":
            self.scripts.append(data)
        else:
            self.text += data + " "

    @property
    def remote(self) -> list[str]:
        """Addresses anywhere in styles, scripts and data that something could be fetched from."""
        blocks = [*self.styles, *self.scripts, *self.data.values()]
        found = [each for block in blocks for each in re.findall(r"(?:https?:|wss?:|url\(|@import)[^\s\"')]*", block)]
        return [each for each in found if each != "http://www.w3.org/2000/svg"]
