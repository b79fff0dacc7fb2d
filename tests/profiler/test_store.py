import errno
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from profiler import store
from profiler.store import Key, find_calibration, open_run, read_journal, read_manifest
from theory.acceptance import CactusAcceptance, LinearAcceptance

ROOT = Path(store.__file__).parents[1]
SETTINGS = {"command": "calibrate", "pair": {"name": "tiny", "block_size": 8, "efforts": [1, 2]}, "seed": 0}
PROVENANCE = {"commit": "aaa", "versions": {"torch": "2.13"}, "weights": {"drafter": "r1"}, "device": "cpu, 1 threads"}
LATER = PROVENANCE | {"commit": "bbb"}


def key(index, effort=1, leniency=0.0, replica=0):
    return Key(f"prompt {index}", effort, LinearAcceptance(leniency=leniency).label, replica)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "tiny" / "run"


@pytest.fixture
def opened(path):
    """Open the run again, as a new process would."""

    def again(settings=SETTINGS, provenance=PROVENANCE, **options):
        return open_run(path, settings=settings, provenance=provenance, **options)

    return again


@pytest.fixture
def three(opened):
    """A run with three requests."""
    run = opened()
    run.claim()
    for index in range(3):
        run.append(key(index), {"value": index})
    return run


def lines(path):
    return (path / "journal.jsonl").read_bytes().splitlines(keepends=True)


def test_what_differs_within_a_table_is_named_alone(opened):
    opened()
    pair = SETTINGS["pair"] | {"block_size": 4}

    with pytest.raises(ValueError, match=r"with other settings: pair.block_size \(8, now 4\); choose another"):
        opened(settings=SETTINGS | {"pair": pair})


def test_a_new_run_has_a_manifest_and_no_records(opened, path):
    run = opened()

    assert run.records == {}
    manifest = read_manifest(path)
    assert manifest["settings"] == SETTINGS
    assert manifest["provenances"] == {}


def test_what_was_appended_is_there_when_the_run_is_opened_again(opened, three):
    again = opened()

    assert list(again.records) == [key(0), key(1), key(2)]
    assert [row["value"] for row in again.records.values()] == [0, 1, 2]
    assert again.records == three.records


def test_a_record_is_one_line_of_its_own(three, path):
    assert len(lines(path)) == 3
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines(path))


def test_a_record_with_line_breaks_and_every_letter_stays_one_line(opened, path):
    text = "one\ntwo\r\n\x85\u2028ß\x00"
    opened().append(key(0), {"text": text})

    assert opened().records[key(0)]["text"] == text


def test_O60_what_json_cannot_write_becomes_null_and_is_named(opened, path):
    opened().append(key(0), {"tv": float("nan"), "kl": float("inf"), "seconds": [1.0, float("nan")]})

    def refuse(constant):
        raise AssertionError(constant)

    row = json.loads(lines(path)[0], parse_constant=refuse)
    assert (row["tv"], row["kl"], row["seconds"]) == (None, None, [1.0, None])
    assert {"tv_nan", "kl_inf", "seconds_nan"} <= set(row["flags"])
    assert opened().records[key(0)]["tv"] is None


@pytest.mark.parametrize("cut", [1, 2, 10, 40])
def test_O61_a_torn_last_line_is_kept_aside_and_its_request_recorded_again(opened, three, path, cut, caplog):
    whole = lines(path)
    (path / "journal.jsonl").write_bytes(b"".join(whole)[:-cut])

    with caplog.at_level(logging.WARNING):
        again = opened()
    again.append(key(2), {"value": 22})

    assert list(again.records) == [key(0), key(1), key(2)]
    assert [row["value"] for row in opened().records.values()] == [0, 1, 22]
    assert (path / "journal.torn").read_bytes().rstrip(b"\n") == whole[2][:-cut]
    assert "line 3" in caplog.text
    assert lines(path)[:2] == whole[:2]


def test_O61_the_cases_own_file(opened, path):
    run = opened()
    run.append(Key("a", 1, "linear:0"), {"ok": 1})
    with (path / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"prompt": "b", "effort": 1, "rule": "linear:0", "replica": 0, "o')
    again = opened()

    again.append(Key("c", 1, "linear:0"), {"ok": 1})

    assert [each.prompt for each in opened().records] == ["a", "c"]


def test_O61_a_damaged_line_in_the_middle_costs_its_own_request_alone(opened, three, path):
    first, second, third = lines(path)
    (path / "journal.jsonl").write_bytes(first + second[:20] + b"\n" + third)

    assert list(opened().records) == [key(0), key(2)]
    assert list(opened().records) == [key(0), key(2)]
    assert (path / "journal.torn").read_bytes() == second[:20] + b"\n"


def test_O61_lines_that_were_fused_are_both_recorded_again(opened, three, path):
    first, second, third = lines(path)
    (path / "journal.jsonl").write_bytes(first + second.rstrip(b"\n") + third)

    assert list(opened().records) == [key(0)]


@pytest.mark.parametrize("line", [b"\x00" * 300, b'"\xff\xfe"', b"[1, 2]", b"null", b'{"prompt": "a"}'])
def test_O61_a_line_that_is_no_record_is_kept_aside(opened, three, path, line):
    """A power failure leaves zeros where the file had grown and its data had not arrived."""
    first, second, third = lines(path)
    (path / "journal.jsonl").write_bytes(first + line + b"\n" + second + third)

    assert list(opened().records) == [key(0), key(1), key(2)]
    assert (path / "journal.torn").read_bytes() == line + b"\n"
    assert lines(path) == [first, second, third]


APPEND = """
import sys
from pathlib import Path
from profiler.store import Key, open_run

path, writer, rows = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
run = open_run(path, settings={"writers": 4}, provenance={})
for row in range(rows):
    run.append(Key(f"{writer}/{row}", 1, "linear:0"), {"text": writer * 20_000})
    print(row, flush=True)
"""


def start_writer(path, writer, rows):
    command = [sys.executable, "-c", APPEND, str(path), writer, str(rows)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("acknowledged", [1, 23])
def test_a_killed_process_loses_nothing_that_it_had_appended(path, acknowledged):
    with start_writer(path, "a", 1_000_000) as process:
        for _ in range(acknowledged):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        left = process.stdout.read().split()

    rows = read_journal(path)
    confirmed = acknowledged + len(left)
    assert confirmed <= len(rows) <= confirmed + 1
    assert [each.prompt for each in rows] == [f"a/{row}" for row in range(len(rows))]
    assert all(row["text"] == "a" * 20_000 for row in rows.values())


def test_O62_records_of_several_processes_do_not_mix(path):
    open_run(path, settings={"writers": 4}, provenance={})
    writers = [start_writer(path, letter, 50) for letter in "abcd"]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0

    assert len(lines(path)) == 200
    rows = read_journal(path)
    assert {each.prompt for each in rows} == {f"{letter}/{row}" for letter in "abcd" for row in range(50)}
    assert all(row["text"] == each.prompt[0] * 20_000 for each, row in rows.items())
    assert not (path / "journal.torn").exists()


@pytest.mark.parametrize("access", [lambda run: read_journal(run.path), lambda run: run.append(key(3), {})])
def test_O62_a_record_that_is_being_written_is_waited_for(three, path, access):
    """A reader that took half a line for a torn one would write the journal anew, without what others append."""
    journal = path / "journal.jsonl"
    whole = journal.read_bytes()
    lock = os.open(path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    journal.write_bytes(whole[:-10])
    with ThreadPoolExecutor() as pool:
        other = pool.submit(access, three)
        with pytest.raises(TimeoutError):
            other.result(timeout=0.3)
        journal.write_bytes(whole)
        os.close(lock)
        other.result()

    assert lines(path)[:3] == whole.splitlines(keepends=True)
    assert not (path / "journal.torn").exists()


def test_O63_equal_settings_have_one_key_and_different_ones_another():
    done = key(0, effort=2, leniency=0.1 * 3)

    assert 0.1 * 3 != 0.3
    assert key(0, effort=2, leniency=0.3) == done
    assert key(0, effort=3, leniency=0.3) != done
    assert key(1, effort=2, leniency=0.3) != done
    assert key(0, effort=2, leniency=0.3, replica=1) != done
    lossless = [LinearAcceptance(leniency=0.0), CactusAcceptance(budget=0.0)]
    assert len({Key("a", 2, rule.label) for rule in lossless}) == 2


def test_O63_the_key_survives_the_file(opened):
    opened().append(key(0, effort=2, leniency=0.1 * 3), {"value": 1})

    assert key(0, effort=2, leniency=0.3) in opened().records


def test_O64_a_row_that_stands_twice_counts_once(opened, three, path):
    content = lines(path)
    (path / "journal.jsonl").write_bytes(b"".join([*content, content[1], content[0]]))

    assert len(opened().records) == 3


def test_O64_rows_that_contradict_each_other_are_an_error_with_the_line(opened, three, path):
    content = lines(path)
    other = content[1].replace(b'"value": 1', b'"value": 7')
    assert other != content[1]
    (path / "journal.jsonl").write_bytes(b"".join([*content, other]))

    with pytest.raises(ValueError, match=r"line 4 repeats .*prompt 1.* with other contents; start over with --fresh"):
        opened()


def test_O66_recording_goes_on_with_the_same_provenance_alone(opened, three, path):
    opened().claim()
    before = (path / "manifest.json").read_bytes()

    expected = r"recorded with other commit \('aaa', now 'bbb'\).*--fresh.*--allow-mixed"
    with pytest.raises(ValueError, match=expected) as caught:
        opened(provenance=LATER).claim()
    assert "torch" not in str(caught.value)
    assert (path / "manifest.json").read_bytes() == before


def test_O66_a_run_of_other_code_can_still_be_read(opened, three):
    assert len(opened(provenance=LATER).records) == 3


def test_O66_mixed_rows_carry_their_own_provenance(opened, three, path):
    mixed = opened(provenance=LATER, allow_mixed=True)
    mixed.claim()
    mixed.append(key(3), {"value": 3})

    known = read_manifest(path)["provenances"]
    of_row = [known[row["provenance"]]["commit"] for row in opened().records.values()]
    assert of_row == ["aaa", "aaa", "aaa", "bbb"]
    assert mixed.identity()["mixed"]
    assert mixed.identity()["provenance"] == PROVENANCE


def test_O66_a_pure_run_is_not_called_mixed(three):
    assert three.identity() == {"settings": SETTINGS, "provenance": PROVENANCE, "mixed": False}


def test_fresh_throws_the_old_rows_away(opened, three, path):
    again = opened(provenance=LATER, fresh=True)
    again.claim()

    assert again.records == {}
    assert not (path / "journal.jsonl").exists()
    assert list(read_manifest(path)["provenances"].values()) == [LATER]


def test_fresh_creates_what_was_not_there(opened):
    assert opened(fresh=True).records == {}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, r"seed \(0, now 1\)"),
        ({"pair": SETTINGS["pair"] | {"block_size": 16}}, r"pair.block_size \(8, now 16\).*"),
        ({"rules": ["linear:0"]}, r"rules \(None, now \['linear:0'\]\)"),
    ],
)
def test_a_run_of_other_settings_is_refused_with_the_differences(opened, three, path, change, named):
    before = lines(path)

    with pytest.raises(ValueError, match=f"recorded with other settings: {named}; choose another --run or use --fresh"):
        opened(settings=SETTINGS | change)
    assert lines(path) == before


def test_settings_are_compared_as_the_file_holds_them(opened, three):
    assert len(opened(settings=SETTINGS | {"pair": SETTINGS["pair"] | {"efforts": (1, 2)}}).records) == 3


def test_a_missing_run_folder_is_reported(path):
    with pytest.raises(ValueError, match=f"there is no run folder {path}"):
        read_manifest(path)


def test_an_empty_folder_becomes_a_run(opened, path):
    path.mkdir(parents=True)

    assert opened().records == {}


def test_a_folder_of_a_run_that_was_killed_before_its_manifest_becomes_a_run(opened, path):
    path.mkdir(parents=True)
    (path / "manifest.part").write_text('{"sch')

    assert opened().records == {}
    assert read_manifest(path)["settings"] == SETTINGS


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_of_something_else_is_refused_and_left_alone(opened, path, fresh):
    path.mkdir(parents=True)
    (path / "thesis.tex").write_text("years of work")

    with pytest.raises(ValueError, match=r"has no manifest.json: it is no run folder; choose another --run"):
        opened(fresh=fresh)
    assert (path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"schema": 1, "settings"', b"\xff\xfe", b"\x00\x00", b'{"schema": 1, "settings": {}}']
)
def test_a_damaged_manifest_is_reported(opened, three, path, content):
    (path / "manifest.json").write_bytes(content)

    with pytest.raises(ValueError, match=r"manifest.json is damaged \(.*\); remove the folder or use another --run"):
        opened()
    assert len(lines(path)) == 3


@pytest.mark.parametrize(("content", "schema"), [('{"schema": 99}', 99), ("[]", None), ("7", None), ("{}", None)])
def test_a_manifest_of_another_schema_is_refused(opened, three, path, content, schema):
    (path / "manifest.json").write_text(content)

    with pytest.raises(ValueError, match=f"has schema {schema}, this program reads 1; use another --run"):
        opened()


def test_the_manifest_is_replaced_in_one_step(three, path, monkeypatch):
    """A crash while it is written leaves the old one."""
    before = (path / "manifest.json").read_text()

    def crash(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            three.claim()
    assert (path / "manifest.json").read_text() == before


def test_a_full_disk_is_reported_and_the_earlier_rows_stay(opened, three, path, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = lines(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left on device"):
            three.append(key(3), {"value": 3})

    assert key(3) not in three.records
    assert lines(path) == before
    assert len(opened().records) == 3


def test_a_disk_that_takes_half_a_record_is_reported_and_the_run_can_go_on(opened, three, path, monkeypatch):
    def half(descriptor, data, write=os.write):
        return write(descriptor, data[: len(data) // 2])

    before = lines(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match=r"the disk took \d+ of \d+ bytes of a record; free space and run again"):
            three.append(key(3), {"value": 3})

    assert key(3) not in three.records
    assert lines(path) == before
    again = opened()
    again.append(key(3), {"value": 3})
    assert lines(path)[:3] == before
    assert [row["value"] for row in opened().records.values()] == [0, 1, 2, 3]


def test_a_record_is_on_the_disk_before_it_counts(three, monkeypatch):
    def fails(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output error"):
        three.append(key(3), {"value": 3})
    assert key(3) not in three.records


def calibrated(run):
    run.claim()
    run.append(key(0), {})
    (run.path / "calibration.json").write_text(json.dumps({"identity": run.identity()}))
    return run


def beside(path, name, settings=SETTINGS, provenance=PROVENANCE):
    return open_run(path.parent / name, settings=settings, provenance=provenance)


def test_the_newest_calibration_of_the_same_pair_is_found(path):
    sweep = beside(path, "sweep", settings=SETTINGS | {"command": "sweep"})
    sweep.claim()
    assert find_calibration(sweep) is None

    for age, name in enumerate(("new", "old")):
        run = calibrated(beside(path, name))
        os.utime(run.path / "calibration.json", (1000 - age, 1000 - age))
    calibrated(beside(path, "other block", settings=SETTINGS | {"pair": SETTINGS["pair"] | {"block_size": 16}}))
    calibrated(beside(path, "other weights", provenance=PROVENANCE | {"weights": {"drafter": "r2"}}))
    calibrated(beside(path, "other device", provenance=PROVENANCE | {"device": "H200"}))

    assert find_calibration(sweep) == path.parent / "new"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"{}", b'{"identity": {"settings": {}}}'])
def test_a_damaged_calibration_beside_it_is_passed_over_with_a_warning(path, content, caplog):
    sound = calibrated(beside(path, "sound"))
    damaged = calibrated(beside(path, "damaged"))
    (damaged.path / "calibration.json").write_bytes(content)
    sweep = beside(path, "sweep")
    sweep.claim()

    with caplog.at_level(logging.WARNING):
        assert find_calibration(sweep) == sound.path
    assert "damaged/calibration.json is no calibration" in caplog.text


def test_other_efforts_or_code_do_not_keep_a_calibration_from_being_used(path):
    settings = SETTINGS | {"pair": SETTINGS["pair"] | {"efforts": [4]}, "seed": 9}
    run = calibrated(beside(path, "calibration", settings=settings, provenance=LATER))
    sweep = beside(path, "sweep")
    sweep.claim()

    assert find_calibration(sweep) == run.path
    sweep.require_same_pair(run.identity(), run.path)


@pytest.mark.parametrize(
    ("settings", "provenance", "named"),
    [
        (SETTINGS | {"pair": SETTINGS["pair"] | {"block_size": 16}}, PROVENANCE, r"block_size \(16, now 8\)"),
        (SETTINGS, PROVENANCE | {"device": "H200"}, r"device \('H200', now 'cpu, 1 threads'\)"),
        (SETTINGS, PROVENANCE | {"weights": {"drafter": "r2"}}, r"weights.drafter \('r2', now 'r1'\).*"),
    ],
)
def test_a_calibration_of_another_pair_or_device_is_refused_with_the_differences(path, settings, provenance, named):
    run = calibrated(beside(path, "calibration", settings=settings, provenance=provenance))
    sweep = beside(path, "sweep")
    sweep.claim()

    with pytest.raises(ValueError, match=f"recorded with other settings: {named}; record this pair"):
        sweep.require_same_pair(run.identity(), run.path)
