"""What MkDocs is told beyond its configuration: pages made from the program, and links that the text leaves out.

* The navigation of the proof notes is that of their page; what nobody listed comes last, so no page is lost.
* A reference page ends with the public names of its wing that it does not mention, so none is missing.
* The page of the command line is made from the commands.
* Files of the repository that the documents name become pages, and links that leave `docs` lead to them.
* A name in backticks becomes a link where it is a proof note, a page, such a file, or one public name.
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WINGS = ("privacy", "gp", "posterior", "selection", "bayesopt", "bilevel", "audit", "spatial", "report", "datasets")
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
NAMED = re.compile(r"\b(?:examples|benchmarks|studies)/[\w/]+\.(?:py|toml)\b")
RUN = re.compile(r"python -m ((?:examples|benchmarks|studies)(?:\.\w+)+)")


# --- navigation


def on_config(config: Any) -> Any:
    """List the proof notes in the groups of their page, and pages that nobody listed."""
    sections: dict[str, list[Any]] = {name: items for part in config.nav for name, items in part.items()}
    for heading, body in groups((DOCS / "proofs" / "index.md").read_text(encoding="utf-8")):
        notes = re.findall(r"\]\(([\w-]+)\.md\)", body)
        sections["Proofs"].append({heading: [{note: f"proofs/{note}.md"} for note in notes]})
    if unlisted():
        sections["Proofs"].append({"Further notes": [{note: f"proofs/{note}.md"} for note in unlisted()]})
    listed = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    pages = (path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md")))
    sections["How to"] += [page for page in pages if page not in listed]
    return config


def groups(text: str) -> list[tuple[str, str]]:
    """Headings of the second level, each with the text under it."""
    return re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", text, re.MULTILINE)


def unlisted() -> list[str]:
    """Proof notes that their page does not mention."""
    text = (DOCS / "proofs" / "index.md").read_text(encoding="utf-8")
    notes = [path for path in sorted((DOCS / "proofs").glob("*.md")) if path.stem != "index"]
    return [path.stem for path in notes if f"({path.name})" not in text]


# --- files of the repository


def source_of(text: str) -> str | None:
    """The file of the repository that a piece of code names, by its path or as a module."""
    found = NAMED.search(text)
    path = found.group() if found else None
    if path is None and (run := RUN.search(text)):
        path = run.group(1).replace(".", "/") + ".py"
    return path if path and (ROOT / path).is_file() else None


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each file of the repository that a document names."""
    texts = [file.content_string for file in files.documentation_pages()]
    paths = {match for text in texts for match in NAMED.findall(text)}
    paths |= {match.replace(".", "/") + ".py" for text in texts for match in RUN.findall(text)}
    for path in sorted(path for path in paths if (ROOT / path).is_file()):
        language = "toml" if path.endswith(".toml") else "python"
        code = (ROOT / path).read_text(encoding="utf-8")
        page = f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n~~~~{language}\n{code}~~~~\n"
        files.append(_made(config, path, page))
    for path in PROJECT:
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(_made(config, path, text.replace("](docs/", "](../")))
    return files


def _made(config: Any, path: str, text: str) -> File:
    return File.generated(config, f"source/{path}.md", content=text, inclusion=InclusionLevel.NOT_IN_NAV)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Finish the generated pages; turn links out of `docs` into links to the pages of those files."""
    here = page.file.src_uri
    if here == "proofs/index.md" and unlisted():
        rows = (f"| [{note}]({note}.md) | {_title(DOCS / 'proofs' / f'{note}.md')} |" for note in unlisted())
        markdown += "\n".join(["", "## Further notes", "", "| note | what it proves |", "| --- | --- |", *rows])
    elif here == "reference/command-line.md":
        markdown += "\n".join(command_line())
    elif here.startswith("reference/") and Path(here).stem in WINGS:
        markdown += "\n".join(left_out(Path(here).stem, markdown))

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(here), match.group(1)))
        page_of = f"source/{target}.md"
        if files.get_file_from_path(page_of) is None:
            return match.group()  # MkDocs says that it leads nowhere
        return f"]({posixpath.relpath(page_of, posixpath.dirname(here) or '.')})"

    return re.sub(r"\]\(((?:\.\./)+[\w./-]+)\)", turned, markdown)


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


# --- reference


def left_out(wing: str, markdown: str) -> Iterator[str]:
    """Directives for the public names of a wing that its page does not mention."""
    mentioned = set(re.findall(rf"^::: discretion\.{wing}\.(\w+)$", markdown, re.MULTILINE))
    names = [name for name in importlib.import_module(f"discretion.{wing}").__all__ if name not in mentioned]
    if names:
        yield "\n\n## Also\n"
        yield from (f"::: discretion.{wing}.{name}\n" for name in names)


def command_line() -> Iterator[str]:
    """Every command with its options, as `--help` has them."""
    from discretion.cli import app

    yield from described(typer.main.get_command(app), "discretion")


def described(command: Any, path: str) -> Iterator[str]:
    children: dict[str, Any] = getattr(command, "commands", {})
    if path.count(" "):
        yield f"\n\n{'#' * (1 + min(path.count(' '), 2))} {path}\n"
        yield inspect.cleandoc(command.help or "").replace("\b", "") + "\n"
    if children:
        for name, child in children.items():
            yield from described(child, f"{path} {name}")
        return
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    yield f"    {' '.join([path, *(each.name.upper() for each in arguments), '[OPTIONS]'])}\n"
    yield from (f"`{each.name.upper()}`: {each.help}\n" for each in arguments if getattr(each, "help", None))
    yield "| option | what | default |\n| --- | --- | --- |"
    for option in options:
        names = " ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts] if name.startswith("--"))
        given = "required" if option.required else option.default
        shown = "" if given in (None, False, ()) or callable(given) else f"{given}"
        yield f"| {names} | {(option.help or '').replace('|', chr(92) + '|')} | {shown} |"


# --- names in backticks


@lru_cache
def public_names() -> dict[str, str]:
    """Where public names stand in the reference, of those that mean one thing and look like names."""
    found: dict[str, dict[int, str]] = {}
    for wing in WINGS:
        module = importlib.import_module(f"discretion.{wing}")
        for name in module.__all__:
            found.setdefault(name, {}).setdefault(id(getattr(module, name)), f"{wing}.html#discretion.{wing}.{name}")
    named = {name: places for name, places in found.items() if name[0].isupper() or "_" in name}
    return {name: next(iter(places.values())) for name, places in named.items() if len(places) == 1}


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Turn code that names something into a link to it, and empty headers of tables into cells."""

    def document(code: str) -> str | None:
        """The page that a path means: from the root or from `docs`, or by its name a page beside this one or a note."""
        beside = posixpath.join(posixpath.dirname(page.file.src_uri), code)
        for path in [code.removeprefix("docs/")] if "/" in code else [beside, f"proofs/{code}"]:
            if file := files.get_file_from_path(path):
                return file.url
        return None

    def linked(match: re.Match[str]) -> str:
        code = match.group("code")
        if code is None:
            return match.group()
        target = None
        if (path := source_of(code)) and files.get_file_from_path(f"source/{path}.md"):
            target = f"source/{path}.html"
        elif re.fullmatch(r"(?:docs/)?(?:proofs/)?[\w-]+\.md", code):
            target = document(code)
        elif name := re.fullmatch(r"(\w+)(?:\.\w+)?(?:\(.*\))?", code):
            place = public_names().get(name.group(1))
            target = f"reference/{place}" if place else None
        if target is None or target == page.url:
            return match.group()
        return f'<a href="{posixpath.relpath(target, posixpath.dirname(page.url) or ".")}"><code>{code}</code></a>'

    html = re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html)  # a header without words is none
    kept = r"<a\b.*?</a>|<pre\b.*?</pre>|<h[1-6]\b.*?</h[1-6]>"
    return re.sub(rf"{kept}|<code>(?P<code>[^<]+)</code>", linked, html, flags=re.DOTALL)
