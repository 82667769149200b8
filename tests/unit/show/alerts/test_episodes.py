"""When an alert is pending, fires and is resolved, as a function of event time alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.show.alerts.episodes import (
    ACTIVE,
    FIRING,
    INACTIVE,
    PENDING,
    RESOLVED,
    AlertChange,
    Last,
    Stretch,
    bounded,
    changes,
    latest,
    unrecorded,
)

A, B = (("topic", "a"),), (("topic", "b"),)


def held(labels, start, end, value=1.0, words=(), severity="info"):
    return Stretch(labels, start, end, value, words, severity)


def recorded_after(new, before=None):
    """The recorded state once changes have been written."""
    known = dict(before or {})
    for c in new:
        known[c.labels] = Last(c.state, c.at_ms, c.since_ms, c.value, c.severity)
    return known


def test_windows_that_touch_are_one_stretch_and_fire_after_the_wait():
    found = changes([held(A, 60, 120, 3.0), held(A, 0, 60)], for_ms=90, now_ms=120)
    assert found == [
        AlertChange(A, PENDING, 0, 0, 120, 3.0),
        AlertChange(A, FIRING, 90, 0, 120, 3.0),
    ]


def test_the_newest_words_are_those_of_the_whole_stretch():
    stretches = [held(A, 0, 60, 1.0, (("used", "7"),)), held(A, 60, 120, 1.0, (("used", "9"),))]
    assert changes(stretches, 0, 120) == [AlertChange(A, FIRING, 0, 0, 120, 1.0, (("used", "9"),))]


def test_an_alert_fires_again_where_its_severity_rises_and_does_not_fall():
    stretches = [
        held(A, 0, 60, severity="warning"),
        held(A, 60, 120, severity="critical"),
        held(A, 120, 180, severity="info"),
        held(A, 180, 240, severity="critical"),
    ]
    assert [(c.state, c.at_ms, c.severity) for c in changes(stretches, 0, 500)] == [
        (FIRING, 0, "warning"),
        (FIRING, 60, "critical"),
        (RESOLVED, 240, "critical"),
    ]
    assert [(c.state, c.at_ms, c.severity) for c in changes(stretches, 60, 230)] == [
        (PENDING, 0, "warning"),
        (FIRING, 60, "critical"),
    ]


def test_a_rise_that_is_known_late_is_recorded_then():
    stretches = [held(A, 0, 60, severity="warning"), held(A, 0, 70, severity="critical")]
    known = {A: Last(FIRING, 0, 0, 1.0, "warning")}
    (rise,) = unrecorded(changes(stretches, 0, 65), known, 65)
    assert (rise.state, rise.at_ms, rise.severity) == (FIRING, 65, "critical")
    assert unrecorded(changes(stretches, 0, 66), recorded_after([rise], known), 66) == []


def test_a_stretch_shorter_than_the_wait_never_fires():
    assert [(c.state, c.at_ms) for c in changes([held(A, 0, 60), held(A, 61, 120)], 61, 500)] == [
        (PENDING, 0),
        (INACTIVE, 60),
        (PENDING, 61),
        (INACTIVE, 120),
    ]
    assert [c.state for c in changes([held(A, 0, 60)], 60, 60)] == [PENDING, FIRING]


def test_an_alert_is_resolved_at_the_end_once_time_has_passed_it():
    stretches = [held(A, 0, 60)]
    assert [c.state for c in changes(stretches, 60, now_ms=60)] == [PENDING, FIRING]
    assert changes(stretches, 60, now_ms=61) == [
        AlertChange(A, PENDING, 0, 0, 60, 1.0),
        AlertChange(A, FIRING, 60, 0, 60, 1.0),
        AlertChange(A, RESOLVED, 60, 0, 60, 1.0),
    ]


def test_without_a_wait_nothing_is_pending():
    assert [c.state for c in changes([held(A, 0, 60)], 0, now_ms=61)] == [FIRING, RESOLVED]


def test_what_comes_after_now_is_not_seen():
    stretches = [held(A, 0, 60), held(A, 60, 180), held(B, 100, 300)]
    assert changes(stretches, 60, now_ms=100)[1:] == [AlertChange(A, FIRING, 60, 0, 100, 1.0)]
    assert {c.labels for c in changes(stretches, 60, now_ms=100)} == {A}


def test_a_second_check_of_the_same_data_records_nothing():
    history = changes([held(A, 0, 60), held(B, 0, 200)], 60, now_ms=100)
    assert unrecorded(history, {}, 100) == history
    assert unrecorded(history, recorded_after(history), 100) == []


def test_a_stretch_of_just_the_wait_is_recorded_as_firing_and_later_as_resolved():
    ended = changes([held(A, 0, 60)], 60, now_ms=100)
    assert unrecorded(ended, {A: Last(FIRING, 60, 0)}, 100) == [
        AlertChange(A, RESOLVED, 60, 0, 60, 1.0)
    ]


def test_a_later_check_records_only_what_is_new():
    history = changes([held(A, 0, 60), held(A, 100, 200)], 60, now_ms=180)
    assert unrecorded(history, {A: Last(RESOLVED, 60, 0)}, 180) == [
        AlertChange(A, PENDING, 100, 100, 180, 1.0),
        AlertChange(A, FIRING, 160, 100, 180, 1.0),
    ]


def test_a_stretch_called_resolved_too_early_fires_again_from_now():
    history = changes([held(A, 0, 60), held(A, 60, 200)], 60, now_ms=180)
    assert unrecorded(history, {A: Last(RESOLVED, 60, 0)}, 180) == [
        AlertChange(A, FIRING, 180, 0, 180, 1.0)
    ]


def test_a_stretch_recorded_twice_as_resolved_ends_where_it_really_did():
    history = changes([held(A, 0, 120)], 60, now_ms=180)
    assert unrecorded(history, {A: Last(RESOLVED, 60, 0)}, 180) == [
        AlertChange(A, RESOLVED, 120, 0, 120, 1.0)
    ]


@pytest.mark.parametrize(("state", "end"), [(FIRING, RESOLVED), (PENDING, INACTIVE)])
def test_what_is_no_longer_to_be_seen_has_ended_now(state, end):
    assert unrecorded([], {A: Last(state, 60, 0, 7.0)}, 180) == [
        AlertChange(A, end, 180, 0, 180, 7.0)
    ]
    assert unrecorded([], {A: Last(end, 60, 0)}, 180) == []


def test_tables_that_were_further_before_change_nothing():
    assert unrecorded([], {A: Last(FIRING, 60, 0)}, 59) == []


def test_an_alert_whose_beginning_is_out_of_sight_goes_on_and_ends_with_its_own_start():
    going = changes([held(A, 1000, 2000)], 60, now_ms=1500)
    assert unrecorded(going, {A: Last(FIRING, 60, 0)}, 1500) == []
    ended = changes([held(A, 1000, 2000)], 60, now_ms=3000)
    assert unrecorded(ended, {A: Last(FIRING, 60, 0)}, 3000) == [
        AlertChange(A, RESOLVED, 2000, 0, 2000, 1.0)
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([A, B]),
            st.integers(0, 50),
            st.integers(1, 20),
            st.sampled_from(["info", "warning", "critical"]),
        ),
        max_size=8,
    ),
    st.integers(0, 15),
    st.lists(st.integers(0, 90), max_size=5),
)
@example([(A, 9, 6, "info"), (A, 15, 1, "warning")], 6, [15])
def test_the_record_does_not_depend_on_when_checks_ran(rows, for_ms, times):
    """Checks at any times on the way leave the rows that a single check at the end writes."""
    stretches = [
        held(labels, start, start + length, severity=severity)
        for labels, start, length, severity in rows
    ]
    end = 100
    whole = unrecorded(changes(stretches, for_ms, end), {}, end)
    known, written = {}, []
    for now in [*sorted(times), end]:
        # A stretch is known as far as it has come, as tables are that grow by windows.
        new = unrecorded(changes(stretches, for_ms, now), known, now)
        written += new
        known = recorded_after(new, known)

    def fact(c):
        return c.labels, c.state, c.at_ms, c.since_ms, c.severity

    facts = {fact(c) for c in whole}
    assert [fact(c) for c in written if fact(c) not in facts] == []
    assert len(written) == len(whole) == len(facts)


def test_the_number_of_alerts_is_bounded_and_those_that_are_known_stay():
    labels = [(("topic", f"t{i:02}"),) for i in range(10)]
    stretches = [held(each, 10 - i, 100) for i, each in enumerate(labels)]
    history = changes(stretches, 0, 50)
    kept, left_out = bounded(history, {}, 3)
    assert [c.labels for c in kept] == labels[7:] and left_out == 7
    known = {labels[0]: Last(FIRING, 10, 10), labels[1]: Last(RESOLVED, 5, 5)}
    kept, left_out = bounded(history, known, 3)
    assert [c.labels for c in kept] == [labels[0], *labels[8:]] and left_out == 7
    assert all(c.state in ACTIVE for c in latest(kept).values())


def test_of_alerts_that_have_ended_the_newest_are_kept():
    labels = [(("topic", f"t{i}"),) for i in range(5)]
    history = changes([held(each, i, i + 10) for i, each in enumerate(labels)], 0, 50)
    kept, left_out = bounded(history, {}, 2)
    assert {c.labels for c in kept} == set(labels[3:]) and left_out == 0
