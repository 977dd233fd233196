"""One more than what a cache holds (invariant I5): what was not asked for longest makes room."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from assay.models.reasons import Catalogue
from assay.schemas import decision, formats, headers, instant, limits, signature
from assay.tables import encode
from assay.tables.digests import Digests

DAY_MS = 86_400_000


def assert_bounded(cached: Any, most: int, arguments: Callable[[int], tuple[Any, ...]]) -> None:
    """The first of so many and one more is computed anew when it comes again, the second is not."""
    cached.cache_clear()
    for number in range(most + 1):
        cached(*arguments(number))
    assert cached.cache_info()[1:] == (most + 1, most, most)
    cached(*arguments(1))
    assert cached.cache_info().hits == 1
    cached(*arguments(0))
    assert cached.cache_info().misses == most + 2


@pytest.fixture(autouse=True)
def emptied() -> Iterator[None]:
    """Caches as other tests expect them."""
    yield
    for module in (decision, formats, headers, instant, signature, encode):
        for each in vars(module).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()


def test_i5_max_cached_digests_one_more_pushes_the_oldest_out() -> None:
    digests = Digests(b"key")
    assert_bounded(digests.of64, limits.MAX_CACHED_DIGESTS, lambda number: (f"user-{number}",))
    assert_bounded(
        digests.of_address,
        limits.MAX_CACHED_DIGESTS,
        lambda number: (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",),
    )


def test_i5_max_cached_zone_offsets_one_more_pushes_the_oldest_out() -> None:
    assert_bounded(encode._offset_at, limits.MAX_CACHED_ZONE_OFFSETS, lambda number: ("Europe/Berlin", number * 900_000))
    assert encode._offset_all_day.cache_parameters()["maxsize"] == limits.MAX_CACHED_ZONE_OFFSETS


def test_i5_max_cached_header_forms_one_more_pushes_the_oldest_out() -> None:
    assert_bounded(headers._plan, limits.MAX_CACHED_HEADER_FORMS, lambda number: ((f"name-{number}",), False))
    for cached, more in ((formats.media_type_of, ()), (formats.reader_of, (True,))):
        content_types = lambda number, more=more: (b"application/json; charset=%d" % number, *more)  # noqa: E731
        assert_bounded(cached, limits.MAX_CACHED_HEADER_FORMS, content_types)


def test_i5_max_cached_texts_one_more_pushes_the_oldest_out() -> None:
    most = limits.MAX_CACHED_TEXTS
    assert_bounded(signature._read_protected, most, lambda number: (signature.to_base64url(b'{"kid":"%d"}' % number),))
    assert_bounded(signature.SigningKey.make()._cached, most, lambda number: (b"%d" % number,))
    assert_bounded(headers._topic, most, lambda number: ("reply-to", b"%d.reply" % number))
    assert_bounded(headers._partition, most, lambda number: (headers.Dialect.ASSAY, b"%d" % number))
    assert_bounded(
        instant._second_ms, most, lambda number: (f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}",)
    )
    assert_bounded(instant._rest, most, lambda number: (f".{number:04d}Z",))
    assert_bounded(instant._second_text, most, lambda number: (number,))
    assert_bounded(decision._moment, most, lambda number: (number,))


def test_i5_max_cached_wordings_one_more_pushes_the_oldest_out() -> None:
    assert_bounded(Catalogue.shipped().word, limits.MAX_CACHED_WORDINGS, lambda number: (0, float(number)))


def test_i5_every_cache_has_a_bound() -> None:
    for module in (decision, formats, headers, instant, signature, encode):
        for name, each in vars(module).items():
            if hasattr(each, "cache_parameters"):
                assert each.cache_parameters()["maxsize"] is not None, name
