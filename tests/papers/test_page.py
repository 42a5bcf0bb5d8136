"""The page as a person sees it: in Chromium, narrow and wide, light and dark, on paper."""

import os
from pathlib import Path

import pytest

from nl_cutover.output.page import as_html
from tests.browser import CONTRASTS, OVERFLOWS, chromium
from tests.papers.stories import crowded, hostile, told

pytestmark = pytest.mark.chromium
LEGIBLE = 4.5  # contrast of small text, WCAG 2.2 AA


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def show(browser, receipts, tmp_path):
    def write(change=lambda story: story):
        path = tmp_path / "report.html"
        path.write_text(as_html(change(told(receipts))), "utf-8")
        return browser.open(path)

    return write


def keep(page, name: str) -> None:
    """NL_CUTOVER_SHOTS=DIR keeps the screenshots, to be looked at."""
    if folder := os.environ.get("NL_CUTOVER_SHOTS"):
        page.screenshot(Path(folder) / f"{name}.png")


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("change", [None, hostile, crowded], ids=["plain", "hostile", "crowded"])
def test_nothing_overflows_and_all_is_legible(show, width, scheme, change):
    page = show(*filter(None, [change]))
    page.window(width)
    page.media(scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    keep(page, f"{width}-{scheme}-{change.__name__ if change else 'plain'}")
    assert page.evaluate(OVERFLOWS) == []
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 60
    assert [(text, ratio) for text, ratio in contrasts if ratio < LEGIBLE] == []
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height))"
    )
    assert smallest >= 11, "labels of the picture, in CSS pixels"
    assert page.evaluate("document.title").startswith("nl-cutover report")
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert len(page.requests) == 1


def test_dark_is_dark_and_light_is_light(show):
    page = show()
    colours = []
    for scheme in ("light", "dark"):
        page.media(scheme)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(251, 250, 247)", "rgb(21, 24, 28)"]


def test_on_paper_everything_is_there_and_black_on_white(show):
    page = show()
    page.window(794)
    page.media("dark", "print")
    keep(page, "print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(OVERFLOWS) == []
    height = "document.querySelector('section:last-child table').getBoundingClientRect().height"
    assert page.evaluate(height) > 100, "the id map is folded away on a screen, not on paper"
    page.media("light", "screen")
    assert page.evaluate("document.querySelector('section:last-child details').open") is False


def test_control_the_checks_can_fail(show):
    page = show()
    page.window(400)
    page.evaluate(
        "document.querySelector('dd').style.whiteSpace = 'nowrap'; document.querySelector('dd').textContent = 'x'.repeat(200)"
    )
    page.evaluate("document.querySelector('h2').style.color = '#888'; document.body.style.background = '#999'")
    page.evaluate("document.querySelector('svg g text').textContent = 'm'.repeat(40)")
    overflowing = page.evaluate(OVERFLOWS)
    assert any(o.startswith("page") for o in overflowing)
    assert any(o.startswith("svg m") for o in overflowing)
    assert any(ratio < LEGIBLE for _, ratio in page.evaluate(CONTRASTS))
