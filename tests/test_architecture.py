"""The arrows between the packages, proved by importing and by reading, beside the contracts of import-linter."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "theory": {"torch", "transformers", "matplotlib", "profiler", "figures"},
    "profiler": {"matplotlib", "figures"},
    "figures": {"torch", "transformers", "profiler"},
}


def imported(source: str) -> set[str]:
    """Top-level packages that a module's text imports, wherever in the text."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_module_imports_against_the_arrows(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    wrong = {path.name: bad for path in modules if (bad := imported(path.read_text()) & FORBIDDEN[package])}

    assert modules
    assert wrong == {}


def test_the_reader_of_imports_sees_hidden_ones() -> None:
    assert imported("def f():\n    import torch.nn as nn\n    from figures.style import save\n") == {"torch", "figures"}


@pytest.mark.parametrize("package", ["theory", "figures"])
def test_a_package_without_models_loads_no_torch(package: str) -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
    ]
    program = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("package", ["theory", "profiler", "figures", "benchmarks"])
def test_every_module_begins_with_its_role(package: str) -> None:
    silent = [
        path.name for path in (ROOT / package).rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))
    ]

    assert silent == []
