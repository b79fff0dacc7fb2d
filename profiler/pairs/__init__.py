"""The registry of model pairs: one TOML file each, `embedded` shipped with its weights."""

from profiler.pairs.loading import load
from profiler.pairs.pair import Pair
from profiler.pairs.spec import PairSpec, describe, names, read

__all__ = ["Pair", "PairSpec", "describe", "load", "names", "read"]
