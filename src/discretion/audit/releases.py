"""Attacks on a release of one's own: its mechanism, run on two data sets that it has most trouble telling apart.

The mechanism is made again from the public parameters in its certificate and run on made-up neighbouring data sets. No
record is read, and what was released is not looked at: the attack tests the mechanism and the claim, not one draw.

No pair is proved to be the worst, so that a claim may be looser than what is shown; one below it is refuted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from discretion.audit.bilevel_games import bilevel_game
from discretion.audit.posterior_games import kernel_sum_game, lattice_game, path_game, thompson_game
from discretion.audit.release_game import IndependentScorer, ReleaseGame
from discretion.audit.search_games import candidate_game, local_search_game
from discretion.audit.selection_games import linear_game, selection_game
from discretion.bayesopt import recomputation as of_bayesopt
from discretion.bayesopt.candidates import CandidateChoice
from discretion.bayesopt.mechanism import LocalSearch
from discretion.bilevel import recomputation as of_bilevel
from discretion.bilevel.mechanism import BilevelMechanism
from discretion.gp import Lattice
from discretion.posterior import KernelSumMechanism, LatticeMechanism, PosteriorMechanism
from discretion.posterior import recomputation as of_posterior
from discretion.posterior.thompson_mechanism import ThompsonMechanism
from discretion.privacy import Certificate
from discretion.selection import SelectionMechanism
from discretion.selection import recomputation as of_selection
from discretion.selection.linear import LogisticMechanism, RidgeMechanism

__all__ = ["IndependentScorer", "ReleaseGame", "certificate_game", "mechanism_game"]


def certificate_game(
    certificate: Certificate, *, seconds: float = 10.0, seed: int = 0, prior: Lattice | None = None
) -> ReleaseGame:
    """The game of the mechanism that a certificate describes; `seconds` and `seed` as in `mechanism_game`.

    `prior` is the graph of a lattice whose certificate has its digest alone, such as districts.

    ValueError where the mechanism can't be made again from the certificate, or no pair of data sets is known.
    """
    name, parameters, n, delta = certificate.mechanism, certificate.parameters, certificate.n, certificate.delta
    told = {key: value for key, value in parameters.items() if key != "released"}
    try:
        if name == SelectionMechanism.name:
            return _searched(told, n, delta)
        if name in of_bilevel.MECHANISMS:
            mechanism: Any = of_bilevel.mechanism_of(name, parameters, n, delta)
        elif name in _MADE:
            make = partial(_MADE[name], prior=prior) if name == LatticeMechanism.name else _MADE[name]
            mechanism = make(parameters, delta)
        elif name in (RidgeMechanism.name, LogisticMechanism.name):
            mechanism = of_selection.linear_of(name, told, delta)
        else:
            raise ValueError(
                f"No neighbouring data sets are known for {name!r}; play discretion.audit.MechanismGame with two of "
                "your own (on the command line --mechanism FILE.py:NAME)."
            )
    except (KeyError, TypeError) as error:
        raise ValueError(f"The certificate's parameters are not those of its mechanism: {error}.") from None
    return mechanism_game(mechanism, n, seconds=seconds, seed=seed)


_MADE: dict[str, Any] = {
    PosteriorMechanism.name: of_posterior.posterior_of,
    KernelSumMechanism.name: of_posterior.kernel_sum_of,
    LatticeMechanism.name: of_posterior.lattice_of,
    ThompsonMechanism.name: of_posterior.thompson_of,
    LocalSearch.name: of_bayesopt.search_of,
    CandidateChoice.name: of_bayesopt.choice_of,
}


def _searched(told: Mapping[str, Any], n: int | None, delta: float) -> ReleaseGame:
    others = of_posterior.LOSSES | of_bayesopt.LOSSES | of_bilevel.LOSSES
    search, stated = of_selection.search_of(told, n, delta, others)
    return selection_game(search, [search.score.run_loss(each.loss, n) for each in stated])


def mechanism_game(mechanism: Any, n: int | None, *, seconds: float = 10.0, seed: int = 0) -> ReleaseGame:
    """A mechanism of this library between neighbouring data sets of n records (None where n is private).

    Posterior paths: the pair that `audit_pair` finds in `seconds` from `seed`, seen at the two places of the record
    that differs, which loses nothing. Kernel sums: one unit of privacy changes or is left out, seen at its place, which
    is the worst case of the value sums. Lattices: one record changes its response, all others far away. Bilevel: few or
    all records at corners of their domain. Where losses are the user's own (local search, separable descent) a function
    of the record that the clipping bounds; private selection: candidates that cost what the real ones do.

    ValueError where no such data sets are known, the mechanism's assumption excludes them, or n is too large to run.
    """
    match mechanism:
        case PosteriorMechanism():
            return path_game(mechanism, n, seconds, seed)
        case KernelSumMechanism():
            return kernel_sum_game(mechanism)
        case LatticeMechanism():
            return lattice_game(mechanism, n)
        case ThompsonMechanism():
            return thompson_game(mechanism)
        case BilevelMechanism():
            return bilevel_game(mechanism)
        case LocalSearch() | CandidateChoice():
            if n is None:
                raise ValueError("The number of records of a search is public: give it as n.")
            return (
                candidate_game(mechanism, n)
                if isinstance(mechanism, CandidateChoice)
                else local_search_game(mechanism, n)
            )
        case RidgeMechanism() | LogisticMechanism():
            return linear_game(mechanism, n)
        case SelectionMechanism():
            size = mechanism.score.training_size(n)
            losses = [each.privacy_loss(size) for each in mechanism.candidates]
            return selection_game(mechanism, [mechanism.score.run_loss(each, n) for each in losses])
    raise ValueError(
        f"No neighbouring data sets are known for {type(mechanism).__name__}; play discretion.audit.MechanismGame with "
        "two of your own (on the command line --mechanism FILE.py:NAME)."
    )
