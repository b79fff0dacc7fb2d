"""Run folders: a manifest, an append-safe journal of requests, resume, and the refusal of runs that do not match.

A run folder holds ``manifest.json`` and ``journal.jsonl`` while it grows; the Parquet and JSON files that other
programs read are written from the journal whenever recording ends, complete or not.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from theory.identity import comparable
from theory.strict_json import dumps

SCHEMA = 1
_LOG = logging.getLogger(__name__)
_MANIFEST, _JOURNAL, _TORN = "manifest.json", "journal.jsonl", "journal.torn"


@dataclass(frozen=True)
class Key:
    """What identifies a recorded request; the rule is a canonical label, so that .1 + .2 and .3 are one (case O63)."""

    prompt: str
    effort: int
    rule: str
    replica: int = 0


@dataclass
class RunFolder:
    """An open run: `records` by key, as far as they are on disk."""

    path: Path
    settings: dict[str, Any]
    provenance: dict[str, Any]
    allow_mixed: bool = False
    records: dict[Key, dict[str, Any]] = field(default_factory=dict)

    def append(self, key: Key, record: Mapping[str, Any]) -> None:
        """Write one request as one line in one call under a lock, and only then count it as recorded."""
        row = {**vars(key), **record, "provenance": digest(self.provenance)}
        line = (dumps(row) + "\n").encode()
        with _locked(self.path), (self.path / _JOURNAL).open("ab", buffering=0) as journal:
            before = os.fstat(journal.fileno()).st_size
            written = os.write(journal.fileno(), line)
            if written < len(line):
                journal.truncate(before)  # or the next record would be fused to the fragment
                raise OSError(f"the disk took {written} of {len(line)} bytes of a record; free space and run again")
            os.fsync(journal.fileno())
        self.records[key] = json.loads(line)

    def identity(self) -> dict[str, Any]:
        """What a calibration must carry to be used again: settings and the provenance of the rows."""
        manifest = read_manifest(self.path)
        provenances = list(manifest["provenances"].values())
        return {"settings": self.settings, "provenance": provenances[0], "mixed": len(provenances) > 1}

    def require_same_pair(self, identity: Mapping[str, Any], source: Path) -> None:
        """Refuse a calibration of another pair, other weights or another device."""
        mine, theirs = (comparable(each["settings"], each["provenance"]) for each in (self.identity(), identity))
        if mine != theirs:
            raise ValueError(
                f"{source} was recorded with other settings: {_differences(theirs, mine)}; record this pair"
            )

    def claim(self) -> None:
        """Say that recording goes on with this provenance; refused if earlier rows have another (case O66)."""
        manifest = json.loads((self.path / _MANIFEST).read_text())
        known = manifest["provenances"]
        mine = digest(self.provenance)
        if mine not in known and known:
            earlier = list(known.values())[-1]
            changed = _differences(earlier, self.provenance)
            if not self.allow_mixed:
                raise ValueError(
                    f"{self.path} was recorded with other {changed}; finish it with the same, start over with "
                    "--fresh, or add rows that carry their own provenance with --allow-mixed"
                )
        known[mine] = self.provenance
        _write(self.path / _MANIFEST, manifest)


def digest(values: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits that stand for some settings."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def open_run(
    path: Path, *, settings: dict[str, Any], provenance: dict[str, Any], fresh: bool = False, allow_mixed: bool = False
) -> RunFolder:
    """Create the run folder, or take an interrupted run with the same settings up again.

    Raises ValueError for a folder without manifest, of another schema, or recorded with other settings.
    """
    if fresh and (path / _MANIFEST).exists():
        shutil.rmtree(path)
    run = RunFolder(path, settings, provenance, allow_mixed)
    if not path.exists() or all(each.suffix == ".part" for each in path.iterdir()):  # killed before its first manifest
        path.mkdir(parents=True, exist_ok=True)
        _write(path / _MANIFEST, {"schema": SCHEMA, "settings": settings, "provenances": {}})
        return run
    manifest = read_manifest(path)
    if manifest["settings"] != json.loads(json.dumps(settings)):
        changed = _differences(manifest["settings"], settings)
        raise ValueError(f"{path} was recorded with other settings: {changed}; choose another --run or use --fresh")
    run.records.update(read_journal(path))
    return run


def find_calibration(run: RunFolder) -> Path | None:
    """The newest calibrated run folder beside `run` that was recorded with the same pair, weights and device."""
    identity = run.identity()
    mine = comparable(identity["settings"], identity["provenance"])
    files = sorted(run.path.parent.glob("*/calibration.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files:
        try:
            recorded = json.loads(path.read_text())["identity"]
            theirs = comparable(recorded["settings"], recorded["provenance"])
        except (ValueError, KeyError, TypeError):
            _LOG.warning("%s is no calibration that this program can read; passed over", path)
            continue
        if theirs == mine:
            return path.parent
    return None


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run folder; ValueError says what is wrong with a folder that has none."""
    if not path.is_dir():
        raise ValueError(f"there is no run folder {path}; record one with python -m profiler.calibrate")
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
    except FileNotFoundError:
        raise ValueError(f"{path} has no {_MANIFEST}: it is no run folder; choose another --run") from None
    except ValueError as error:  # no JSON, or no text at all
        raise ValueError(f"{path / _MANIFEST} is damaged ({error}); remove the folder or use another --run") from error
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{path / _MANIFEST} has schema {schema}, this program reads {SCHEMA}; use another --run")
    missing = sorted({"settings", "provenances"} - set(manifest))
    if missing:
        raise ValueError(
            f"{path / _MANIFEST} is damaged (no {', '.join(missing)}); remove the folder or use another --run"
        )
    return dict(manifest)


def read_journal(path: Path) -> dict[Key, dict[str, Any]]:
    """The recorded requests of a run folder.

    A line that is no record (the program was killed, or the power failed, in the middle of a write) is moved to
    ``journal.torn`` and its request is recorded again (case O61); a record that another process is writing is waited
    for. A request that stands twice with different contents is an error.
    """
    journal = path / _JOURNAL
    if not journal.exists():
        return {}
    with _locked(path):
        return _mended(journal)


def _mended(journal: Path) -> dict[Key, dict[str, Any]]:
    """The records of a journal, which is written anew without its torn lines."""
    records: dict[Key, dict[str, Any]] = {}
    whole, torn = [], []
    for number, line in enumerate(journal.read_bytes().splitlines(keepends=True), start=1):
        row = _row(line)
        if row is None:
            torn.append(line)
            _LOG.warning("%s: line %d is torn, moved to %s; its request will be recorded again", journal, number, _TORN)
            continue
        key = Key(row["prompt"], row["effort"], row["rule"], row["replica"])
        if key in records:
            if records[key] != row:
                raise ValueError(f"{journal}: line {number} repeats {key} with other contents; start over with --fresh")
            continue
        records[key] = row
        whole.append(line)
    if torn:
        with (journal.parent / _TORN).open("ab") as bad:
            bad.writelines(line if line.endswith(b"\n") else line + b"\n" for line in torn)
        partial = journal.with_suffix(".part")
        partial.write_bytes(b"".join(whole))
        partial.replace(journal)
    return records


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from the folder's journal; the lock is the folder's, since the file may be replaced."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _row(line: bytes) -> dict[str, Any] | None:
    """The record on a line of the journal; None for a line that is none."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:  # no JSON, or no text at all
        return None
    named = {*Key.__annotations__, "provenance"}
    return row if isinstance(row, dict) and named <= set(row) else None


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    old, new = _flat(old), _flat(new)
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return ", ".join(f"{name} ({_short(old.get(name))}, now {_short(new.get(name))})" for name in names)


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings with those of tables named as in ``pair.drafter.dtype``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict) and value
        flat |= _flat(value, f"{before}{name}.") if inner else {f"{before}{name}": value}
    return flat


def _short(value: Any) -> str:
    """A value as an error shows it: of a list, such as the prompts, its length."""
    return f"{len(value)} of them" if isinstance(value, list) and len(value) > 8 else repr(value)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")
    partial.replace(path)
