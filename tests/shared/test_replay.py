"""The page that replays conversations, in a real browser: turns, boxes and masks where they are, nothing fetched."""

import numpy as np
import pytest

from browser import CHROMIUM, Browser
from cxr.plotting.replay import Conversation, Turn, write_replay

NASTY = "</script><script>document.title='run'</script> & <b>$x</b>"
BOX = [0.5, 0.25, 1.0, 0.75]


def conversations() -> list[Conversation]:
    rng = np.random.default_rng(3)
    mask = np.zeros((200, 300), bool)
    mask[50:150, 150:] = True
    turns = [
        Turn("What is abnormal?", NASTY),
        Turn(
            "Where?",
            "On the right of the image.",
            boxes=[BOX],
            expected_boxes=[[0.5, 0.3, 0.9, 0.75]],
            expected="There.",
        ),
        Turn("Outline it.", "[SEG]", mask=mask),
        Turn("And why?", "", failure="too long"),
    ]
    images = [rng.integers(0, 256, shape).astype(np.uint8) for shape in ((200, 300), (2500, 1500))]
    return [
        Conversation(f"Case {number}", "A sentence.", image, turns[: 4 - number], sides)
        for number, (image, sides) in enumerate(zip(images, [("R", "L"), ("L", "R")], strict=True))
    ]


def test_a_page_without_a_conversation_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs at least one turn"):
        write_replay(tmp_path / "a.html", "x", [Conversation("a", "", np.zeros((8, 8), np.uint8), [])], 85)
    assert not (tmp_path / "a.html").exists()


def test_the_same_conversations_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_replay(tmp_path / name, "Answers", conversations(), 85)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to open the page with")
def test_it_replays_in_a_browser(tmp_path):
    """Each step shows one turn more, and its own boxes; the page runs no text and fetches nothing."""
    path = tmp_path / "page.html"
    write_replay(path, NASTY, conversations(), 85)
    shown = "[...document.querySelectorAll('#turns li')].filter((e) => e.offsetParent).length"
    boxes = "[...document.querySelectorAll('#image rect')].map((e) => [e.getAttribute('class'), ...['x', 'y', 'width', 'height'].map((n) => Number(e.getAttribute(n)))])"  # noqa: E501
    masks = "document.querySelectorAll('#image image.mask').length"
    with Browser(tmp_path) as browser:
        browser.open(path)
        assert browser.run("document.title") == NASTY
        assert (browser.run(shown), browser.run(boxes)) == (1, [])
        assert browser.run("document.querySelector('#turns .said').textContent") == NASTY
        browser.key("ArrowRight")
        assert browser.run(shown) == 2
        assert browser.run(boxes) == [["right", 150, 60, pytest.approx(120), 90], ["now", 150, 50, 150, 100]]
        browser.click("#next")
        assert (browser.run(shown), browser.run(masks)) == (3, 1)
        assert browser.run(boxes) == [["before", 150, 50, 150, 100]]
        browser.click("#next")
        assert browser.run("document.getElementById('next').disabled")
        assert browser.run("document.querySelectorAll('.failed')[0].textContent") == "too long"
        browser.click("#turns li:nth-child(1)")
        assert (browser.run(shown), browser.run(boxes)) == (1, [])
        browser.run(
            "{ const e = document.getElementById('cases'); e.value = '1'; e.dispatchEvent(new Event('change')); }"
        )
        assert browser.run("document.querySelector('#image').viewBox.baseVal.height") == 1024
        assert browser.run("[...document.querySelectorAll('#image text')].map((e) => e.textContent)") == ["L", "R"]
        browser.click("#play")
        browser.until(f"{shown} === 3")
        browser.until("document.getElementById('play').textContent === 'Play'")
        assert not [url for url in browser.requests if not url.startswith(("data:", path.as_uri()))]
        assert browser.complaints == []
        browser.window(1280, 900)
        browser.screenshot(tmp_path / "page.png")
