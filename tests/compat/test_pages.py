"""The pages for teams that integrate show the code that the tests run."""

from pathlib import Path

import pytest

from .pages import PAGES, with_code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_the_code_that_is_tested(page: Path) -> None:
    text = page.read_text()
    assert "<!-- tests/compat/" in text
    assert text == with_code(text), "mend it with: python -m tests.compat.pages"
