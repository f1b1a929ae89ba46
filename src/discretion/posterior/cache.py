"""Results of long computations on public parameters, kept on disk from one run to the next.

A result is a JSON object in a file named by the digest of everything it depends on: its parameters, the version, and
the source of the rooms that computed it. Nothing private is ever computed here. What can't be read is computed anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

__all__ = ["folder", "kept"]

_ROOMS = ("gp", "posterior", "privacy")


def folder() -> Path:
    """Where results are kept: ``$DISCRETION_CACHE``, or ``discretion`` in the user's cache folder."""
    if given := os.environ.get("DISCRETION_CACHE"):
        return Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "discretion"


def kept(name: str, parameters: Mapping[str, Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of `compute`, which depends on these parameters alone; from disk if it was computed before.

    ``parameters`` and the result are JSON-able; doubles come back exactly. A result whose ``complete`` is false (a time
    limit stopped it) is not kept. A file that is torn or was altered is not used. A folder that can't be written is no
    error.
    """
    text = json.dumps([name, dict(parameters), _source()], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()
    path = folder() / f"{name}-{key[:32]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["key"] == _seal(key, found["result"]):
            return found["result"]
    result = compute()
    if not result.get("complete", True):
        return result
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".part", delete=False) as part:
            json.dump({"key": _seal(key, result), "result": result}, part)
        os.replace(part.name, path)
    return result


def _seal(key: str, result: Any) -> str:
    """Digest of a result and of what it depends on."""
    return hashlib.sha256((key + json.dumps(result, sort_keys=True)).encode()).hexdigest()


@cache
def _source() -> str:
    """Version, and digest of the source of the rooms whose bounds are kept."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{version('discretion')} {digest.hexdigest()}"
