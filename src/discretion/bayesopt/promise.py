"""What the certificate of a search says in words: whom it protects, what was enforced, what somebody vouched for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discretion.bayesopt.accounting import training_mu_total
from discretion.privacy.units import whose_rows

if TYPE_CHECKING:
    from discretion.bayesopt.mechanism import LocalSearch

__all__ = ["declared", "enforced", "limits", "scope"]

_WHAT = (
    "What leaves is every noisy gradient and all that follows from them: the path of the parameters, where losses were "
    "evaluated and how often. No loss leaves, so there is no best trial.",
    "Floating point: sums over records are exact; the noise is a continuous Gaussian in double precision whose last "
    "bits a public lattice hides, which is not a proof.",
    "Without a ledger: that a run is taken up from an older copy of its file.",
    "Other runs on the same records, such as those that chose steps, clipping norm or rate: each costs as much again.",
)
_SAMPLED = "How long a step's evaluations take, which tells how many records took part."


def scope(search: LocalSearch) -> str:
    """Whom the guarantee protects."""
    if search.sample_rate is not None:
        return (
            "Protected: the records on which losses are evaluated, one replaced, as epsilon says; the noise before "
            f"sampling has mu = {search.mu:g}. Records that models were trained on are not protected."
        )
    if search.training_mu is None:
        return (
            f"Protected: the records on which losses are evaluated, one replaced, mu = {search.mu:g}. Records that "
            "models were trained on are not protected."
        )
    total = training_mu_total(search.training_mu, search.most_evaluations)
    both = training_mu_total(search.training_mu, search.most_evaluations, search.mu)
    return (
        f"Protected: the records on which losses are evaluated, one replaced, mu = {search.mu:g}; training records "
        f"mu <= {total:g} for at most {search.most_evaluations} runs of mu = {search.training_mu:g}, without the final "
        f"model; a record in both sets mu <= {both:g}."
    )


def enforced(search: LocalSearch) -> tuple[str, ...]:
    """Assumptions of the proof that the software makes true."""
    clipped = "Each record's gradient estimate is clipped before all are added; one not finite counts as 0."
    if search.aggregate:
        clipped = "The estimate from the mean losses is clipped."
    sampled = ("Who takes part in a step is drawn anew, in secret, each record independently.",)
    places = "Places, maps and noise are functions of public parameters and earlier releases."
    once = "A step is written down before its noise is drawn; no file and no process releases it twice."
    return (clipped, places, once, *(sampled if search.sample_rate is not None else ()))


def declared(search: LocalSearch) -> tuple[str, ...]:
    """Assumptions of the proof that somebody answers for."""
    rows = "Rows of the losses are the same records in the same order in every step."
    if search.sample_rate is not None:
        rows = "Losses are of the records of the step's sample, in its order; who takes part stays secret."
    if search.aggregate:
        rows = f"Means are of losses clamped to [0, {search.largest_loss:g}] record by record."
    training = () if search.training_mu is None else (search.training_mu,)
    return (
        "The loss of a record depends on that record, the parameters and public material alone, and so does "
        "whether an evaluation fails.",
        "The public parameters were not chosen by looking at these records.",
        rows,
        *(f"Each training run is {mu:g}-GDP for its training records." for mu in training),
        *whose_rows(search.unit),
    )


def limits(search: LocalSearch) -> tuple[str, ...]:
    """What the promise does not cover."""
    return (scope(search), *_WHAT, *((_SAMPLED,) if search.sample_rate is not None else ()))
