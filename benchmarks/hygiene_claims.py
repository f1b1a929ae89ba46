"""Figures stated about what is left lying about, and about damaged inputs."""

from __future__ import annotations

from benchmarks import hygiene
from benchmarks.harness import Measured, claim
from studies.fuzz import fuzz


@claim(
    "ledger",
    "A planted record, as decimals of any length, floats of 8 and 4 bytes or text: in files, pickles, texts, logs, "
    "warnings, temporary files, caches, ledgers, journals, and errors with the locals of their frames",
    "400 places or more searched, in none of them",
    slow=True,
)
def planted_record() -> Measured:
    found = hygiene.scan()
    leaks = "".join(f"; {each}" for each in found.leaks[:5])
    text = f"{len(found.places)} places, {len(found.leaks)} leaks{leaks}"
    return Measured(text, not found.leaks and len(found.places) >= 400)


@claim(
    "ledger",
    "Damaged tables, options, configuration, certificates, exports, ledgers, decoders, maps and keys",
    "100,000 inputs: no traceback, none refused after over 2 s, no word of a record, no budget spent",
    slow=True,
)
def damaged_inputs() -> Measured:
    tried = fuzz(100_000)
    found = "".join(f"; {each.target} {each.index} {each.kind}" for each in tried.findings[:5])
    return Measured(f"{tried}{found}", not tried.findings and tried.inputs.total() >= 100_000)
