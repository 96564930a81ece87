"""The review in a real browser: by keyboard, on a phone, in the dark, with hostile data."""

import json
from contextlib import contextmanager

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")

from support.review_browser import chromium, served
from support.review_runs import (
    image_run,
    regression_run,
    sure_run,
    suspect,
    table_run,
    text_run,
    write_run,
)

WIDE, NARROW = {"width": 1400, "height": 850}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


@pytest.fixture
def opened(browser):
    """Opens pages of a review, and holds them to having had nothing to complain about."""

    @contextmanager
    def at(address, *, complaints=(), **options):
        context = browser.new_context(**{"viewport": WIDE} | options)
        page = context.new_page()
        page.set_default_timeout(20_000)
        heard = []
        page.on("console", lambda said: heard.append(said.text) if said.type != "log" else None)
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("dialog", lambda box: (heard.append(f"dialog: {box.message}"), box.dismiss()))
        page.goto(address)
        page.wait_for_url(lambda url: "token" not in url)
        page.wait_for_selector("#card > *")
        yield page
        context.close()
        assert [text for text in heard if not any(part in text for part in complaints)] == []

    return at


def row(page):
    return int(page.get_attribute("#card article", "data-row"))


def press(page, *keys):
    """Each key, and the card it leads to."""
    for key in keys:
        with page.expect_response(lambda answer: "/static/" not in answer.url):
            page.keyboard.press(key)
        page.wait_for_selector("#card:not([aria-busy])")


def decided(desk):
    return {i: (made.action, made.label) for i, made in desk.standing().items()}


def test_a_whole_review_by_keyboard(tmp_path, opened):
    folder = table_run(tmp_path)
    with served(folder) as (desk, address, _), opened(address) as page:
        assert row(page) == 1
        press(page, "a", "k", "d", "s")
        assert decided(desk) == {1: ("relabel", "dog"), 3: ("keep", None), 5: ("drop", None),
                                 7: ("skip", None)}  # fmt: skip
        assert row(page) == 9
        assert "Row 7: Skipped. Now row 9" in page.inner_text("#said")
        press(page, "ArrowLeft", "ArrowLeft")
        assert row(page) == 5
        assert page.inner_text("#state") == "Dropped"
        press(page, "ArrowRight")
        assert row(page) == 7
        press(page, "u", "u")
        assert row(page) == 5
        assert decided(desk) == {1: ("relabel", "dog"), 3: ("keep", None)}
        page.keyboard.press("r")
        page.wait_for_selector("#relabel[open]")
        press(page, "1")  # the key of "bird"
        assert desk.history.of(5).label == "bird"
        press(page, "K", "k", "k")  # capitals, too
        assert "That was the last one" in page.inner_text("#card")
        assert page.get_attribute("progress", "value") == "6"
        page.keyboard.press("e")
        with page.expect_response("**/export"):
            page.keyboard.press("Enter")
        page.wait_for_selector("#exported a")
        assert page.locator("#exported a").all_inner_texts() == [
            "corrected.csv", "confirmed.csv", "dropped.csv", "changes.diff"]  # fmt: skip
        assert "1: cat -> dog" in (folder / "changes.diff").read_text()


def test_help_opens_and_closes_and_keys_mean_nothing_behind_it(tmp_path, opened):
    with served(table_run(tmp_path)) as (desk, address, _), opened(address) as page:
        page.keyboard.press("?")
        assert page.is_visible("#help")
        page.keyboard.press("d")
        page.keyboard.press("Escape")
        assert not page.is_visible("#help")
        page.keyboard.press("Control+d")
        page.wait_for_timeout(50)
        assert decided(desk) == {}


def test_a_key_held_down_decides_once(tmp_path, opened):
    with served(table_run(tmp_path)) as (desk, address, _), opened(address) as page:
        with page.expect_response("**/decide"):
            page.keyboard.down("k")
            for _ in range(10):
                page.keyboard.down("k")  # what a keyboard does by itself
        page.keyboard.up("k")
        page.wait_for_selector("#card:not([aria-busy])")
        press(page, "d")
        assert decided(desk) == {1: ("keep", None), 3: ("drop", None)}


def test_search_and_filters(tmp_path, opened):
    with served(table_run(tmp_path)) as (_, address, _), opened(address) as page:
        page.keyboard.press("/")
        page.keyboard.type("pet 11")
        press(page, "Enter")
        assert row(page) == 11
        assert "search=pet+11" in page.url
        page.reload()
        page.wait_for_selector("#card article")
        assert row(page) == 11
        press(page, "k")
        assert "Nothing left here" in page.inner_text("#card")
        with page.expect_response("**/card?*"):
            page.click("#card [data-do=clear]")
        page.wait_for_selector("#card article")
        with page.expect_response("**/card?*"):
            page.select_option("[name=suggested]", "bird")
        page.wait_for_selector("#card:not([aria-busy])")
        assert row(page) == 3


def test_many_classes_are_chosen_by_typing_a_part(tmp_path, opened):
    names = [f"kind {i}" for i in range(400)]
    folder = text_run(tmp_path, ["a", "b"], classes=names, given="kind 1", suggested="kind 9")
    with served(folder) as (desk, address, _), opened(address) as page:
        page.keyboard.press("r")
        page.wait_for_selector("#matches li")
        assert "kind 9" in page.inner_text("#matches [aria-selected=true]")  # the suggestion
        page.keyboard.type("D 37")
        assert page.locator("#matches li").all_inner_texts()[:2] == ["kind 37", "kind 370"]
        page.keyboard.press("ArrowDown")
        active = page.get_attribute("#typed", "aria-activedescendant")
        assert page.inner_text(f"#{active}") == "kind 370"
        press(page, "Enter")
        assert decided(desk) == {0: ("relabel", "kind 370")}
        page.keyboard.press("r")
        page.keyboard.type("no such")
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        assert row(page) == 1


def test_a_number_is_typed_for_a_regression(tmp_path, opened):
    with (
        served(regression_run(tmp_path)) as (desk, address, _),
        opened(address, complaints=["422"]) as page,
    ):
        page.keyboard.press("r")
        assert page.input_value("#number") == "0.25"  # the suggestion, to be changed
        page.keyboard.type("-12.5")
        press(page, "Enter")
        assert decided(desk) == {0: ("relabel", "-12.5")}
        page.keyboard.press("r")
        page.keyboard.type("three")
        press(page, "Enter")
        assert "not a number" in page.inner_text("#trouble")
        assert row(page) == 1


def test_two_tabs_see_what_the_other_did(tmp_path, opened):
    with (
        served(table_run(tmp_path)) as (desk, address, _),
        opened(address) as one,
        opened(address) as other,
    ):
        press(one, "k")
        with other.expect_response("**/progress?*"):
            other.evaluate("window.dispatchEvent(new Event('focus'))")
        other.wait_for_selector("#state:not([hidden])")
        assert other.inner_text("#state") == "Kept"
        assert "1 of 6 decided" in other.inner_text("#progress")
        press(other, "d", "k")  # the last decision wins
        assert decided(desk) == {1: ("drop", None), 3: ("keep", None)}
        press(one, "u")  # what this tab decided last, though the other was later
        assert decided(desk) == {1: ("keep", None), 3: ("keep", None)}


def test_focus_stays_on_the_button_in_use(tmp_path, opened):
    with served(table_run(tmp_path)) as (desk, address, _), opened(address) as page:
        page.focus("[data-do=skip]")
        press(page, "Enter", "Enter")
        assert page.evaluate("document.activeElement.dataset.do") == "skip"
        assert list(decided(desk)) == [1, 3]


def test_a_server_that_ended_is_said(tmp_path, opened):
    with (
        served(table_run(tmp_path)) as (_, address, stop),
        opened(address, complaints=["ERR_CONNECTION"]) as page,
    ):
        stop()
        page.keyboard.press("k")
        page.wait_for_selector("#trouble:not([hidden])")
        assert "does not answer" in page.inner_text("#trouble")
        assert row(page) == 1


def test_the_next_image_is_fetched_ahead_and_once(tmp_path, opened):
    with served(image_run(tmp_path)) as (_, address, _), opened(address) as page:
        page.wait_for_load_state("networkidle")
        asked = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        press(page, "k")
        page.wait_for_load_state("networkidle")
        assert row(page) == 3
        assert page.evaluate("document.querySelector('.example img').complete")
        assert [part for part in asked if part.isdecimal()] == ["5"]


EVIL = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


def test_hostile_data_stay_text(tmp_path, opened):
    names = [EVIL, *(f"{EVIL}{i}" for i in range(11))]
    rows = [suspect(i, EVIL, names[1], json.dumps({EVIL: EVIL}), why=EVIL) for i in range(3)]
    folder = write_run(tmp_path / "run", rows, data=tmp_path, rows=3, classes=names)
    with served(folder) as (_, address, _), opened(address) as page:
        press(page, "k", "ArrowLeft")
        page.keyboard.press("r")
        page.wait_for_selector("#matches li")
        page.keyboard.type("onerror")
        press(page, "Enter")
        assert page.title() != "run"
        assert page.locator("#card img, #card script, dialog img").count() == 0
        assert EVIL in page.inner_text("#card td")


def contrast(page, selector):
    """The ratio of WCAG between an element's colour and the ground it stands on."""
    return page.eval_on_selector(selector, """element => {
        const parts = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
        const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        let ground = element;
        while (parts(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
        const [a, b] = [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor]
            .map((text) => light(parts(text)) + 0.05);
        return Math.max(a, b) / Math.min(a, b);
    }""")  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_readable_and_within_the_screen(tmp_path, opened, scheme, size):
    with served(image_run(tmp_path)) as (desk, address, _):
        options = {"viewport": size, "color_scheme": scheme, "reduced_motion": "reduce"}
        with opened(address, **options) as page:
            for selector in ("h1", "#progress p", ".given", ".suggested", ".why", ".place",
                             ".actions .main", "[data-do=keep]", "[data-do=following]"):  # fmt: skip
                assert contrast(page, selector) >= 4.5, selector
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(250, 249, 246)") == (scheme == "light")
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            for button in page.locator(".actions button").all():
                box = button.bounding_box()
                assert box["height"] >= 44
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= size["width"]
                assert box["y"] + box["height"] <= size["height"]
            assert page.evaluate("document.querySelector('.example img').naturalWidth") == 32
            assert (
                page.evaluate("getComputedStyle(document.querySelector('main')).transitionDuration")
                == "0s"
            )
            with page.expect_response("**/decide"):
                page.click("[data-do=keep]")
        assert decided(desk) == {1: ("keep", None)}


def test_long_labels_and_words_do_not_widen_a_narrow_page(tmp_path, opened):
    long = "w" * 400
    rows = [suspect(0, long, long + "x", json.dumps({long: long, "b": "1"}))]
    folder = write_run(tmp_path / "run", rows, data=tmp_path, rows=1, classes=[long, long + "x"])
    with served(folder) as (_, address, _), opened(address, viewport=NARROW) as page:
        assert not page.is_visible("#filter")
        page.set_viewport_size(WIDE)
        page.wait_for_selector("#filter")
        page.set_viewport_size(NARROW)
        page.click("#filters summary")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.keyboard.press("r")
        assert page.evaluate("document.querySelector('#relabel').scrollWidth") <= 390


def test_the_token_leaves_the_address_and_strangers_are_told_what_to_do(tmp_path, browser):
    with served(table_run(tmp_path)) as (_, address, _):
        page = browser.new_page()
        page.goto(address.split("?")[0])
        assert "This page needs its key" in page.inner_text("body")
        page.close()


def test_a_group_is_decided_and_undone_by_keys_and_buttons(tmp_path, opened):
    with served(sure_run(tmp_path)) as (desk, address, _), opened(address) as page:
        assert row(page) == 11  # the surest to be wrong
        assert "likely wrong" in page.inner_text(".verdict")
        assert "a cross text" in page.inner_text(".against")
        page.keyboard.press("g")
        page.wait_for_selector("#groups[open]")
        button = page.get_by_role(
            "button", name="Relabel all 4 rows given calm and suggested cross"
        )
        with page.expect_response(lambda answer: "/groups" in answer.url):
            button.first.click()
        assert decided(desk) == dict.fromkeys((5, 7, 9, 11), ("relabel", "cross"))
        only = "#listed tbody tr:only-child"  # what is left of the list
        page.wait_for_selector(only, state="attached")
        page.wait_for_selector("#card:not([aria-busy])")
        page.keyboard.press("Escape")
        press(page, "k")
        press(page, "u", "u")  # the row, then the whole group
        assert decided(desk) == {}
