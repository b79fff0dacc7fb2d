import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from theory import verify
from theory.claims.claim import Claim, Finding, Method, Verdict

HOLDS = Finding(verdict=Verdict.HOLDS, covered="2,000 pairs, V = 2..64", worst_error=3.2e-16)
FAILS = Finding(
    verdict=Verdict.FAILS, covered="every order", worst_error=0.225, counterexample="two slots, two symbols"
)
LIKELY = Finding(verdict=Verdict.HOLDS, covered="1 seed", p_value=0.25)


def claim(finding, expected=Verdict.HOLDS, statement="Acceptance grows with leniency"):
    def check(thorough):
        if isinstance(finding, BaseException):
            raise finding
        return finding

    return Claim(statement=statement, source="Eq. 6", method=Method.ENUMERATION, expected=expected, check=check)


@pytest.fixture
def listing(monkeypatch):
    """Makes the given claims the only ones there are."""

    def only(*claims):
        monkeypatch.setattr(verify, "collect", lambda: iter([("part", each) for each in claims]))

    return only


@pytest.mark.parametrize(
    ("finding", "expected", "code", "verdict"),
    [
        (HOLDS, Verdict.HOLDS, 0, "holds"),
        (FAILS, Verdict.FAILS, 0, "fails, as expected"),
        (FAILS, Verdict.HOLDS, 1, "FAILS, against expectation"),
        (HOLDS, Verdict.FAILS, 1, "HOLDS, against expectation"),
        (Finding(verdict=Verdict.UNDECIDED, covered=""), Verdict.HOLDS, 1, "UNDECIDED, against expectation"),
        (replace(HOLDS, worst_error=math.nan), Verdict.HOLDS, 1, "HOLDS, against expectation"),
        (replace(FAILS, worst_error=math.nan), Verdict.FAILS, 1, "FAILS, against expectation"),
        (replace(LIKELY, p_value=math.nan), Verdict.HOLDS, 1, "HOLDS, against expectation"),
        (ZeroDivisionError("by zero"), Verdict.HOLDS, 1, "BROKEN"),
        (ZeroDivisionError("by zero"), Verdict.FAILS, 1, "BROKEN"),
    ],
)
def test_the_exit_code_says_whether_every_verdict_is_expected(listing, capsys, finding, expected, code, verdict):
    listing(claim(HOLDS), claim(finding, expected))

    assert verify.main([]) == code
    assert verdict.split(",")[0] in capsys.readouterr().out


def test_a_check_that_breaks_hides_no_other_and_shows_its_traceback(listing, capsys):
    listing(claim(HOLDS, statement="Before"), claim(KeyError("gamma")), claim(HOLDS, statement="After"))

    assert verify.main([]) == 1
    printed = capsys.readouterr()
    assert "Before" in printed.out
    assert "After" in printed.out
    assert "the check broke: KeyError: 'gamma'" in printed.out
    assert "Traceback" in printed.err
    assert "3 claims (holds 2, broken 1): 1 not as expected" in printed.out


def test_the_wish_for_thoroughness_reaches_the_checks(listing):
    asked = []

    def check(thorough):
        asked.append(thorough)
        return HOLDS

    listing(Claim(statement="", source="", method=Method.SMT, expected=Verdict.HOLDS, check=check))
    verify.main([])
    verify.main(["--thorough"])

    assert asked == [False, True]


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_table_keeps_its_width_and_loses_no_word(width):
    long = claim(
        FAILS, Verdict.FAILS, "Lossless verification of a multi-step draft emits the verifier's joint law " * 2
    )
    rows = list(verify.check([("a", long), ("b", claim(LIKELY))], thorough=False))
    table = verify.table(rows, width)

    assert max(map(len, table.splitlines())) <= width
    assert table.count("Lossless") == 2
    for word in (
        "enumeration",
        "every order",
        "0.225",
        "p=0.25",
        "counterexample: two slots, two symbols",
        "2 claims (fails 1, holds 1): all as expected",
    ):
        assert word in table


def test_the_file_says_what_the_table_says(listing, tmp_path, capsys):
    path = tmp_path / "claims.json"
    listing(claim(HOLDS), claim(FAILS, Verdict.FAILS), claim(ValueError("no")))

    assert verify.main(["--json", str(path)]) == 1
    document = json.loads(path.read_text())
    holds, fails, broken = document["claims"]

    assert (document["schema_version"], document["thorough"], document["as_expected"]) == (1, False, False)
    assert holds["verdict"] == holds["expected"] == "holds"
    assert (holds["worst_error"], holds["p_value"], holds["part"]) == (3.2e-16, None, "part")
    assert fails["counterexample"] == "two slots, two symbols"
    assert (broken["verdict"], broken["error"]) == (None, "ValueError: no")
    assert all(each["seconds"] >= 0 for each in document["claims"])


def test_a_file_in_no_folder_is_refused_before_the_work(listing, tmp_path, capsys):
    listing(claim(AssertionError("must not run")))

    assert verify.main(["--json", str(tmp_path / "none" / "claims.json")]) == 2
    assert "--json must name a file in a folder that exists" in capsys.readouterr().err


def test_every_file_of_claims_is_collected():
    collected = list(verify.collect())
    files = {path.stem for path in Path(verify.claims.__file__).parent.glob("*.py")}

    assert {part for part, _ in collected} == files - {"__init__", "claim"}
    assert len({each.statement for _, each in collected}) == len(collected), "each claim is made once"
    assert all(each.statement and each.source for _, each in collected)


def test_a_file_that_lists_no_claims_is_an_error(monkeypatch):
    monkeypatch.setattr(verify.importlib, "import_module", lambda name: SimpleNamespace())

    with pytest.raises(AttributeError, match="CLAIMS"):
        list(verify.collect())


def test_the_notebook_shows_the_claims_that_there_are():
    """In the first column of the stored table; a claim that changed asks for the notebook to be executed again."""
    path = Path(__file__).parents[2] / "notebooks" / "theorems.ipynb"
    last = json.loads(path.read_text(encoding="utf-8"))["cells"][-1]
    lines = "".join("".join(each["text"]) for each in last["outputs"]).splitlines()
    width = verify._widths(118)["claim"]
    shown = [line[:width] for line in lines[2:-2] if not line.startswith(" ")]

    assert without_spaces(shown) == without_spaces(each.statement for _, each in verify.collect())
    assert lines[-1].startswith(f"{len(list(verify.collect()))} claims")
    assert ": all as expected" in lines[-1]


def without_spaces(texts):
    return "".join("".join(texts).split())
