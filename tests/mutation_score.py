"""The mutation score: of the faults that `make mutation` put into the theory, how many the tests noticed.

    python -m tests.mutation_score

prints one line for each module and each fault that was not noticed (`mutmut show NAME` shows it), and exits with 1 if
a module is below 90 %. `docs/log.md` says of each remaining fault why it changes nothing.
"""

import json
import sys
from pathlib import Path

REQUIRED = 0.9
UNNOTICED = (0, 5, 33, 34, None)  # exit codes: tests passed, no test for it, skipped, not run


def main(folder: Path = Path("mutants/theory")) -> int:
    """Print the scores of the last run and return the exit code."""
    scores = []
    for path in sorted(folder.glob("*.py.meta")):
        codes = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
        missed = [name for name, code in codes.items() if code in UNNOTICED]
        if codes:
            scores.append(1 - len(missed) / len(codes))
            print(f"{path.name.removesuffix('.meta')}: {len(codes) - len(missed)} of {len(codes)} ({scores[-1]:.1%})")
            print("".join(f"  {name}\n" for name in missed), end="")
    if not scores:
        print(f"no faults in {folder}: run `make mutation`")
        return 1
    return int(min(scores) < REQUIRED)


if __name__ == "__main__":
    sys.exit(main())
