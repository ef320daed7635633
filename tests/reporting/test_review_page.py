"""The experts' page in a real browser, at 300 items: keys, clicks, touch, pixels of the canvas, resuming, the sheet."""

import csv
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from browser import CHROMIUM, Browser
from cxr.reporting.review.sheets import read_sheets
from cxr.reporting.review.units import Unit
from review_cases import LEFT, NASTY, RIGHT, VERDICT, make_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to open the page with")
POSITIVES, NEGATIVES = 200, 100
ORANGE = (230, 159, 0)
DESK, PHONE = (1280, 1000), (390, 844)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> tuple[Path, dict, list]:
    """The page of expert A: its file, its data, and its (code, unit) in order."""
    path = tmp_path_factory.mktemp("review") / "page_A.html"
    data, items = make_page(path, positives=POSITIVES, negatives=NEGATIVES)
    return path, data, items


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(chromium, page) -> Iterator[Browser]:
    """The page as at first. Afterwards: it has asked for nothing but itself, and nothing was complained of."""
    chromium.window(*DESK)
    fresh(chromium, page[0])
    yield chromium
    chromium.run("0")
    assert not [url for url in chromium.requests if not url.startswith(("data:", "blob:", page[0].as_uri()))]
    # this one is of the tests' own reading of pixels
    assert [text for text in chromium.complaints if not text.startswith("Canvas2D: Multiple readback")] == []


def fresh(browser: Browser, path: Path) -> None:
    """Open the page as if for the first time. It writes when it is left, so its storage is emptied after that."""
    browser.go("about:blank")
    browser.send("Storage.clearDataForOrigin", origin="file://", storageTypes="local_storage")
    browser.requests.clear()
    browser.complaints.clear()
    opened(browser, path)


def opened(browser: Browser, path: Path) -> None:
    browser.open(path)
    wait_for_image(browser)


def wait_for_image(browser: Browser) -> None:
    """Wait until the item's picture is on the canvas: its corners are never black."""
    browser.until("canvas.getContext('2d').getImageData(canvas.width / 10, canvas.height / 2, 1, 1).data[0] > 0")


def text(browser: Browser, name: str) -> str:
    return browser.run(f"document.getElementById('{name}').textContent")


def pressed(browser: Browser, name: str) -> bool:
    return browser.run(f"document.getElementById('{name}').getAttribute('aria-pressed')") == "true"


def pixel(browser: Browser, x: float, y: float) -> tuple[int, ...]:
    """Red, green, blue of the canvas at a place in sides of it."""
    at = f"Math.floor({x} * canvas.width), Math.floor({y} * canvas.height), 1, 1"
    return tuple(browser.run(f"[...canvas.getContext('2d').getImageData({at}).data]"))[:3]


def close_to(found: tuple[int, ...], wanted: tuple[float, ...], by: float = 3) -> bool:
    return all(abs(a - b) <= by for a, b in zip(found, wanted, strict=True))


def over(grey: float, opacity: float) -> tuple[float, ...]:
    """What the mask's colour over a grey gives."""
    return tuple(grey + (colour - grey) * opacity for colour in ORANGE)


def go_to(browser: Browser, items: list, wanted: Callable[[Unit], bool]) -> int:
    """Go from the first item to the first that is wanted, by keys; return its number from 0."""
    number = next(n for n, (_, unit) in enumerate(items) if wanted(unit))
    for _ in range(number):
        browser.key("ArrowRight")
    browser.until(f"document.getElementById('where').textContent.startsWith('Item {number + 1} of 300')")
    wait_for_image(browser)
    return number


def with_mask(unit: Unit) -> bool:
    return unit.is_positive


def without_mask(unit: Unit) -> bool:
    return not unit.is_positive


def test_what_an_expert_sees(browser, page):
    items = page[2]
    assert text(browser, "judged") == "0 of 300 judged"
    for wanted, question in ((with_mask, "Is this mask right"), (without_mask, "Is this lesion absent")):
        fresh(browser, page[0])
        number = go_to(browser, items, wanted)
        unit = items[number][1]
        assert text(browser, "where") == f"Item {number + 1} of 300 · {items[number][0]}"
        assert text(browser, "question").startswith(question)
        assert text(browser, "fact-0") == unit.target
        assert text(browser, "fact-1") == (" and ".join(unit.location) or "anywhere")
        assert browser.run("document.getElementById('mask').disabled") is not unit.is_positive


def test_a_report_is_shown_as_text_whatever_it_holds(browser, page):
    number = go_to(browser, page[2], lambda unit: NASTY in unit.report)
    assert text(browser, "report") == page[2][number][1].report
    fresh(browser, page[0])
    go_to(browser, page[2], lambda unit: NASTY not in unit.report)
    assert text(browser, "report").split(", ")[1] == "broken by its width.\n1. A list."
    assert browser.run("typeof window.hacked") == "undefined"
    assert browser.run("document.querySelectorAll('img').length") == 0


def test_what_is_keyed_is_what_is_saved(browser, page, tmp_path):
    _, data, _ = page
    draw = random.Random(5)
    wanted = [draw.choice("ax") for _ in range(300)]
    for number, key in enumerate(wanted):
        browser.key(key)
        if number == 149:
            assert text(browser, "judged") == "150 of 300 judged"
            assert browser.run("document.getElementById('progress').value") == 150
    assert text(browser, "judged") == "300 of 300 judged"
    assert "All items are judged" in text(browser, "status")
    browser.key("s")
    (tmp_path / "sheet.csv").write_bytes(browser.downloaded("review_A.csv"))
    codes = [item["item"] for item in data["items"]]
    found = read_sheets([str(tmp_path / "sheet.csv")], {"A": (data["page"], codes)}, VERDICT, "review.sheets")["A"]
    assert [found[code].values["verdict"] for code in codes] == [
        {"a": "acceptable", "x": "not acceptable"}[key] for key in wanted
    ]
    assert text(browser, "status") == "Saved, complete."


def test_verdicts_change_are_undone_and_are_found_again(browser, page, tmp_path):
    browser.key("a")
    browser.key("x")
    browser.key("ArrowLeft")
    assert pressed(browser, "reject")
    browser.key("A")  # with caps lock too
    browser.key("ArrowLeft")
    assert pressed(browser, "accept")
    assert not pressed(browser, "reject")
    browser.key("u")
    assert text(browser, "where").startswith("Item 2 ")
    assert pressed(browser, "reject")
    browser.key("z", modifiers=2)
    assert text(browser, "judged") == "1 of 300 judged"
    assert not pressed(browser, "reject")
    browser.key("ArrowLeft")
    browser.key("j")
    assert text(browser, "where").startswith("Item 2 ")
    browser.key("a", modifiers=2)  # select all is no verdict
    assert text(browser, "judged") == "1 of 300 judged"


def test_clicks_do_what_keys_do(browser, page, tmp_path):
    browser.click("#accept")
    browser.click("#reject")
    assert text(browser, "where").startswith("Item 3 ")
    browser.click("#back")
    assert pressed(browser, "reject")
    browser.click("#undo")
    assert text(browser, "judged") == "1 of 300 judged"
    browser.click("#next")
    browser.click("#open")
    assert text(browser, "where").startswith("Item 4 ")
    browser.click("#note")
    browser.type('Too "large", see a; x')
    browser.key("Escape")
    browser.key("x")
    browser.click("#save")
    row = browser.downloaded("review_A.csv").decode("utf-8-sig").splitlines()[4]
    assert row.startswith(f'{page[2][3][0]},not acceptable,"Too ""large"", see a; x",')
    assert row.endswith(page[1]["page"])
    assert text(browser, "status") == "Saved; 298 items have no verdict yet."


def test_a_note_is_no_formula_in_the_sheet(browser, page, tmp_path):
    browser.click("#note")
    browser.type('=HYPERLINK("http://x")')
    browser.key("Escape")
    for key in "ax":
        browser.key(key)
    browser.click("#note")
    browser.type("-1")
    browser.key("Escape")
    browser.key("s")
    (tmp_path / "sheet.csv").write_bytes(browser.downloaded("review_A.csv"))
    with open(tmp_path / "sheet.csv", encoding="utf-8-sig", newline="") as file:
        assert [row["note"] for row in csv.DictReader(file)][:3] == ['\'=HYPERLINK("http://x")', "", "-1"]
    (tmp_path / "whole.csv").write_text(
        (tmp_path / "sheet.csv").read_text(encoding="utf-8").replace(",,", ",acceptable,"), encoding="utf-8"
    )
    codes = [item["item"] for item in page[1]["items"]]
    found = read_sheets([str(tmp_path / "whole.csv")], {"A": (page[1]["page"], codes)}, VERDICT, "review.sheets")["A"]
    assert found[codes[0]].note == '=HYPERLINK("http://x")'
    browser.choose_file("#load", tmp_path / "sheet.csv")
    browser.key("ArrowLeft")
    browser.key("ArrowLeft")
    browser.until("document.getElementById('note').value === '=HYPERLINK(\"http://x\")'")


def test_the_last_item_tells_what_is_open(browser):
    for _ in range(299):
        browser.key("ArrowRight")
    assert browser.run("document.getElementById('next').disabled")
    browser.key("ArrowRight")
    browser.key("a")
    assert text(browser, "status") == "Item 300: acceptable. 299 others are open: J."
    browser.key("j")
    assert text(browser, "where").startswith("Item 1 ")


def test_letters_of_a_note_are_no_verdicts(browser):
    browser.key("n")
    for letter in "axum":
        browser.key(letter)
    assert browser.run("document.getElementById('note').value") == "axum"
    assert text(browser, "judged") == "0 of 300 judged"
    browser.key("Escape")
    browser.key("a")
    assert text(browser, "judged") == "1 of 300 judged"


def test_it_goes_on_where_it_was_after_the_browser_was_closed(page, tmp_path):
    path = page[0]
    with Browser(tmp_path) as browser:
        opened(browser, path)
        for key in "axa":
            browser.key(key)
        browser.key("n")
        browser.type("late")
    with Browser(tmp_path) as browser:
        opened(browser, path)
        assert text(browser, "where").startswith("Item 4 ")
        assert browser.run("document.getElementById('note').value") == "late"
        assert text(browser, "judged") == "3 of 300 judged"
        browser.key("ArrowLeft")
        browser.key("ArrowLeft")
        assert pressed(browser, "reject")


def test_without_storage_a_sheet_carries_the_work(browser, page, tmp_path):
    forbid = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('forbidden'); } })"
    script = browser.send("Page.addScriptToEvaluateOnNewDocument", source=forbid)["identifier"]
    try:
        opened(browser, page[0])
        assert "keeps nothing" in text(browser, "storage")
        for key in "aax":
            browser.key(key)
        browser.key("s")
        (tmp_path / "sheet.csv").write_bytes(browser.downloaded("review_A.csv"))
        opened(browser, page[0])
        assert text(browser, "judged") == "0 of 300 judged"
        browser.choose_file("#load", tmp_path / "sheet.csv")
        browser.until("document.getElementById('judged').textContent === '3 of 300 judged'")
        browser.key("ArrowRight")
        browser.key("ArrowRight")
        assert pressed(browser, "reject")
        content = (tmp_path / "sheet.csv").read_text(encoding="utf-8").replace(page[1]["page"], "pother")
        (tmp_path / "other.csv").write_text(content, encoding="utf-8")
        browser.choose_file("#load", tmp_path / "other.csv")
        browser.until("document.getElementById('status').textContent.startsWith('Row 2 is of another page')")
        assert text(browser, "judged") == "3 of 300 judged"
    finally:
        browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_the_mask_is_laid_over_and_taken_away(browser, page):
    go_to(browser, page[2], with_mask)
    inside, outside, edge = (0.45, 0.5), (0.2, 0.5), (0.3765, 0.5)  # the mask's edge is at 192 / 512 = 0.375
    assert close_to(pixel(browser, *outside), (LEFT,) * 3)
    assert close_to(pixel(browser, *inside), over(LEFT, 0.4))
    assert close_to(pixel(browser, 0.55, 0.5), over(RIGHT, 0.4))
    browser.key("m")
    assert close_to(pixel(browser, *inside), (LEFT,) * 3)
    assert not pressed(browser, "mask")
    browser.click("#mask")
    browser.key("]")
    assert close_to(pixel(browser, *inside), over(LEFT, 0.5))
    browser.key("[")
    browser.key("[")
    assert close_to(pixel(browser, *inside), over(LEFT, 0.3))
    browser.key("o")
    assert close_to(pixel(browser, *inside), (LEFT,) * 3)
    assert close_to(pixel(browser, *edge), over(LEFT, 0.6), by=8)
    assert pressed(browser, "outline")
    browser.key("m")
    browser.key("ArrowRight")
    browser.key("ArrowLeft")
    wait_for_image(browser)
    assert pressed(browser, "mask"), "a mask that was hidden for one item is not hidden for the next"


def test_an_item_without_a_mask_shows_the_image_alone(browser, page):
    go_to(browser, page[2], without_mask)
    browser.key("m")
    assert close_to(pixel(browser, 0.45, 0.5), (LEFT,) * 3)


def test_window_and_level(browser, page):
    go_to(browser, page[2], without_mask)
    slide = (
        "(() => {{ const e = document.getElementById('{}'); e.value = {}; e.dispatchEvent(new Event('input')); }})()"
    )
    browser.run(slide.format("window", 128))
    assert close_to(pixel(browser, 0.2, 0.5), (255 * (LEFT - 64) / 128,) * 3)
    assert close_to(pixel(browser, 0.8, 0.5), (255,) * 3)
    browser.run(slide.format("level", 164))
    assert close_to(pixel(browser, 0.8, 0.5), (255 * (RIGHT - 100) / 128,) * 3)
    browser.key("0")
    assert text(browser, "levels") == "256 / 128"
    # a quarter of the canvas to the right and an eighth down: window + 128, level + 32
    x, y = browser.middle("#canvas")
    side = browser.run("canvas.clientWidth")
    browser.drag((x, y), (x + side / 4, y + side / 8))
    window, level = (int(part) for part in text(browser, "levels").split(" / "))
    assert (window, level) == (pytest.approx(384, abs=4), pytest.approx(160, abs=2))
    assert close_to(pixel(browser, 0.2, 0.5), (255 * (LEFT - level + window / 2) / window,) * 3)
    browser.click("#canvas", count=2)
    assert text(browser, "levels") == "256 / 128"


def test_zoom_and_pan(browser, page):
    go_to(browser, page[2], without_mask)
    browser.key("+")
    browser.key("+")
    browser.key("+")
    assert text(browser, "zoom") == "195 %"
    half = 1.25**3
    # about the middle: what was at 0.5 stays, the picture's edge of its halves too
    assert close_to(pixel(browser, 0.49, 0.6), (LEFT,) * 3)
    assert close_to(pixel(browser, 0.51, 0.6), (RIGHT,) * 3)
    x, y = browser.middle("#canvas")
    side = browser.run("canvas.clientWidth")
    browser.drag((x, y), (x + side / 5, y), modifiers=8)  # with Shift: the picture moves by a fifth
    assert close_to(pixel(browser, 0.69, 0.6), (LEFT,) * 3)
    assert close_to(pixel(browser, 0.71, 0.6), (RIGHT,) * 3)
    assert text(browser, "levels") == "256 / 128"
    browser.click("[value=pan]")
    x, y = browser.middle("#canvas")
    browser.drag((x, y), (x - side, y))
    # not further than to the picture's right edge: the border of the halves is at 1 - zoom / 2
    border = 1 - half / 2
    assert close_to(pixel(browser, border - 0.01, 0.6), (LEFT,) * 3)
    assert close_to(pixel(browser, border + 0.01, 0.6), (RIGHT,) * 3)
    browser.key("0")
    browser.mouse("mouseWheel", x + side / 4, y, deltaX=0, deltaY=-100)
    browser.until("document.getElementById('zoom').textContent === '125 %'")
    # the point under the wheel (0.75) stays: the border of the halves goes to 0.75 - 0.25 * 1.25
    assert close_to(pixel(browser, 0.4275, 0.6), (LEFT,) * 3)
    assert close_to(pixel(browser, 0.4475, 0.6), (RIGHT,) * 3)


def test_a_phone(browser, page, tmp_path):
    browser.window(*PHONE, phone=True)
    opened(browser, page[0])
    go_to(browser, page[2], with_mask)
    assert browser.run("document.documentElement.scrollWidth") <= PHONE[0]
    for name in ("accept", "reject", "next", "back", "undo"):
        box = browser.run(f"document.getElementById('{name}').getBoundingClientRect().toJSON()")
        assert box["height"] >= 40
        assert box["left"] >= 0
        assert box["right"] <= PHONE[0]
        assert box["bottom"] <= PHONE[1]
    assert browser.run("canvas.clientWidth") >= 360
    x, y = browser.middle("#canvas")
    browser.touch("touchStart", (x - 40, y), (x + 40, y))
    browser.touch("touchMove", (x - 60, y), (x + 60, y))
    browser.touch("touchMove", (x - 80, y), (x + 80, y))
    browser.touch("touchEnd")
    assert text(browser, "zoom") == "200 %"
    assert text(browser, "levels") == "256 / 128"
    browser.touch("touchStart", (x, y))
    browser.touch("touchMove", (x + 60, y))
    browser.touch("touchEnd")
    assert int(text(browser, "levels").split(" / ")[0]) > 256
    before = text(browser, "where")
    browser.tap("#accept")
    browser.until(f"document.getElementById('where').textContent !== {before!r}")
    assert text(browser, "judged") == "1 of 300 judged"
    wait_for_image(browser)
    browser.run("scrollTo(0, 0)")
    browser.screenshot(tmp_path / "phone.png")
    assert (tmp_path / "phone.png").stat().st_size > 10_000


def test_a_page_without_items_says_so(browser, tmp_path):
    make_page(tmp_path / "page_A.html", positives=0, negatives=0)
    browser.open(tmp_path / "page_A.html")
    assert text(browser, "status") == "There is nothing to review on this page."
    browser.key("a")
    assert browser.requests.pop() == (tmp_path / "page_A.html").as_uri()


def test_everything_has_a_name_and_the_keys_are_shown(browser, page, tmp_path):
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "slider", "radio", "textbox", "image", "progressbar")
    found = [(node["role"]["value"], node["name"]["value"]) for node in nodes
             if not node["ignored"] and node["role"]["value"] in roles]  # fmt: skip
    assert {role for role, _ in found} == set(roles)
    assert len(found) >= 20
    assert all(name.strip() for _, name in found), found
    assert any(name.startswith("Chest radiograph") for _, name in found)
    keys = set(browser.run("[...document.querySelectorAll('.keys kbd')].map((each) => each.textContent)"))
    assert {"A", "X", "U", "J", "M", "O", "N", "S", "0", "→", "←"} <= keys
    browser.key("Tab")
    assert browser.run("document.activeElement.matches(':focus-visible')")
    browser.screenshot(tmp_path / "desk.png")
    assert (tmp_path / "desk.png").stat().st_size > 10_000
