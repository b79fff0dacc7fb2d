import json
import math

from theory.strict_json import dumps


def test_O60_what_json_cannot_write_becomes_null_and_is_flagged():
    text = dumps({"tv": math.nan, "kl": math.inf, "fit": {"r_squared": [1.0, -math.inf, math.nan, math.nan]}, "n": 3})

    def refuse(constant):
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse) == {
        "tv": None,
        "kl": None,
        "fit": {"r_squared": [1.0, None, None, None]},
        "n": 3,
        "flags": ["tv_nan", "kl_inf", "fit.r_squared_minus_inf", "fit.r_squared_nan"],
    }


def test_nothing_to_flag():
    assert json.loads(dumps({"a": [1, 2.5, "x", None, True]})) == {"a": [1, 2.5, "x", None, True], "flags": []}
