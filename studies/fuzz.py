"""Inputs that were damaged in every way, given to whatever reads one: files, options, configuration, certificates.

    python -m studies.fuzz [--inputs 100000] [--seed 0] [--workers 2] [--target NAME] [--index I]

Each input must end in a result or in a plain error: no traceback, nothing that takes over 2 s, no word of a record in
what it says, and no budget spent unless a release was made. Input I of a seed is the same wherever it is tried
(``--index I`` tries it alone). Where an input comes from: `studies.fuzz_targets`; how it is damaged: `studies.damage`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from studies.damage import Charge, Quote

__all__ = ["Finding", "Tried", "fuzz"]

HANG = 2.0
"""Seconds of processor time after which an input counts as one that hangs, unless it is a command that was accepted."""
STUCK = 60.0
"""Seconds by the clock after which the process that tries it is killed."""
MEMORY = 6 << 30
"""Bytes of address space of that process."""
# --- trying


@dataclass(frozen=True)
class Finding:
    """An input that did what none may do: `kind` is traceback, hang, quote or charge."""

    target: str
    index: int
    kind: str
    what: str

    @property
    def place(self) -> tuple[str, str, str]:
        """What findings with one cause share."""
        return self.target, self.kind, self.what.splitlines()[0]


@dataclass
class Tried:
    """How many inputs were tried of each target, and what was found."""

    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    slowest: float = 0.0

    def number(self, kind: str) -> int:
        """How many findings are of a kind."""
        return sum(found.kind == kind for found in self.findings)

    def __str__(self) -> str:
        kinds = ", ".join(f"{self.number(kind)} {kind}s" for kind in ("traceback", "hang", "quote", "charge"))
        return (
            f"{self.inputs.total():,} inputs, {self.refused.total():,} refused: {kinds}; slowest {self.slowest:.1f} s"
        )


def _one(index: int, seed: int, only: str | None, site: Any) -> tuple[str, bool, float, list[Finding]]:
    """Try one input: its target, whether it was refused, how long it took, what was found."""
    from studies.fuzz_targets import TARGETS

    rng = random.Random(f"{seed} {index}")
    weights = [each.share if only in (None, each.name) else 0.0 for each in TARGETS]
    target = rng.choices(TARGETS, weights)[0]
    state, found, took = rng.getstate(), [], 0.0
    refused = False
    for attempt in range(2):  # what took long is tried once more: the machine may have been busy with something else
        rng.setstate(state)
        clock, start = time.monotonic(), time.process_time()
        found = []
        try:
            refused = target.attempt(site, rng)
        except Exception as error:
            kind = {Quote: "quote", Charge: "charge"}.get(type(error), "traceback")
            where = traceback.extract_tb(error.__traceback__)[-1]
            line = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {str(error)[:200]!r}"
            found = [Finding(target.name, index, kind, f"{line}\n{traceback.format_exc()[-3000:]}")]
        took = max(time.process_time() - start, (time.monotonic() - clock) * HANG / STUCK)
        if took < HANG:
            break
        if attempt and not (target.works and not refused and not found):
            found.append(Finding(target.name, index, "hang", f"{took:.1f} s"))
    return target.name, refused, took, found


def _work(share: tuple[int, int, int], seed: int, only: str | None, now: Any, answers: Any) -> None:
    """Try every `step`-th input of a range."""
    from studies.fuzz_targets import Site

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        for index in range(*share):
            now[0], now[1] = index, time.monotonic()
            answers.put((index, *_one(index, seed, only, site)))
    answers.put(None)


def fuzz(
    inputs: int,
    *,
    seed: int = 0,
    workers: int = 2,
    only: str | None = None,
    first: int = 0,
    say: Callable[[str], object] = lambda _: None,
) -> Tried:
    """Try so many inputs, in processes that are watched: one that is stuck, or dies, is a finding and goes on anew."""
    context, tried = multiprocessing.get_context("spawn"), Tried()
    crews = [_Crew(context, (first + k, first + inputs, workers), seed, only) for k in range(workers)]
    heard, told = time.monotonic(), 0
    while sum(crew.listen(tried) for crew in crews):  # every one is asked
        if time.monotonic() - heard > 30:
            heard = time.monotonic()
            say(str(tried))
        for found in tried.findings[told:]:
            say(f"{found.target} {found.index} {found.kind}: {found.what}")
        told = len(tried.findings)
        time.sleep(0.05)
    return tried


class _Crew:
    """A process that tries inputs, and the one that takes its place."""

    def __init__(self, context: Any, share: tuple[int, int, int], seed: int, only: str | None) -> None:
        self._context, self._arguments = context, (seed, only)
        self._start(share)

    def _start(self, share: tuple[int, int, int]) -> None:
        self._share, self._done = share, share[0] >= share[1]
        self._now = self._context.Array("d", [-1.0, time.monotonic() + 60.0])  # a minute to import everything
        self._answers = self._context.Queue()
        arguments = (share, *self._arguments, self._now, self._answers)
        self._process = self._context.Process(target=_work, args=arguments, daemon=True)
        if not self._done:
            self._process.start()

    def listen(self, tried: Tried) -> bool:
        """Take in what was tried; whether there is more to come."""
        if self._done:
            return False
        alive = self._process.is_alive()
        while not self._answers.empty():
            answer = self._answers.get()
            if answer is None:
                self._done = True
                self._process.join()
                return False
            index, target, refused, took, found = answer
            tried.inputs[target] += 1
            tried.refused[target] += refused
            tried.slowest = max(tried.slowest, took)
            tried.findings += found
            self._share = (index + self._share[2], *self._share[1:])
        stuck = time.monotonic() - self._now[1] > 2 * STUCK
        if stuck or not alive:
            _, end, step = self._share
            self._process.kill()
            self._process.join()
            index = int(self._now[0])
            if index < 0:
                raise RuntimeError("A process that tries inputs does not start.")
            kind, what = ("hang", "stuck") if stuck else ("traceback", f"the process died: {self._process.exitcode}")
            tried.inputs["killed"] += 1
            tried.findings.append(Finding("?", index, kind, what))
            self._start((index + step, end, step))
        return True


def main() -> None:
    """Try inputs and print what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.fuzz", description="Damaged inputs for whatever reads one."
    )
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--target", help="inputs of this target alone")
    parser.add_argument("--index", type=int, help="try this input alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    first, inputs = (0, arguments.inputs) if arguments.index is None else (arguments.index, 1)
    tried = fuzz(
        inputs,
        seed=arguments.seed,
        workers=min(arguments.workers, inputs),
        only=arguments.target,
        first=first,
        say=lambda words: print(words, file=sys.stderr, flush=True),
    )
    if arguments.json:
        figures = {kind: tried.number(kind) for kind in ("traceback", "hang", "quote", "charge")}
        print(json.dumps({"inputs": tried.inputs, "refused": tried.refused, **figures}, indent=2))
    else:
        for name, number in sorted(tried.inputs.items()):
            print(f"{name:>14}: {number:>7,} inputs, {tried.refused[name]:>7,} refused")
        print(tried)
    for (target, kind, what), number in Counter(found.place for found in tried.findings).most_common():
        print(f"{number} x {target}, {kind}: {what}")
    sys.exit(1 if tried.findings else 0)


if __name__ == "__main__":
    main()
