"""Receipts: canonical, chained, and found out when one is changed, lost or added."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.custody import directory, receipts
from nl_cutover.errors import CustodyError


@pytest.fixture
def custody(tmp_path):
    directory.create(tmp_path / "custody")
    for number in range(3):
        receipts.write(tmp_path / "custody", "migrate", {"outcome": {"n": number}})
    return tmp_path / "custody"


def test_each_names_the_one_before_it(custody):
    links = receipts.chain(custody)
    assert [link.number for link in links] == [1, 2, 3]
    bodies = [receipts.read(link.path)[1] for link in links]
    assert [b["previous"] for b in bodies] == [None, links[0].sha256, links[1].sha256]
    assert all(link.path.stat().st_mode & 0o077 == 0 for link in links)


@pytest.mark.parametrize("which", [0, 1])
def test_a_changed_receipt_is_found_out(custody, which):
    link = receipts.chain(custody)[which]
    link.path.write_text(link.path.read_text().replace('"n":', '"m":'))
    with pytest.raises(CustodyError, match="chain is broken"):
        receipts.chain(custody)


def test_a_lost_or_foreign_receipt_is_found_out(custody):
    links = receipts.chain(custody)
    links[1].path.rename(custody / "elsewhere.json")
    with pytest.raises(CustodyError, match="chain is broken"):
        receipts.chain(custody)
    (custody / "elsewhere.json").rename(links[1].path)
    (links[2].path.parent / "0004-cut.json").write_bytes(links[2].path.read_bytes())
    with pytest.raises(CustodyError, match="chain is broken"):
        receipts.chain(custody)


@pytest.mark.parametrize(
    "tear", [lambda b: b[:-5], lambda b: b"", lambda b: b + b" ", lambda b: b.replace(b":", b": ")]
)
def test_a_torn_or_reprinted_receipt_is_no_receipt(custody, tear):
    path = receipts.chain(custody)[2].path
    path.write_bytes(tear(path.read_bytes()))
    with pytest.raises(CustodyError, match="canonical"):
        receipts.chain(custody)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(codec="utf-8")),
        max_size=5,
    )
)
def test_what_is_written_is_read(tmp_path_factory, body):
    custody = tmp_path_factory.mktemp("custody")
    directory.create(custody)
    link = receipts.write(custody, "verify", {"outcome": body})
    assert receipts.read(link.path)[1]["outcome"] == body
    assert json.loads(link.path.read_text())["outcome"] == body


def entry(old, new, content="c1", confirmed=True):
    return {"old": old, "new": new, "content_digest": content, "confirmed": confirmed}


def test_the_newest_receipt_has_the_last_word_on_an_archive():
    bodies = [{"id_map": [entry("a", "1", confirmed=False), entry("b", "2")]}, {}, {"id_map": [entry("a", "3")]}]
    assert receipts.moved(bodies) == {"a": [entry("a", "3")], "b": [entry("b", "2")]}
    assert receipts.aliases(bodies) == {"a": "3", "b": "2"}


def test_an_id_that_two_archives_had_or_that_was_not_read_back_is_no_alias():
    bodies = [{"id_map": [entry("twice", "1"), entry("twice", "2", "c2"), entry("unread", "3", confirmed=False)]}]
    assert len(receipts.moved(bodies)["twice"]) == 2
    assert receipts.aliases(bodies) == {}
