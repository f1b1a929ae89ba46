"""Help of every command and option, at the width of a terminal, and completion of what is typed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import discretion
from discretion.cli import app

ROOT: Any = typer.main.get_command(app)


def commands(command: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that call it."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


COMMANDS = dict(commands())


def complete(monkeypatch, *words: str) -> list[str]:
    """What bash is offered for the last word."""
    monkeypatch.setenv("_DISCRETION_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("discretion", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    result = CliRunner().invoke(app, prog_name="discretion")
    assert result.exit_code == 0, result.output
    return result.stdout.split()


def test_there_are_many():
    assert len(COMMANDS) > 30


def test_every_command_and_option_says_what_it_is():
    silent = [" ".join(words) for words, command in COMMANDS.items() if not (command.help or "").strip()]
    for words, command in COMMANDS.items():
        silent += [" ".join((*words, *each.opts)) for each in command.params if not (each.help or "").strip()]
    assert not silent


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_terminal(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0, result.output
    assert "…" not in result.output, "something is cut short"
    assert max(map(len, result.output.splitlines())) <= 80
    for each in COMMANDS[words].params:
        for option in (*each.opts, *each.secondary_opts):
            if option.startswith("--"):
                assert f"{option} " in result.output.replace(",", " "), "the name is broken"


def test_short_help_and_no_words_are_help_too():
    shown = CliRunner().invoke(app, ["-h"]).output
    assert "Usage" in shown
    assert "Usage" in CliRunner().invoke(app, []).output
    assert "Usage" in CliRunner().invoke(app, ["cost", "-h"]).output


def test_words_are_completed(monkeypatch):
    assert complete(monkeypatch, "co") == ["cost"]
    assert set(complete(monkeypatch, "")) >= {words[0] for words in COMMANDS if len(words) == 1}
    assert "kernel-sum" in complete(monkeypatch, "cost", "k")
    assert "--response-bound" in complete(monkeypatch, "cost", "kernel-sum", "--resp")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_every_shell_is_to_be_had(shell, monkeypatch):
    monkeypatch.setenv("_DISCRETION_COMPLETE", f"source_{shell}")
    script = CliRunner().invoke(app, prog_name="discretion")
    assert script.exit_code == 0
    assert f"complete_{shell}" in script.stdout
    written = Path(discretion.__file__).parents[2] / "docs/reference/command-line.md"
    assert "_DISCRETION_COMPLETE=source_zsh discretion" in written.read_text(encoding="utf-8")


@pytest.mark.slow
def test_as_a_program():
    program = Path(sys.executable).with_name("discretion")
    for words, said in (
        ((sys.executable, "-m", "discretion", "--version"), discretion.__version__),
        ((program, "--version"), discretion.__version__),
        ((sys.executable, "-m", "discretion", "-h"), "Usage"),
        (("bash", "-c", f"{program} --show-completion; true"), "_DISCRETION_COMPLETE=complete_bash"),
    ):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
        assert said in done.stdout, done
