"""The pages for teams that integrate show the code that the tests run."""

from pathlib import Path

import pytest

from .pages import PAGES, with_code

OF_CLIENTS = {"nestjs", "plain-kafka", "protobuf", "python", "smallrye", "spring"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_of_the_tests_is_what_they_run(page: Path) -> None:
    text = page.read_text()
    assert text == with_code(text), "mend it with: python -m tests.compat.pages"


def test_each_page_of_a_client_shows_code_that_is_tested() -> None:
    assert {page.stem for page in PAGES if "<!-- tests/compat/" in page.read_text()} == OF_CLIENTS
