from corral.core.nodes.history import MINUTES, MemoryUse, NodeHistory, NodeMinute, TrafficShare, shares_between


def test_what_frontends_answered_adds_up_within_a_minute_and_a_quiet_minute_is_a_zero() -> None:
    history = NodeHistory(now_s=600.0)
    history.add({"a": TrafficShare(requests=2, busy_s=3.0), "b": TrafficShare(requests=9)}, now_s=610.0)
    history.add({"a": TrafficShare(requests=1, failed=1, busy_s=0.5)}, now_s=650.0)
    history.add({"a": TrafficShare(requests=7)}, now_s=735.0)
    assert history.read("a", now_s=740.0) == [
        NodeMinute(share=TrafficShare(requests=3, failed=1, busy_s=3.5)),
        NodeMinute(),
        NodeMinute(length_s=20.0, share=TrafficShare(requests=7)),
    ]


def test_memory_is_what_was_last_reported_within_the_minute_and_else_unknown() -> None:
    history = NodeHistory(now_s=0.0)
    history.note_memory({"a": MemoryUse(ram_bytes=1)}, now_s=10.0)
    history.note_memory({"a": MemoryUse(ram_bytes=2, vram_bytes=5)}, now_s=40.0)
    assert [minute.memory for minute in history.read("a", now_s=61.0)] == [
        MemoryUse(ram_bytes=2, vram_bytes=5),
        MemoryUse(),
    ]
    assert [minute.memory for minute in history.read("nobody", now_s=61.0)] == [MemoryUse(), MemoryUse()]


def test_only_the_last_hour_is_kept() -> None:
    history = NodeHistory(now_s=0.0)
    for minute in range(3 * MINUTES):
        history.add({"a": TrafficShare(requests=minute)}, now_s=minute * 60.0)
    shown = history.read("a", now_s=3 * MINUTES * 60.0 - 1)
    assert len(shown) == MINUTES
    assert shown[-1].share.requests == 3 * MINUTES - 1


def test_the_first_minute_is_as_long_as_it_was_watched() -> None:
    assert NodeHistory(now_s=630.0).read("a", now_s=640.0) == [NodeMinute(length_s=10.0)]


def test_counters_are_read_as_what_came_between() -> None:
    before = {"a": TrafficShare(requests=4, busy_s=1.0), "b": TrafficShare(requests=2)}
    after = {
        "a": TrafficShare(requests=6, failed=1, busy_s=2.5),
        "b": TrafficShare(requests=2),
        "c": TrafficShare(requests=1),
    }
    assert shares_between(before, after) == {
        "a": TrafficShare(requests=2, failed=1, busy_s=1.5),
        "c": TrafficShare(requests=1),
    }
