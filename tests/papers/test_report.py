"""The report: what it tells, and that no name in it can break the page or the picture."""

import html.parser
import json
import re

import pytest
import rfc8785

from nl_cutover.output.page import as_html
from nl_cutover.output.paper_views import as_paste
from nl_cutover.output.picture import as_mermaid
from tests.conftest import Operator
from tests.node import node_modules
from tests.papers.stories import HOSTILE, crowded, hostile, told


class Reader(html.parser.HTMLParser):
    """Tags, attributes and texts of a page, as a browser takes them apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.texts, self._open = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, text):
        self.texts.append(text)


def blocks(markdown: str) -> list[str]:
    return [part for part in re.split(r"(?=^```mermaid$)", markdown, flags=re.MULTILINE) if part.strip()]


def test_it_tells_the_run(whole_road):
    done = whole_road("report", json=False)
    assert done.code == 0, done.err
    summary, picture = blocks(done.out)
    for words in ("LANDED", "6 of 6 confirmed", "9 of 9 admitted", "cut: landed", "get a new id", "receipt"):
        assert words in summary
    assert summary.count("\n- next: ") == 2
    assert '["checkout codex"]' in picture
    assert '["checkout clio"]' in picture
    assert picture.count("--> s0") == 2
    assert picture.count("--> plane") == 1
    page = whole_road("report", "--format", "html", json=False).out
    texts = " ".join(Reader(page).texts)
    for words in (
        "landed",
        "archives confirmed",
        "actions admitted",
        "lose their time of archiving",
        "clio",
        "true: exit 0",
    ):
        assert words in texts
    story = whole_road("report", "--format", "json", json=False).json
    for entry in story["id_map"]:
        assert entry["old"] in texts
        assert entry["new"] in texts


def test_a_run_is_named_by_its_id_or_its_folder(whole_road, tmp_path):
    run = whole_road("status").json["run"]
    assert whole_road("report", run, "--format", "json", json=False).json["run"] == run
    elsewhere = Operator(tmp_path, None, None)
    elsewhere.custody = tmp_path / "nothing"
    assert elsewhere("report", whole_road.custody, "--format", "json", json=False).json["run"] == run
    done = whole_road("report", "20200101T000000Z-aaaaaa", "--format", "json", json=False)
    assert done.code == 2
    assert run in done.err
    assert elsewhere("report", "--format", "json", json=False).code == 4


def test_one_receipt_is_enough_for_a_report(whole_road, receipts, tmp_path):
    """Whoever has one file, and no custody directory, is told what that file says."""
    alone = Operator(tmp_path, None, None)
    alone.custody = tmp_path / "nothing"
    paper = receipts[2]
    story = alone("report", paper, "--format", "json", json=False).json
    assert (story["moved"]["archives"]["confirmed"], len(story["timeline"])) == (6, 1)
    assert alone("report", receipts[0].parent, "--format", "json", json=False).json["verdict"] == "landed"
    for way in (paper, f"{tmp_path}/./receipts//{paper.name}"):
        assert alone("receipt", "show", way).json["number"] == 3
    assert whole_road("receipt", "show", "0003").json["number"] == 3
    told_next = alone("report", f"receipts/{paper.name}", json=False).out
    assert f"report receipts/{paper.name} --format html" in " ".join(told_next.split())
    (tmp_path / "receipts" / "receipts").mkdir()
    assert alone("report", receipts[0].parent, "--format", "json", json=False).code == 4, "it is a custody of its own"
    (tmp_path / "receipts" / "receipts").rmdir()
    asked = alone("explain", paper)
    assert asked.code == 2
    assert "nl-cutover report" in asked.json["next_steps"][0]
    body = json.loads(paper.read_text())
    body["id_map"][0]["marks_made"] += 1
    paper.write_bytes(rfc8785.dumps(body))
    for words in (("report", paper, "--format", "json"), ("receipt", "show", paper)):
        done = alone(*words, json=False)
        assert done.code == 8, done.err
        assert "marks" in done.err


def test_what_was_said_beforehand_and_what_is_not_proved_is_told(receipts):
    body = json.loads(receipts[2].read_text())
    body["plan"]["notes"] = ["9 of 9 actions are older than 14 days: MC's retention will delete them"]
    body["container"] = {"not_proved": ["durability: no engine on this machine"]}
    receipts[2].write_bytes(rfc8785.dumps(body))
    story = told(receipts[:3])
    for text in (as_paste(story), as_html(story)):
        assert "MC's retention will delete them" in text.replace("&#x27;", "'")
        assert "not proved: durability: no engine" in text


def test_its_exit_code_is_the_runs(receipts):
    """Neither a plan nor a settling proves anything, and a landing that nobody saw end is not proved."""
    assert told(receipts[3:4]).exit_code == 7, "a settling after a run that left no receipt"
    codes = [told(receipts[:n]).exit_code for n in range(1, 9)]
    assert codes == [3, 3, 0, 0, 0, 7, 0, 0]
    assert [told(receipts[:n]).verdict for n in (2, 4, 6, 8)] == ["refused", "proved", "landing", "landed"]


def test_the_page_needs_nothing_else(receipts):
    page = Reader(as_html(told(receipts)))
    assert "script" not in page.tags
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert not [a for a in page.attributes if a[1] in ("src", "href", "style") or a[1].startswith("on")]
    assert "url(" not in re.sub(r"url\(#tip\)", "", as_html(told(receipts)))


def test_no_name_can_break_the_page(receipts):
    plain, page = Reader(as_html(told(receipts))), Reader(as_html(hostile(told(receipts))))
    assert set(page.tags) <= set(plain.tags)
    assert {(tag, name) for tag, name, _ in page.attributes} <= {(tag, name) for tag, name, _ in plain.attributes}
    texts = "\n".join(page.texts)
    for name in HOSTILE[:7]:
        assert texts.count(name) >= 5, "it is there, as text"
    assert "\x1b" not in texts
    assert "\u202e" not in texts


def test_control_an_unescaped_name_would_be_seen(receipts):
    page = as_html(hostile(told(receipts)))
    broken = page.replace("&lt;script&gt;", "<script>", 1)
    assert broken != page
    assert "script" in Reader(broken).tags


@pytest.mark.parametrize("change", [lambda s: s, hostile, crowded])
def test_both_blocks_fit_a_channel(receipts, change):
    for block in blocks(as_paste(change(told(receipts)))):
        assert len(block) < 2000
        assert max(map(len, block.splitlines())) <= 80
        assert "\x1b" not in block
        assert block.count("```") in (0, 2)


@pytest.mark.chromium
@pytest.mark.node
def test_mermaid_draws_the_picture_and_shows_the_names_as_they_are(receipts, tmp_path):
    """By mermaid itself, in a browser: every label is the text that was meant, and nothing else came to be."""
    import json

    from tests.browser import chromium

    script = node_modules("mermaid@11") / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
    texts = [
        as_mermaid(s).removeprefix("```mermaid\n").removesuffix("```\n")
        for s in (told(receipts), hostile(told(receipts)))
    ]
    page = tmp_path / "mermaid.html"
    page.write_text(
        f'<!doctype html><meta charset=utf-8><body><script src="{script.as_uri()}"></script><script>'
        f"const texts = {json.dumps(texts).replace('<', chr(92) + 'u003c')};"
        "window.drawn = (async () => { mermaid.initialize({startOnLoad: false}); const all = [];"
        "for (const [i, t] of texts.entries()) { const d = document.createElement('div');"
        "d.innerHTML = (await mermaid.render('g' + i, t)).svg; document.body.append(d);"
        "all.push([...d.querySelectorAll('.node')].map(n => n.textContent.trim())); } return all; })();</script>"
    )
    with chromium(tmp_path / "profile") as browser:
        plain, odd = browser.open(page).evaluate("window.drawn")
    assert sorted(plain)[1:4] == ["checkout clio", "checkout codex", f"store {told(receipts).measured.stores[0].id}"]
    assert "checkout <scr…</script>" in odd
    assert "checkout 1. list" in odd
    assert "checkout #quot;#35;" in odd
