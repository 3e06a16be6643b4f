# SPDX-License-Identifier: GPL-2.0-only
"""Figures of the model of the kprobes' hash and cache, from the output of ``images/unattended/kpcache_model.sh``."""

from __future__ import annotations

from orchestrator.benchmarks.scaling.figures import ScalingFigures, ScalingProof
from orchestrator.benchmarks.scaling.rows import scaling_benchmark
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError
from orchestrator.run.unattended_output import Step, of_command, parse_steps

NAME = "kpcache-model"
_WALKS = ("nothing", "nothing", "list", "list", "cache", "cache", "cache", "count")


def read_model(text: str, probes: int) -> ScalingFigures:
    """The figures of ``probes`` addresses, all lookups checked. Raises EvidenceError."""
    steps = parse_steps(text)
    model = scaling_benchmark(NAME)
    assert model is not None
    parts = {(bits, hot): _part(steps, probes, bits, hot) for bits in (6, 12) for hot in (0, 95)}
    samples: dict[str, tuple[float, ...]] = {}
    row_facts: dict[str, dict[str, int]] = {}
    for name, row in model.rows.items():
        walks = parts[row.bits, row.hot]
        samples[name] = walks[row.walk]
        if row.walk == "cache":
            row_facts[name] = {"cache_hits": int(walks["count"][0]), "lookups": int(walks["count"][1])}
    bare = {sample for part in parts.values() for sample in part["nothing"]}
    if len(bare) != 1:
        raise EvidenceError(f"the loop without a lookup differs: {sorted(bare)}")
    samples[BASELINE] = tuple(bare) * 2
    (removed,) = of_command(steps, "remove", 1)
    if removed.number("wrong") or not removed.number("asked"):
        raise EvidenceError(f"{removed.number('wrong')} addresses were found after they had been taken away")
    lookups = next(step.number("lookups") for step in steps if step.command == "walk")
    fill, *others = (step for step in steps if step.command == "fill")
    seen = {step.hexadecimal("bytes") for step in (fill, *others)}
    if len(seen) != 1:
        raise EvidenceError(f"the bytes at the first address changed: {', '.join(sorted(seen))}")
    return ScalingFigures(
        samples=samples,
        proof=ScalingProof(
            mechanism="model",
            live=fill.hexadecimal("bytes"),
            original=fill.hexadecimal("bytes"),
            address=int(fill.hexadecimal("site"), 16),
            symbol="lab_kpcache_model",
            hits=lookups,
            calls=lookups,
        ),
        facts={"cache_bytes": fill.number("cache_bytes")},
        compared=frozenset(samples) - {BASELINE},
        row_facts=row_facts,
    )


def _part(steps: list[Step], probes: int, bits: int, hot: int) -> dict[str, tuple[float, ...]]:
    """The walks of one hash and one choice of addresses, by name; ``count``: lookups found in the cache, and all."""
    start = next(
        (
            number
            for number, step in enumerate(steps)
            if step.command == "fill"
            and step.arguments == (str(probes), str(bits))
            and [following.arguments[:1] for following in steps[number + 1 : number + 2]] == [(str(hot),)]
        ),
        None,
    )
    if start is None:
        raise EvidenceError(f"no lookups among {probes} addresses in 2^{bits} lists were made")
    walks = steps[start + 2 : start + 2 + len(_WALKS)]
    if tuple(step.arguments[0] for step in walks if step.command == "walk" and step.arguments) != _WALKS:
        raise EvidenceError("the walks are not those that were planned")
    wrong = sum(step.number("wrong") for step in walks)
    if wrong:
        raise EvidenceError(f"{wrong} lookups found something else than the address's own probe")
    found: dict[str, tuple[float, ...]] = {}
    for name in ("nothing", "list", "cache"):
        taken = [step for step in walks if step.arguments == (name,)]
        found[name] = tuple(
            step.number("taken") / step.positive("lookups") for step in taken[1 if name == "cache" else 0 :]
        )
    counted = walks[-1]
    found["count"] = (float(counted.number("hits")), float(counted.number("lookups")))
    return found
