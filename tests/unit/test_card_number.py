"""Card numbers are found; what only looks like one is let through."""

from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.schemas.card_number import (
    holds_card_number,
    look_closely,
    may_hold_card_number,
    texts,
    unread_holds_card_number,
    unread_message_holds_card_number,
)

# Numbers that the networks and payment providers publish for tests.
CARDS = [
    "4111111111111111", "4222222222222", "4012888888881881", "5555555555554444", "2223003122003222", "378282246310005",
    "371449635398431", "30569309025904", "6011111111111117", "3530111333300000", "6759649826438453", "6200000000000005",
    "2200000000000004", "5019717010103742",
]  # fmt: skip


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("around", ["{}", "card {} 12/27", "PAN{}", '"id":"{}",', "tok_{}", "{}.", "\x00{}\xff", "a-{}-b"])
def test_a_card_number_is_found_in_any_text(card: str, around: str) -> None:
    assert holds_card_number(around.format(card).encode("latin-1"))


@pytest.mark.parametrize(
    "written",
    ["4111 1111 1111 1111", "4111-1111-1111-1111", "card 4111 1111 1111 1111 12/27 123", "7 4111 1111 1111 1111",
     "3782 822463 10005", "3056-930902-5904", "4222 2222 2222 2"],
)  # fmt: skip
def test_a_card_number_is_found_in_its_groups(written: str) -> None:
    assert holds_card_number(written.encode())


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111112",  # no Luhn
        "411111111111111",  # Visa has no 15 digits
        "1772362800250",  # epoch milliseconds
        "1234567812345670",  # Luhn, of no issuer
        "41111111111111111111111",  # longer than any
        "52.4111111111111111",  # the fraction of a decimal
        "+4222222222222",  # a telephone number
        "DE89370400440532013000",  # IBANs
        "GB29NWBK60161331926819",
        "00-4bf92f4111111111111111ce929d0e0e-00f067aa0ba902b7-01",  # hexadecimal
        "9f86d081-4111-4111-8111-1111abcdefab",
        "2026-03-01 12:00:00 2026-03-01 12:00:00",
    ],
)  # fmt: skip
def test_what_only_looks_like_one_is_let_through(text: str) -> None:
    assert not holds_card_number(text.encode())


def test_a_changed_digit_is_no_card_number() -> None:
    for card in CARDS:
        for place in range(4, len(card)):
            changed = card[:place] + str((int(card[place]) + 1) % 10) + card[place + 1 :]
            assert not holds_card_number(changed.encode())


PIECES = st.sampled_from(
    [*CARDS, "4111 1111 1111 1111", "4111-1111", "1111-1111", "1764500000000", "0", "7", " ", "-", ".", "x"]
)


@given(st.binary(max_size=300) | st.text("0123456789 -aF.", max_size=300).map(str.encode))
@example(b"1764500000000 4111 1111 1111 1111")
@example(b"4111 1111 1111 1111,1764500000000")
def test_the_first_look_misses_nothing(data: bytes) -> None:
    assert may_hold_card_number(data) or not look_closely(data)


@settings(max_examples=1_000)
@given(st.lists(PIECES, max_size=8))
def test_the_first_look_misses_no_card_number_among_other_digits(pieces: list[str]) -> None:
    data = "".join(pieces).encode()
    assert may_hold_card_number(data) or not look_closely(data)


def test_numbers_below_1_are_not_written_out_digit_by_digit() -> None:
    assert list(texts([Decimal("1e-399"), Decimal("0.4111111111111111")])) == []
    assert [text for _, text in texts([Decimal("4.111111111111111e15"), Decimal("1.50")])] == ["4111111111111111", "1.50"]


def test_a_number_is_not_found_within_a_longer_one_beside_a_body() -> None:
    assert not unread_holds_card_number(b"1" + b"4111111111111111")
    assert unread_message_holds_card_number(b"1" + b"4111111111111111")
