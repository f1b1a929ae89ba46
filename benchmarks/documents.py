"""The documents as programs: their blocks of Python and commands, in order, and what the commands are said to print."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ["PAGES", "ROOT", "Block", "Command", "Page", "page"]

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
"""Every document."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language as written, its text, and the line of the document on which the text begins."""

    language: str
    text: str
    line: int

    @cached_property
    def sketch(self) -> bool:
        """Whether an ellipsis stands for something that the reader fills in, so that it can't be run."""
        try:
            tree = ast.parse(self.text)
        except SyntaxError:
            return True  # as in f(a=1, ...)
        return any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(tree))

    def missing(self) -> list[str]:
        """Packages that this Python imports and that are not installed."""
        found = set()
        for node in ast.walk(ast.parse(self.text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            found |= {name.partition(".")[0] for name in names}
        return sorted(name for name in found if importlib.util.find_spec(name) is None)


@dataclass
class Command:
    """Words after `discretion`, and the lines that the document shows beneath."""

    words: list[str]
    shown: list[str] = field(default_factory=list)

    def absent(self, printed: str) -> list[str]:
        """Lines that are shown and were not printed; blanks and breaks of lines are one, `...` stands for anything."""
        text, patterns = " ".join(printed.split()), {}
        for line in self.shown:
            parts = (re.escape(" ".join(part.split())) for part in line.split("..."))
            patterns[line] = ".*".join(parts)
        return [line for line, pattern in patterns.items() if not re.search(pattern, text)]


@dataclass(frozen=True)
class Page:
    """A document by its path."""

    path: Path

    @property
    def name(self) -> str:
        """The path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    def blocks(self, *languages: str) -> list[Block]:
        """Fenced blocks in these languages ("" for none)."""
        text = self.path.read_text(encoding="utf-8")
        found = re.finditer(r"^```([\w-]*)[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        return [
            Block(match[1], match[2], text[: match.start(2)].count("\n") + 1)
            for match in found
            if match[1] in languages
        ]

    def run(self, space: dict[str, Any]) -> int:
        """Run the Python in order, in one namespace, and say how many blocks ran.

        Sketches, and blocks that import what is not installed, are left out.

        Raises AssertionError where a session (`pycon`) prints something else.
        """
        ran = 0
        for block in self.blocks("python", "pycon"):
            if block.language == "pycon":
                self._converse(block, space)
            elif block.sketch or block.missing():
                continue
            else:
                # Empty lines before it, so that an error names its line in the document.
                code = compile("\n" * (block.line - 1) + block.text, self.name, "exec", dont_inherit=True)
                exec(code, space)
            ran += 1
        return ran

    def _converse(self, block: Block, space: dict[str, Any]) -> None:
        """Run a session; what it prints must be what it shows."""
        told: list[str] = []
        test = doctest.DocTestParser().get_doctest(block.text, space, self.name, self.name, block.line)
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append, clear_globs=False)
        space.update(test.globs)
        if told:
            raise AssertionError("".join(told))

    def commands(self) -> Iterator[Command]:
        """Every command of this program in a block of its own, whole lines only."""
        for block in self.blocks("", "console", "bash", "sh"):
            command: Command | None = None
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.removeprefix("$ ").startswith("discretion "):
                    if command:
                        yield command
                    command = Command(shlex.split(line.removeprefix("$ "), comments=True)[1:])
                elif command and line.strip() not in {"", "..."} and "$ " in block.text:
                    command.shown.append(line)
            if command:
                yield command


def page(name: str) -> Page:
    """A document by its path from the root of the repository."""
    return Page(ROOT / name)
