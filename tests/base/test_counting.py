"""Singular and plural in messages."""

import pytest

from cxr.base.counting import count_phrase


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 image files are"), (1, "1 image file is"), (2, "2 image files are")]
)
def test_the_words_agree_with_the_number(number, said):
    assert count_phrase(number, "image file is", "image files are") == said
