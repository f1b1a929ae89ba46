"""``make demo``: release a map of London from 2018 house sales, paid from a ledger. Run from the repository's root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OUT = Path("demo")
LEDGER = OUT / "ledger.sqlite"


def main() -> None:
    """Open a book with a budget, release one map from it, show what is left."""
    discretion = [sys.executable, "-m", "discretion"]
    OUT.mkdir(exist_ok=True)
    if LEDGER.exists():
        sys.exit(
            f"{LEDGER} exists: the demo's budget is spent, and a ledger never forgets. Remove {OUT}/ to start anew."
        )
    steps = [
        [
            "ledger",
            "init",
            str(LEDGER),
            "--dataset",
            "London sales 2018",
            "--epsilon",
            "9",
            "--delta",
            "0.00012",
        ],
        ["release", "--config", "examples/london.toml", "--out", str(OUT), "--ledger", str(LEDGER)],
        ["ledger", "show", str(LEDGER)],
    ]
    for step in steps:
        print("$ discretion", *step, flush=True)
        subprocess.run([*discretion, *step], check=True)
    print(f"\nLook at {OUT}/map.png; show {OUT}/certificate.txt to your data-protection officer.")


if __name__ == "__main__":
    main()
