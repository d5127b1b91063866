"""Settings from YAML: defaults, limits, and messages that name file, field and remedy."""

import pickle
import re
from dataclasses import fields
from pathlib import Path

import pytest

from rekindle import planning
from rekindle.model import settings
from rekindle.model.errors import InputError
from rekindle.model.settings import Policy, RuntimeSettings, Settings

ROOT = Path(__file__).parents[4]


def refused(text: str | bytes) -> str:
    content = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(InputError) as caught:
        settings.parse(content, "settings.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "policy:\nruntime:\n", "version: 1"])
def test_what_is_not_given_has_its_default(text: str) -> None:
    assert settings.parse(text.encode(), "settings.yaml") == Settings()


def test_everything_given_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        """
        version: 1
        policy:
          strategy: blocking
          correlated_nodes_min: 3
          cpu_cap: 1
          priorities: {busiest-airports: 10, "worst delays": 2.5}
        runtime:
          nodes_expected: 10
          epoch_seconds: 0.5
          load_target_percent: 70
        """
    )
    given = settings.load(file)
    assert given.policy == Policy(
        strategy="blocking",
        correlated_nodes_min=3,
        cpu_cap=1.0,
        priorities={"busiest-airports": 10.0, "worst delays": 2.5},
    )
    assert given.runtime == RuntimeSettings(
        nodes_expected=10, epoch_seconds=0.5, load_target_percent=70.0
    )
    assert isinstance(given.policy.cpu_cap, float)


def test_an_epoch_of_a_recovery_is_no_longer_than_one_may_be() -> None:
    assert RuntimeSettings(epoch_seconds=0.5).recovery_epoch_seconds == 0.75
    wanted = RuntimeSettings(recovery_epoch_stretch=20.0, epoch_stretch_max=4.0)
    assert wanted.recovery_epoch_seconds == 4.0
    assert RuntimeSettings(recovery_epoch_stretch=1.0).recovery_epoch_seconds == 1.0


def test_memory_is_given_in_mebibytes() -> None:
    given = RuntimeSettings(
        retained_mib_max=2.5, host_memory_mib_max=64.0, following_mib_max=0.5, link_mib_max=0.25
    )
    assert given.retained_bytes_max == 2_621_440
    assert given.following_bytes_max == 524_288
    assert given.link_bytes_max == 262_144
    assert given.host_memory_bytes_max == 67_108_864


def test_every_default_is_within_its_own_limits() -> None:
    for section in (Policy(), RuntimeSettings()):
        for item in fields(section):
            value = getattr(section, item.name)
            assert item.metadata["kind"].read(value, item.name) == value


def test_the_solvers_to_choose_from_are_those_of_the_planner() -> None:
    words = {item.name: item for item in fields(Policy)}["solver"].metadata["kind"].words
    assert set(words) == {planning.AUTO, *planning.SOLVERS}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy: {strategie: blocking}", "policy.strategie: is not a setting; did you mean str"),
        ("polcy: {}", "polcy: is not a setting; did you mean policy?"),
        ("runtime: {zzz: 1}", "runtime.zzz: is not a setting; known are: nodes_expected, "),
        ("policy: {strategy: fast}", "policy.strategy: is 'fast'; choose one of: incremental, b"),
        ("policy: {strategy: 3}", "policy.strategy: is 3; choose one of: incremental, blocking"),
        ("policy: {cpu_cap: 80}", "policy.cpu_cap: is 80; give a number from 0.05 to 1"),
        ("policy: {cpu_cap: yes}", "policy.cpu_cap: is True, not a number; give a number from "),
        ("policy: {cpu_cap: .nan}", "policy.cpu_cap: is nan; give a number from 0.05 to 1"),
        (f"policy: {{cpu_cap: {'9' * 400}}}", "policy.cpu_cap: is a number beyond all limits; giv"),
        ("policy: {cpu_cap: }", "policy.cpu_cap: is empty, not a number; give a number from"),
        ("policy: {silent_seconds: 15s}", "policy.silent_seconds: is '15s', not a number; give"),
        ("policy: {silent_seconds: -1}", "policy.silent_seconds: is -1; give a number from 1 to"),
        ("policy: {priorities: {q: 11}}", "policy.priorities.q: is 11; give a number from 1 to 10"),
        (
            "runtime: {rows_per_second: 1e+09}",
            "runtime.rows_per_second: is '1e+09', which YAML takes for text; write 1000000000",
        ),
        (
            "runtime: {epoch_seconds: 25e-2}",
            "runtime.epoch_seconds: is '25e-2', which YAML takes for text; write 0.25",
        ),
        (
            "runtime: {epoch_seconds: 1e999}",
            "runtime.epoch_seconds: is '1e999', not a number; give a num",
        ),
        (
            "runtime: {rows_per_second: '1,000'}",
            "runtime.rows_per_second: is '1,000', which YAML takes for text; write 1000",
        ),
        (
            "runtime: {rows_per_second: 2000000000}",
            "runtime.rows_per_second: is 2000000000; give a number from 0.001 to 1000000000",
        ),
        ("policy: {priorities: {q: 0}}", "policy.priorities.q: is 0; give a number from 1 to 10"),
        ("policy: {lag_goals: {q: 0}}", "policy.lag_goals.q: is 0; give a number from 0.01 to"),
        ("policy: {lag_goals: {q: -1}}", "policy.lag_goals.q: is -1; give a number from 0.01"),
        ("policy: {lag_goals: {q: .nan}}", "policy.lag_goals.q: is nan; give a number from 0.01"),
        ("policy: {lag_goals: {q: soon}}", "policy.lag_goals.q: is 'soon', not a number; give"),
        ("policy: {lag_goals: {q: 86401}}", "policy.lag_goals.q: is 86401; give a number from"),
        ("policy: {priorities: {q: high}}", "policy.priorities.q: is 'high', not a number; give"),
        ("policy: {priorities: [q]}", "policy.priorities: is a list; write names with their val"),
        ("policy: {priorities: {7: 1}}", "policy.priorities: has the key 7; use words as keys"),
        ("runtime: {nodes_expected: 1.5}", "runtime.nodes_expected: is 1.5; give a whole number"),
        ("runtime: {nodes_expected: 0}", "runtime.nodes_expected: is 0; give a whole number from"),
        ("runtime: 5", "runtime: is 5; write names with their values"),
        ("version: 2", "version: is 2; use version 1"),
        (f"version: {'9' * 40}", "version: is a number beyond all limits; use version 1"),
    ],
)
def test_what_is_wrong_is_refused_with_its_field_and_a_remedy(text: str, message: str) -> None:
    assert refused(text).startswith(f"settings.yaml: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy: {", "settings.yaml: is not YAML (line 1: "),
        ("a: 1\n b: 2", "settings.yaml: is not YAML (line 2: "),
        ("--- {}\n--- {}", "settings.yaml: is not YAML (line 2: "),
        (b"\xff\xff", "settings.yaml: is not YAML ("),
        ("[" * 1_000, "settings.yaml: is not YAML ("),
        ("? [a]\n: 1", "settings.yaml: is not YAML ("),
        ("when: 2020-13-45", "settings.yaml: is not YAML ("),
        ("- policy", "settings.yaml: is a list; write names with their values"),
        ("fast", "settings.yaml: is 'fast'; write names with their values"),
    ],
)
def test_what_is_not_yaml_or_no_mapping_is_refused(text: str | bytes, message: str) -> None:
    assert refused(text).startswith(message)


@pytest.mark.parametrize(
    "number",
    ["010", "-0777", "+01", "0_10", "1:30", "-1:30:00", "1:30.5", "08", "00", "!!int '010'"],
)
def test_a_number_that_yaml_reads_as_another_is_refused(number: str) -> None:
    text = f"runtime:\n  epoch_seconds: {number}".encode()
    with pytest.raises(InputError, match=r"settings\.yaml: runtime\.epoch_seconds: is "):
        settings.parse(text, "settings.yaml")


@pytest.mark.parametrize("number", ["10", "0.5", "1_0", "0x10", "1.0e+1", "+2"])
def test_a_number_that_everybody_reads_in_the_same_way_is_taken(number: str) -> None:
    text = f"runtime:\n  epoch_seconds: {number}".encode()
    assert settings.parse(text, "settings.yaml").runtime.epoch_seconds in (0.5, 2, 10, 16)


def test_a_key_that_is_given_twice_is_refused_with_both_lines() -> None:
    text = "policy:\n  strategy: blocking\n  cpu_cap: 0.5\n  strategy: incremental\n"
    assert refused(text) == (
        "settings.yaml: policy.strategy: is there twice, in lines 2 and 4; keep one of them"
    )


def test_a_file_that_refers_to_itself_is_refused() -> None:
    assert refused("policy: &p {priorities: *p}").startswith("settings.yaml: policy.priorities.")


def test_always_buffering_needs_always_ordering() -> None:
    assert refused("policy: {ordering: adaptive}") == (
        "settings.yaml: policy.ordering: is adaptive, but policy.buffering is always; "
        "use always: repeats must be identical"
    )


@pytest.mark.parametrize("ordering", ["always", "adaptive"])
def test_adaptive_buffering_goes_with_either_ordering(ordering: str) -> None:
    text = f"policy: {{buffering: adaptive, ordering: {ordering}}}"
    policy = settings.parse(text.encode(), "settings.yaml").policy
    assert (policy.buffering, policy.ordering) == ("adaptive", ordering)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(InputError) as caught:
            settings.load(path)
        assert str(caught.value).startswith(f"{path}: cannot be read (")


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", text, re.MULTILINE))
    expected = {}
    for section in (Policy(), RuntimeSettings()):
        for item in fields(section):
            value = getattr(section, item.name)
            shown = f"{value:,}" if isinstance(value, int | float) else value or "none"
            expected[item.name] = f"{shown}"
    assert rows == expected


def test_all_settings_that_are_wrong_are_refused_together() -> None:
    record = {
        "runtime": {"epoch_seconds": 0, "clases": "auto", "exchange": "links"},
        "polcy": {},
        "policy": {"cpu_cap": "half", "ordering": "adaptive"},
    }
    with pytest.raises(InputError) as raised:
        settings.from_record(record, "s.yaml")
    assert [error.where for error in raised.value.each] == [
        "s.yaml: polcy",
        "s.yaml: policy.cpu_cap",
        "s.yaml: runtime.epoch_seconds",
        "s.yaml: runtime.clases",
    ]
    assert raised.value.remedy == raised.value.each[0].remedy
    lines = str(raised.value).splitlines()
    assert lines == [str(error) for error in raised.value.each]
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
