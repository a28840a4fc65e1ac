"""How far files are is told as one, whichever way they come."""

from dataclasses import replace

from corral.core.replicas.staging import Lot, is_news, shown


def test_files_that_follow_others_count_on() -> None:
    fetched = Lot(file_index=2, files=2, bytes_there=100, bytes_total=100)
    sent = Lot(file_index=1, files=3, bytes_there=10, bytes_total=300)
    assert shown(fetched, sent) == Lot(file_index=3, files=5, bytes_there=110, bytes_total=400)


def test_what_moves_twice_is_half_there_when_it_has_moved_once() -> None:
    there = [
        shown(Lot(), Lot(file_index=1, files=1, bytes_there=moved, bytes_total=80, leg=leg, legs=2)).bytes_there
        for leg in (1, 2)
        for moved in (0, 40, 80)
    ]
    assert there == [0, 20, 40, 40, 60, 80]


def test_what_is_sent_again_is_not_more_than_there_is() -> None:
    assert shown(Lot(), Lot(files=1, bytes_there=90, bytes_total=80)).bytes_there == 80


def test_another_file_is_told_at_once_and_bytes_once_a_second() -> None:
    told = Lot(file_index=1, files=2, bytes_there=5, bytes_total=9)
    more, next_file = replace(told, bytes_there=6), replace(told, file_index=2)
    assert is_news(None, told, since_s=0)
    assert [is_news(told, more, since_s=since_s) for since_s in (0.9, 1.0)] == [False, True]
    assert is_news(told, next_file, since_s=0)
    assert not is_news(told, told, since_s=60)
