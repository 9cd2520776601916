"""How long a provider asks to be left alone, in all the forms in which it says so."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from lifecycle_adapters.delays import asked_in, delay, retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "Sat, 14 Mar 2026 12:00:07 GMT", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 7.0),
        ({"retry-after": "Sat, 14 Mar 2026 11:59:00 GMT", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 0.0),
        ({"retry-after": "Saturday, 14-Mar-26 12:00:07 GMT", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 7.0),
        ({"retry-after": "Sat Mar 14 12:00:07 2026", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 7.0),
        ({"retry-after": "99999999999"}, 99999999999.0),
        *(({"retry-after": odd}, None) for odd in ("soon", "-5", "1e3", "0x10", "NaN", "inf", "", "1.5", "99:99:99")),
        ({"retry-after-ms": "soon"}, None),
    ],
)
def test_every_form_of_retry_after_is_read_and_an_odd_one_is_none(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds


def test_without_a_date_of_the_server_our_own_clock_measures() -> None:
    wait = retry_after({"retry-after": formatdate(time.time() + 100, usegmt=True)})

    assert wait is not None
    assert 90 < wait <= 101


ODD: list[object] = [-4, True, None, "soon", "1e3", "", [], {}]
BODIES: list[tuple[object, float | None]] = [
    ({"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "19s"}]}}, 19.0),
    ([{"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "31.382906742s"}]}}], 31.382906742),
    ({"error": {"retry_delay": {"seconds": 12}}}, 12.0),
    ({"error": {"message": "slow"}, "retry_after": 4}, 4.0),
    ({"error": {"retry_after": 4.5}}, 4.5),
    ({"error": {"retryAfter": "8"}}, 8.0),
    ({"error": {"retry_after_ms": 2500}}, 2.5),
    ({"error": {"metadata": {"headers": {"Retry-After": "9"}}}}, 9.0),
    ({"error": {"retry_after": 86400}}, 86400.0),
    ({"error": {"message": "Please try again in 1.5s."}}, 1.5),
    ({"error": {"message": "Please try again in 20ms."}}, 0.02),
    ({"error": {"message": "Please try again in 6m0s."}}, 360.0),
    ({"error": {"message": "Please try again in 14m24s. Need more tokens? Upgrade today"}}, 864.0),
    ({"error": {"message": "Please retry after 26 seconds."}}, 26.0),
    ({"error": {"message": "please try again after 1 hour and 2 minutes"}}, 3720.0),
    ("Too many requests, retry in 3 s", 3.0),
    ({"error": {"message": "Please retry in 31.3s.", "details": [{"retryDelay": "31s"}]}}, 31.0),
    *(({"error": {"retry_after": odd}}, None) for odd in ODD),
    ({"error": {"message": "Please try again later."}}, None),
    ({"error": {"message": "wait"}}, None),
    ("", None),
    (None, None),
]


@pytest.mark.parametrize(("body", "seconds"), BODIES)
def test_a_delay_in_the_body_of_an_error_is_read_from_its_fields_or_its_words(
    body: object, seconds: float | None
) -> None:
    assert asked_in(body) == seconds


def test_the_header_outweighs_the_body() -> None:
    body = {"error": {"message": "Please try again in 20s."}}

    assert delay({"retry-after": "3"}, body) == 3.0
    assert delay({"retry-after": "soon"}, body) == 20.0
    assert delay({}, {"error": {"message": "slow"}}) is None


def test_a_body_of_any_size_is_looked_at_only_so_far() -> None:
    assert asked_in([{"n": n} for n in range(100_000)] + [{"retry_after": 3}]) is None
