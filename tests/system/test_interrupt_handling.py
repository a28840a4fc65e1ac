"""Which interrupts are acted on, and which are one with an earlier one."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from corral.system.interrupts import HANDLED_WITHIN_S, MergingHandler, hear_interrupts, hear_next_interrupt
from corral.system.run import run_interruptible


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_presses_are_merged_until_the_first_must_have_been_dealt_with() -> None:
    acted, now_s = [], [0.0]
    handler = MergingHandler(lambda: acted.append(now_s[0]), monotonic_s=lambda: now_s[0])
    for now_s[0] in (0.0, 0.1, HANDLED_WITHIN_S - 0.1, HANDLED_WITHIN_S + 0.1, HANDLED_WITHIN_S + 0.2):
        handler(signal.SIGINT, None)
    assert acted == [0.0, HANDLED_WITHIN_S + 0.1]
    handler.listen_again()
    handler(signal.SIGINT, None)
    assert len(acted) == 3


def test_a_second_press_does_not_break_into_what_handles_the_first() -> None:
    hear_interrupts()
    with pytest.raises(KeyboardInterrupt):
        press()
    press()
    hear_next_interrupt()
    with pytest.raises(KeyboardInterrupt):
        press()


def test_a_program_that_was_started_to_ignore_interrupts_goes_on_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hear_interrupts()
    press()

    async def pressed() -> str:
        press()
        await asyncio.sleep(0)
        return "done"

    assert run_interruptible(pressed) == "done"


def test_a_press_cancels_the_work_and_the_next_does_not_break_into_its_end() -> None:
    ended = []

    async def work() -> None:
        try:
            press()
            await asyncio.sleep(60)
        finally:
            press()
            await asyncio.sleep(0.01)
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work)
    assert ended == [True]


def test_work_that_is_not_interrupted_leaves_the_handler_as_it_was() -> None:
    async def work() -> int:
        return 3

    hear_interrupts()
    before = signal.getsignal(signal.SIGINT)
    assert run_interruptible(work) == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_comes_as_the_work_is_done_is_not_lost() -> None:
    async def work() -> None:
        press()

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work)


def test_an_error_of_the_work_is_its_error() -> None:
    async def work() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        run_interruptible(work)
