"""The files of released kernel sums."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discretion.cli.sheet import Floats, Mask, Sheet
from discretion.posterior import KernelSumRelease
from discretion.posterior.confidence import ExcursionSets, LocalMean, excursion_sets, local_mean, threshold_field
from discretion.posterior.decoder import Decoder
from discretion.posterior.excursion import Polygon, excursion_polygons
from discretion.privacy import round_up
from discretion.spatial.maps import Key, draw_line, draw_map
from discretion.spatial.maps.line import spans

__all__ = ["SumSheet"]

SET = "the non-private smoothed set, at the grid points; privacy noise alone is accounted for"


@dataclass(frozen=True)
class SumSheet(Sheet):
    """The files of released kernel sums: local means, and the sets between which the non-private one lies."""

    release: KernelSumRelease
    floor: float
    level: float
    decoder: Decoder | None = None

    STEM = "sums"

    @classmethod
    def names(cls) -> list[str]:
        return [*super().names(), "decoded.csv", "decoder.npz"]

    def write(self, out: Path) -> list[str]:
        return super().write(out) + self._decoded(out)

    def _decoded(self, out: Path) -> list[str]:
        """The map as the plan's public prior completes it: an estimate with knowledge that the plain map lacks."""
        if self.decoder is None:
            return []
        estimate = self.decoder.decode(self.release).ravel()
        assert self.decoder.cut is not None
        inside = (estimate >= self.decoder.cut).astype(int)
        places = self.release.mechanism.domain.grid(self.decoder.target_shape)
        with (out / "decoded.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*self.page.names, "estimate", "at_least_threshold"])
            writer.writerows(zip(*places.T.tolist(), estimate.tolist(), inside.tolist(), strict=True))
        self.decoder.save(out / "decoder.npz")
        return ["decoded.csv", "decoder.npz"]

    @cached_property
    def means(self) -> LocalMean:
        """Local means where enough records are near."""
        return local_mean(self.release, self.floor)

    @cached_property
    def sets(self) -> ExcursionSets | None:
        """The sets of the threshold; once, for every file: their quantile is simulated."""
        if self.page.threshold is None:
            return None
        kind = "<" if self.page.below else ">"
        # The region was named before the release was made, so the sets need to hold inside it alone.
        return excursion_sets(self.release, self.page.threshold, kind, self.level, region=self.inside.T)

    def columns(self) -> dict[str, NDArray[Any]]:
        assert self.release.density is not None
        columns = {
            "value_sum": self.release.value_sums[0, 0],
            "density": self.release.density[0],
            "local_mean": self.means.values.ravel(),
        }
        if self.sets is None:
            return columns
        return columns | {name: getattr(self.sets, name).ravel().astype(int) for name in ("inner", "outer")}

    def about(self) -> dict[str, dict[str, Any]]:
        page = self.page
        about: dict[str, dict[str, Any]] = {
            "value_sum": {"meaning": f"sum of the differences of {page.units} from the centre, with noise"},
            "density": {"meaning": "number of records near, weighted, times the bound of the response, with noise"},
            "local_mean": {"meaning": f"clipped local mean of {page.units}", "response": page.units},
        }
        if self.sets is not None:
            for name, side in (("inner", "inside"), ("outer", "around")):
                about[name] = page.asked | {"confidence": self.level, "simultaneous": True, "response": page.units}
                about[name] |= {"meaning": f"1 {side} {SET}"}
        return about

    def _line(self, out: Path) -> list[str]:
        page, (x,) = self.page, self.axes
        absent = ~self.means.support
        if absent.all():
            return []
        stretches: dict[str, Any] = {"absent": spans(x, absent.astype(float), 0.5)}
        key = Key(absent="Too few rows near for a mean" if absent.any() else "")
        if self.sets is not None:
            _, (inner, _), (outer, _) = self._cuts(self.sets)
            field = np.where(absent, np.nan, self._field)
            stretches |= {"inner": spans(x, field, inner), "outer": spans(x, field, outer)}
            key = self._key(key.absent, x.size)
        means = {"x": x, "curves": [self.means.values], "label": page.names[0]}
        draw_line(out / "map.png", **means, **stretches, **self._words(), **self._named(), key=key)
        return ["map.png"]

    def _key(self, absent: str, points: int) -> Key:
        """What the lines of the sets mean."""
        return Key(
            question=f"Is the clipped local mean {self.page.condition}?",
            inner="Yes on its unhatched side (inner set)",
            outer="No on its unhatched side (outside the outer set)",
            between="Undecided: the noise allows either answer",
            absent=absent,
            note=f"Both answers hold at all {points:,} grid points together with {100 * self.level:g} % "
            "confidence: sure against the noise of privacy, not against sampling error.",
        )

    def _named(self) -> dict[str, Any]:
        """Words on the local means."""
        page, certificate = self.page, self.release.certificate
        return {
            "units": f"Clipped local mean of {page.units}"
            + (f", with {page.units.removeprefix('log ')} below" if page.logarithm else ""),
            "value_label": page.tick,
            "subtitle": f"Local mean{certificate.of_records}, released at epsilon {round_up(certificate.epsilon, 2)}",
        }

    def _maps(self, out: Path) -> list[str]:
        files = ["map.png"]
        absent, inside = ~self.means.support.T, self.inside
        inner: list[Polygon] = []
        outer: list[Polygon] = []
        key = Key(absent="Too few rows near for a mean" if (inside & absent).any() else "")
        if self.sets is not None:
            cuts = self._cuts(self.sets)
            files.insert(0, self._outlines(out, [(self._excursion(cut, ~inside), about) for cut, about in cuts]))
            inner, outer = (self._excursion(cut, absent) for cut, _ in cuts[1:])
            key = self._key(key.absent, inside.sum())
        if not (inside & ~absent).any():
            # Nothing to draw is public knowledge: it follows from the released density.
            return [name for name in files if name != "map.png"]
        draw_map(
            out / "map.png",
            values=self.means.values.T,
            mask=absent,
            polygons=inner,
            outer=outer,
            key=key,
            **self._named(),
            **self._grid(),
            **self._picture(),
        )
        return files

    def _cuts(self, sets: ExcursionSets) -> list[tuple[float, dict[str, Any]]]:
        """Where to cut the field of the threshold for the estimate, the inner and the outer set."""
        cut = sets.quantile * sets.scale
        sure = {"confidence": self.level, "simultaneous": True}
        return [
            (0.0, {"set": "estimate", "confidence": None}),
            (cut, {"set": "inner", "meaning": f"inside {SET}", **sure}),
            (-cut, {"set": "outer", "meaning": f"around {SET}", **sure}),
        ]

    def _excursion(self, cut: float, mask: Mask) -> list[Polygon]:
        return excursion_polygons(self._field.T, threshold=cut, mask=mask, **self._grid())

    @cached_property
    def _field(self) -> Floats:
        """Positive on the side that the threshold asks for."""
        assert self.page.threshold is not None
        field = threshold_field(self.release, self.page.threshold)[0]
        return -field if self.page.below else field
