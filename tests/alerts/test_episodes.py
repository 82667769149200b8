"""When an alert fires and is resolved, as a function of event time alone."""

from __future__ import annotations

from app.alerts.episodes import FIRING, RESOLVED, Change, Stretch, changes, unrecorded

A, B = (("topic", "a"),), (("topic", "b"),)


def held(labels, start, end, value=1.0):
    return Stretch(labels, start, end, value)


def test_windows_that_touch_are_one_stretch_and_fire_after_the_wait():
    found = changes([held(A, 60, 120, 3.0), held(A, 0, 60)], for_ms=90, now_ms=120)
    assert found == [Change(A, FIRING, at_ms=90, since_ms=0, until_ms=120, value=3.0)]


def test_a_stretch_shorter_than_the_wait_never_fires():
    assert changes([held(A, 0, 60), held(A, 61, 120)], for_ms=61, now_ms=500) == []
    assert changes([held(A, 0, 60)], for_ms=60, now_ms=60) == [Change(A, FIRING, 60, 0, 60, 1.0)]


def test_an_alert_is_resolved_at_the_end_once_time_has_passed_it():
    stretches = [held(A, 0, 60)]
    assert [c.state for c in changes(stretches, 60, now_ms=60)] == [FIRING]
    assert changes(stretches, 60, now_ms=61) == [
        Change(A, FIRING, 60, 0, 60, 1.0), Change(A, RESOLVED, 60, 0, 60, 1.0),
    ]


def test_what_comes_after_now_is_not_seen():
    stretches = [held(A, 0, 60), held(A, 60, 180), held(B, 100, 300)]
    assert changes(stretches, 60, now_ms=100) == [Change(A, FIRING, 60, 0, 100, 1.0)]


def test_a_second_check_of_the_same_data_records_nothing():
    history = changes([held(A, 0, 60), held(B, 0, 200)], 60, now_ms=100)
    assert unrecorded(history, {}, 100) == history
    assert unrecorded(history, {A: (60, RESOLVED), B: (60, FIRING)}, 100) == []


def test_a_stretch_of_just_the_wait_is_recorded_as_firing_and_later_as_resolved():
    ended = changes([held(A, 0, 60)], 60, now_ms=100)
    assert unrecorded(ended, {A: (60, FIRING)}, 100) == [Change(A, RESOLVED, 60, 0, 60, 1.0)]


def test_a_later_check_records_only_what_is_new():
    history = changes([held(A, 0, 60), held(A, 100, 200)], 60, now_ms=180)
    assert unrecorded(history, {A: (60, RESOLVED)}, 180) == [
        Change(A, FIRING, 160, 100, 180, 1.0)
    ]


def test_a_stretch_called_resolved_too_early_fires_again_from_now():
    history = changes([held(A, 0, 60), held(A, 60, 200)], 60, now_ms=180)
    assert unrecorded(history, {A: (60, RESOLVED)}, 180) == [Change(A, FIRING, 180, 0, 180, 1.0)]


def test_a_stretch_recorded_twice_as_resolved_ends_where_it_really_did():
    history = changes([held(A, 0, 120)], 60, now_ms=180)
    assert unrecorded(history, {A: (60, RESOLVED)}, 180) == [
        Change(A, RESOLVED, 120, 0, 120, 1.0)
    ]
