"""Every figure that the README, the documentation or a closing note states, measured anew.

    python -m benchmarks.claims [AREA | NAME] [--slow] [--json]

Prints claim, target, measured and whether it holds; ``--json`` a list of objects with these keys. Slow rows run with
``--slow`` or when named. The exit code is 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table

from benchmarks import (  # noqa: F401  (importing registers the rows)
    audit_claims,
    bayesopt_claims,
    bayesopt_sampling_claims,
    bayesopt_study_claims,
    bilevel_claims,
    bilevel_descent_claims,
    cluster_claims,
    composition_claims,
    document_claims,
    engine_claims,
    excursion_claims,
    hygiene_claims,
    kernel_sum_claims,
    lattice_claims,
    lattice_london,
    ledger_claims,
    map_claims,
    matern_line_claims,
    membership_claims,
    noise_claims,
    packaging_claims,
    peer_claims,
    planner_claims,
    posterior_claims,
    profile_claims,
    report_claims,
    selection_claims,
    selection_runner_claims,
    study_account_claims,
    study_claims,
    thompson_claims,
    tight_claims,
)
from benchmarks.harness import AREAS, CLAIMS, Claim, Measured


def chosen(word: str | None, slow: bool) -> list[Claim]:
    """The claims of an area, of a name, or all."""
    if word in CLAIMS:
        return [CLAIMS[word]]
    if word is not None and word not in AREAS:
        raise SystemExit(f"{word} is neither an area ({', '.join(AREAS)}) nor a claim ({', '.join(CLAIMS)}).")
    return [each for each in CLAIMS.values() if word in (None, each.area) and (slow or not each.slow)]


def measured(each: Claim) -> Measured:
    """The measurement; a crash is a claim that does not hold."""
    try:
        return each.measure()
    except Exception as error:
        return Measured(f"failed: {type(error).__name__}: {error}", False)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description="Measure stated figures anew.")
    parser.add_argument("what", nargs="?", help="an area or the name of a claim; all areas if left out")
    parser.add_argument("--slow", action="store_true", help="also the slow rows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    progress = Console(stderr=True)
    rows = []
    for each in chosen(arguments.what, arguments.slow):
        progress.print(f"measuring {each.name} ...", style="dim")
        found = measured(each)
        row = {"claim": each.claim, "target": each.target, "measured": found.text, "holds": bool(found.holds)}
        rows.append(row | {"area": each.area, "name": each.name})
    if arguments.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        table = Table("area", "claim", "target", "measured", "holds", show_lines=True)
        for row in rows:
            mark = "[green]yes[/]" if row["holds"] else "[bold red]NO[/]"
            table.add_row(*(str(row[key]).replace("[", "\\[") for key in ("area", "claim", "target", "measured")), mark)
        Console().print(table)
    sys.exit(0 if all(row["holds"] for row in rows) else 1)


if __name__ == "__main__":
    main()
