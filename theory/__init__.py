"""The mathematics of diffusion drafting, from recorded rounds to a predicted frontier, without a deep-learning library.

The modules read from the bottom up: distances, coupled, acceptance, proposition1 (the paper's formulas on arrays of any
kind); theorem1, law_check, proposition2, exactness, toys, mistakes (what verification keeps, and how a check finds that
it does not); estimates, identity, strict_json, tables (uncertainty and files); rounds, verifier_time, latency,
rule_times, calibration, replay, anchors, recorded, prediction, frontier, measurements, planner, routing, ranking,
comparison, assumptions (from a recording to a recommendation, and to its error); export (for other programs).
"""
