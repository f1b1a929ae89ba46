"""Certificates of local searches are verified from their text, and lowered numbers are found."""

import json

import numpy as np
import pytest

from discretion.bayesopt import SGD, AdaptiveClip, Integer, Late, Linear, LocalSearch, Log
from discretion.bayesopt.candidates import CandidateChoice
from discretion.bayesopt.recomputation import LOSSES
from discretion.gp import Matern52
from discretion.privacy import Certificate, SeededRandomness, SystemRandomness, verify

SPACE = {"rate": Log(1e-4, 1.0), "depth": Integer(2, 64, log=True), "momentum": Linear(0.0, 0.99)}
SEARCHES = {
    "plain": {},
    "late": {"schedule": Late(0.1), "update": SGD(0.2), "smooth": True},
    "adaptive": {"adaptive_clip": AdaptiveClip(share=0.02), "tolerance": 0.1, "kernel": Matern52(0.3)},
    "means": {"largest_loss": 2.0},
    "sampled": {"sample_rate": 0.1},
    "trained": {"training_mu": 0.5, "metric": {"rate": 2.0}, "start": {"rate": 0.1, "depth": 5, "momentum": 0.5}},
}


def text_of(certificate: Certificate) -> dict:
    return json.loads(certificate.to_json())


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_verified_from_its_certificate_alone(name):
    search = LocalSearch(SPACE, mu=0.7, steps=9, clip=0.5, **SEARCHES[name])
    made = Certificate.from_json(search.certificate(4000, SystemRandomness()).to_json())
    assert not verify(made, LOSSES).refused


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mu", 0.9),
        ("sample_rate", 0.2),
        ("steps", 0),
        ("start", {}),
        ("schedule", {"schedule": "whim"}),
        ("batch", "x"),
    ],
)
def test_what_was_changed_is_refused(key, value):
    made = text_of(LocalSearch(SPACE, mu=0.7, steps=9, clip=0.5).certificate(4000, SystemRandomness()))
    made["parameters"][key] = value
    assert verify(Certificate.from_json(json.dumps(made)), LOSSES).refused


def test_a_choice_is_verified():
    losses = np.random.default_rng(0).uniform(0, 1, (50, 3))
    choice = CandidateChoice(({"a": 1}, {"a": 2}, {"a": 3}), 1.0, 0.8, delta=1e-6)
    made = text_of(choice.run(losses, SeededRandomness(0)).certificate)
    assert not [why for why in verify(Certificate.from_json(json.dumps(made)), LOSSES).refused if "seed" not in why]
    made["parameters"]["epsilon"] = 0.9
    assert verify(Certificate.from_json(json.dumps(made)), LOSSES).refused
