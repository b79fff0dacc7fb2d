"""What all tests share: the array libraries and the Hypothesis profile."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before any import: a missing checkpoint is not looked for in the network

from types import ModuleType

import pytest
from array_api_compat import array_namespace
from hypothesis import HealthCheck, Phase, settings

settings.register_profile("two-tradeoffs", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.register_profile(
    "mutation",  # hundreds of runs of the same tests: few examples, always the same ones, and no search for a small one
    deadline=None,
    derandomize=True,
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.differing_executors],  # one process runs a test again and again
)
settings.load_profile("two-tradeoffs")


@pytest.fixture(scope="session", params=["numpy", "array_api_strict", "torch"])
def xp(request: pytest.FixtureRequest) -> ModuleType:
    """Array namespace of each library that must give the same answers; torch counts only where it is installed."""
    library = pytest.importorskip(request.param) if request.param == "torch" else __import__(request.param)
    namespace: ModuleType = array_namespace(library.asarray([0.0]))
    return namespace
