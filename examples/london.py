"""``make demo``: two maps of London from 2018 house sales, each paid from a ledger. Run from the repository's root."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

OUT = Path("demo")


def release(name: str, dataset: str, budget: tuple[str, str]) -> list[list[str]]:
    """Open a book with a budget, release a map from it, show what is left."""
    ledger = str(OUT / f"{name}.sqlite")
    epsilon, delta = budget
    return [
        ["ledger", "init", ledger, "--dataset", dataset, "--epsilon", epsilon, "--delta", delta],
        ["release", "--config", f"examples/{name}.toml", "--out", str(OUT / name), "--ledger", ledger],
        ["ledger", "show", ledger],
    ]


def main() -> None:
    """The kernel-sum map of single sales, then posterior paths from medians of hexagons."""
    discretion = [sys.executable, "-m", "discretion"]
    OUT.mkdir(exist_ok=True)
    if spent := sorted(OUT.glob("*.sqlite")):
        sys.exit(
            f"{spent[0]} exists: the demo's budget is spent, and a ledger never forgets. Remove {OUT}/ to start anew."
        )
    steps = [
        *release("london", "London sales 2018, single sales", ("1", "0.0000035")),
        # Another unit of privacy, so another book: losses of different units do not add.
        *release("london_paths", "London sales 2018, medians of hexagons", ("9", "0.00012")),
    ]
    for step in steps:
        print("$ discretion", shlex.join(step), flush=True)
        subprocess.run([*discretion, *step], check=True)
    print(
        f"\nOpen {OUT}/london/report.html (single sales, epsilon 1) and {OUT}/london_paths/report.html (posterior "
        "paths, epsilon 9)\nin a browser; show the certificate.txt beside each to your data-protection officer."
    )


if __name__ == "__main__":
    main()
