"""Forwards compiled by torch: `--compile`, to measure what it buys on a device."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn

from profiler.pairs.pair import Pair

Compile = Literal["off", "default", "reduce-overhead"]


def compile_forwards(pair: Pair, mode: Compile) -> None:
    """Compile the forwards of both models in place, for any number of tokens; the first passes then take minutes.

    With ``reduce-overhead`` torch replays the drafter's forward as a CUDA graph. A graph needs the same memory in every
    run, which a cache that grows and is cut back does not offer: it is for drafters without one, and the verifier is
    compiled as by default. What a family calls beside the forward of a network stays as it is.

    Raises ValueError for a drafter that runs the verifier's own network, and for ``reduce-overhead`` and a drafter with
    a cache.
    """
    if mode == "off":
        return
    if mode == "reduce-overhead" and pair.spec.drafter.reading != "recompute":
        raise ValueError(
            f"--compile reduce-overhead needs a drafter without a cache, and {pair.spec.name}'s family "
            f"{pair.spec.drafter.family!r} keeps one: its CUDA graphs would need memory that stays; use default"
        )
    verifying, drafting = networks(pair.verifier), networks(pair.drafter)
    if any(network is other for network in drafting for other in verifying):
        raise ValueError(
            f"--compile needs two networks, and {pair.spec.name}'s family {pair.spec.drafter.family!r} drafts with the "
            "verifier's own: its adapter acts on other rows in every pass, and torch would compile for each until it "
            "gives up; leave --compile off"
        )
    for network in verifying:
        network.compile(dynamic=True)
    for network in drafting:
        network.compile(dynamic=True, mode=mode)


def networks(owner: Any) -> list[nn.Module]:
    """The networks that a drafter or verifier holds, whose calls are its forwards."""
    return [value for value in vars(owner).values() if isinstance(value, nn.Module)]
