"""Known bugs by release: the bounds of each row, and minor releases that are partly affected."""

import re

import pytest

from toolkit.analysis.diagnosis.known_bugs import KNOWN_BUGS, KnownBug, Release, bugs_of, release_of
from toolkit.errors import UsageError

BY_KEY = {bug.key: bug for bug in KNOWN_BUGS}


def previous_release(release: Release) -> Release:
    """The previous patch release, or one of the previous minor release."""
    major, minor, patch = release
    if patch:
        return major, minor, patch - 1
    return (major, minor - 1, 9) if minor else (major - 1, 9, 9)


@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.key)
def test_a_bug_affects_releases_from_its_first_to_before_its_fix(bug: KnownBug) -> None:
    assert re.fullmatch(r"KAFKA-\d+", bug.key)
    for text in (bug.title, bug.effect, bug.remedy):
        assert text.endswith(".")
    others = [since for since, _ in bug.affected]
    for since, until in bug.affected:
        assert bug.affects(since) is True
        if until:
            assert bug.affects(previous_release(until)) is True
            assert bug.affects(until) is (until in others)
            assert ".".join(map(str, until)) in bug.fixed_in
    first = bug.affected[0][0]
    assert bug.affects(previous_release(first)) is False
    assert bug.affects((99, 0, 0)) is (bug.affected[-1][1] is None)


def test_a_minor_release_is_affected_fully_partly_or_not() -> None:
    cleaner, channel = BY_KEY["KAFKA-14055"], BY_KEY["KAFKA-20322"]
    assert [cleaner.affects(minor) for minor in [(2, 8), (3, 0), (3, 1), (3, 2), (3, 3)]] == [
        True,
        None,
        None,
        None,
        False,
    ]
    assert BY_KEY["KAFKA-20785"].affects((4, 0)) is True, "from its first patch release on"
    assert [channel.affects(minor) for minor in [(4, 1), (4, 2), (4, 3)]] == [False, None, False]
    assert [BY_KEY["KAFKA-20090"].affects(minor) for minor in [(0, 10), (3, 9), (4, 2), (4, 3)]] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("key", "text"),
    [("KAFKA-14055", "3.0.2, 3.1.2, 3.2.1"), ("KAFKA-19690", "3.9.2, 4.0.2, 4.1.1"), ("KAFKA-20357", "")],
)
def test_the_releases_that_fix_a_bug(key: str, text: str) -> None:
    assert BY_KEY[key].fixed_in == text


EXPECTED = {
    "0.11.0": ["KAFKA-14402", "KAFKA-15449", "KAFKA-14055", "KAFKA-16352", "KAFKA-20090"],
    "2.0.0": ["KAFKA-14402", "KAFKA-15449", "KAFKA-14055", "KAFKA-16352", "KAFKA-17507", "KAFKA-20090"],
    "2.8.2": ["KAFKA-14402", "KAFKA-15449", "KAFKA-14055", "KAFKA-16352", "KAFKA-17507", "KAFKA-20090"],
    "3.0.2": ["KAFKA-14402", "KAFKA-15449", "KAFKA-16352", "KAFKA-17507", "KAFKA-20090"],
    "3.1.0": ["KAFKA-14402", "KAFKA-15449", "KAFKA-14055", "KAFKA-16352", "KAFKA-17507", "KAFKA-20090"],
    "3.1.2": ["KAFKA-14402", "KAFKA-15449", "KAFKA-16352", "KAFKA-17507", "KAFKA-20090"],
    "3.2.1": ["KAFKA-14402", "KAFKA-15449", "KAFKA-16352", "KAFKA-17507", "KAFKA-20090"],
    "3.5.2": ["KAFKA-14402", "KAFKA-15449", "KAFKA-16352", "KAFKA-17507", "KAFKA-20090"],
    "3.6.0": ["KAFKA-15449", "KAFKA-16352", "KAFKA-17507", "KAFKA-19690", "KAFKA-20090"],
    "3.7.0": ["KAFKA-16352", "KAFKA-17507", "KAFKA-19690", "KAFKA-20090"],
    "3.8.0": ["KAFKA-17507", "KAFKA-19690", "KAFKA-20090"],
    "3.9.1": ["KAFKA-19690", "KAFKA-20090"],
    "3.9.2": ["KAFKA-20090"],
    "4.0.0": ["KAFKA-19690", "KAFKA-19367", "KAFKA-20090", "KAFKA-20310", "KAFKA-20357", "KAFKA-20785"],
    "4.0.1": ["KAFKA-19690", "KAFKA-20090", "KAFKA-20310", "KAFKA-20357", "KAFKA-20785"],
    "4.0.2": ["KAFKA-20090", "KAFKA-20310", "KAFKA-20357", "KAFKA-20785"],
    "4.1.1": ["KAFKA-20090", "KAFKA-20310", "KAFKA-20357", "KAFKA-20785"],
    "4.1.2": ["KAFKA-20090", "KAFKA-20310", "KAFKA-20357", "KAFKA-20785"],
    "4.2.0": ["KAFKA-20090", "KAFKA-20310", "KAFKA-20322", "KAFKA-20357", "KAFKA-20785"],
    "4.2.1": ["KAFKA-20090", "KAFKA-20310", "KAFKA-20357", "KAFKA-20785"],
    "4.2.2": ["KAFKA-20090", "KAFKA-20310", "KAFKA-20357", "KAFKA-20785"],
    "4.3.0": ["KAFKA-20357", "KAFKA-20734", "KAFKA-20785"],
    "4.3.1": ["KAFKA-20357", "KAFKA-20734", "KAFKA-20785"],
    "4.4.0": ["KAFKA-20357", "KAFKA-20734", "KAFKA-20785"],
}


@pytest.mark.parametrize("version", EXPECTED)
def test_the_bugs_of_a_release(version: str) -> None:
    assert [(bug.key, affects) for bug, affects in bugs_of(release_of(version))] == [
        (key, True) for key in EXPECTED[version]
    ]


@pytest.mark.parametrize("text", ["", "4", "four", "4.x", "4.3.1-rc0", "-4.3"])
def test_an_invalid_version_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="is not a Kafka version"):
        release_of(text)
    assert release_of("3.9") == (3, 9)
