"""docs/calibration.schema.json, the dataclasses and real files say the same."""

import json
import types
import typing
from dataclasses import MISSING, fields, replace
from pathlib import Path

import jsonschema
import pytest

from tests.theory.test_calibration import calibrated, timed_calibration, two_prompts
from theory.calibration import Calibration
from theory.latency import LatencyFit

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "calibration.schema.json").read_text())
JSON_TYPES = {int: "integer", float: "number", str: "string", dict: "object", tuple: "array", types.NoneType: "null"}


def written(calibration, folder):
    calibration.to_json(folder / "calibration.json")
    return json.loads((folder / "calibration.json").read_text())


def errors(document):
    return [error.json_path for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)]


def allowed(schema):
    """JSON types that a part of the schema lets through."""
    if "anyOf" in schema:
        return set.union(*(allowed(each) for each in schema["anyOf"]))
    if "$ref" in schema:
        return {"object"}
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        return {JSON_TYPES[type(value)] for value in values}
    return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])


def annotated(annotation):
    """JSON types of an annotation, and of its items where it is a tuple."""
    if isinstance(annotation, types.UnionType):
        return set.union(*(annotated(each) for each in typing.get_args(annotation)))
    return {JSON_TYPES.get(typing.get_origin(annotation) or annotation, "object")}


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    ("schema", "dataclass", "extra"),
    [(SCHEMA, Calibration, {"schema_version", "flags"}), (SCHEMA["$defs"]["latency"], LatencyFit, set())],
    ids=["calibration", "latency"],
)
def test_the_schema_has_the_fields_and_types_of_the_dataclass(schema, dataclass, extra):
    hints = {name: hint for name, hint in typing.get_type_hints(dataclass).items() if name != "schema_version"}

    assert set(schema["properties"]) == set(hints) | extra
    later = {each.name for each in fields(dataclass) if each.default is not MISSING}  # older files lack them
    assert schema["required"] == [name for name in schema["properties"] if name not in later]
    assert schema["additionalProperties"] is False
    for name, hint in hints.items():
        properties = schema["properties"][name]
        assert allowed(properties) == annotated(hint), name
        assert properties["description"], name
        if typing.get_origin(hint) is tuple:
            assert allowed(properties["items"]) == annotated(typing.get_args(hint)[0]), name


def test_the_schema_names_the_version_that_is_written():
    assert SCHEMA["properties"]["schema_version"]["const"] == Calibration.schema_version


@pytest.mark.parametrize(
    "calibration",
    [
        timed_calibration(),
        calibrated(two_prompts()),
        calibrated(two_prompts().select([0])),
        calibrated(two_prompts(ended=["", "", ""]), identity={"temperature": float("nan")}),
    ],
    ids=["timed", "untimed", "one prompt", "unfinished"],
)
def test_real_files_are_valid(calibration, tmp_path):
    document = written(calibration, tmp_path)

    assert errors(document) == []
    assert Calibration.from_json(tmp_path / "calibration.json").efforts == calibration.efforts


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda document: document.update(schema_version=3), "$.schema_version"),
        (lambda document: document.update(mood=1), "$"),
        (lambda document: document.pop("efforts"), "$"),
        (lambda document: document.update(divergence=[1.5]), "$.divergence[0]"),
        (lambda document: document.update(exactness=["exact"]), "$.exactness[0]"),
        (lambda document: document["latency"].update(draft_slope_seconds=-1), "$.latency"),
        (lambda document: document["latency"].pop("verify_seconds"), "$.latency"),
    ],
)
def test_the_schema_refuses_what_is_none(change, path, tmp_path):
    document = written(timed_calibration(), tmp_path)
    change(document)

    assert errors(document) == [path]


def test_every_flag_is_in_the_schema(tmp_path):
    """One effort, two efforts, and coefficients that are negative or not significant."""
    latency = timed_calibration().latency
    flags = SCHEMA["$defs"]["latency"]["properties"]["flags"]["items"]["enum"]
    document = written(replace(timed_calibration(), latency=replace(latency, flags=tuple(flags))), tmp_path)

    assert errors(document) == []
    document["latency"]["flags"] = ["unheard_of"]
    assert errors(document) == ["$.latency"]
