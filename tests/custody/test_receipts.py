"""Receipts: canonical, chained, and found out when one is changed, lost or added."""

import hashlib
import json
import tracemalloc

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.custody import directory, receipts
from nl_cutover.custody.reading import Mapped
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


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBER = st.none() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-(2**53) + 1, 2**53 - 1)
COUNT = st.integers(0, 2**31)
ROWS = st.lists(
    st.builds(
        Mapped,
        old=TEXT,
        custodian=st.none() | TEXT,
        marks_wanted=COUNT,
        marks_made=COUNT,
        host=st.dictionaries(TEXT, NUMBER, max_size=3),
    ),
    max_size=4,
)


def scanned(path, chunk):
    """What a scan in chunks of this many characters finds, the rows of the id map put back where they were."""
    rows = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receipts, "_CHUNK", chunk)
        try:
            sha256, body = receipts.scan(path, rows.append)
        except CustodyError:
            return None
    return sha256, body | ({"id_map": rows} if "id_map" in body else {})


def whole(path):
    try:
        body, parsed = receipts.read(path)
    except CustodyError:
        return None
    return hashlib.sha256(body).hexdigest(), parsed


@given(st.dictionaries(TEXT, TEXT, max_size=3), ROWS, st.integers(1, 80))
def test_rows_written_one_by_one_are_the_bytes_of_the_whole(tmp_path_factory, body, rows, chunk):
    custody = tmp_path_factory.mktemp("custody")
    directory.create(custody)
    first = receipts.write(custody, "migrate", body, lambda: iter(rows))
    complete = body | {"number": 1, "kind": "migrate", "previous": None, "id_map": msgspec.to_builtins(rows)}
    assert first.path.read_bytes() == rfc8785.dumps(complete)
    assert scanned(first.path, chunk) == whole(first.path) == (first.sha256, complete)
    assert receipts.write(custody, "verify", {}).body["previous"] == first.sha256


@given(ROWS, st.data())
def test_a_scan_and_a_whole_reading_refuse_the_same(tmp_path_factory, rows, data):
    path = tmp_path_factory.mktemp("receipt") / "0001-migrate.json"
    body = rfc8785.dumps({"at": "now", "id_map": msgspec.to_builtins(rows), "kind": "migrate"})
    at = data.draw(st.integers(0, len(body)))
    put = data.draw(
        st.sampled_from([b"", b" ", b",", b"[", b"]", b"{}", b"}", b'"', b"\\", b"0", b"NaN", b"\xff", b"\r\n"])
    )
    path.write_bytes(body[:at] + put + body[at + data.draw(st.integers(0, 3)) :])
    assert scanned(path, data.draw(st.integers(1, 80))) == whole(path)


@pytest.mark.parametrize(
    "rows", ['{"a":1},', '{"a":1}{"a":1}', '{"a":1.0}', '{"b":1,"a":1}', '{"a":1', "1" * 5_000, ","]
)
def test_rows_that_are_not_canonical_are_no_receipt(tmp_path, rows):
    path = tmp_path / "0001-migrate.json"
    path.write_text(f'{{"id_map":[{rows}],"kind":"migrate"}}')
    assert scanned(path, 16) is whole(path) is None


def test_a_long_id_map_never_stands_in_memory(tmp_path):
    directory.create(tmp_path / "custody")
    row = Mapped("old", "new", "d" * 64, "c" * 64, "", None, True, 0, 0, {}, True, ["store"])
    tracemalloc.start()
    try:
        link = receipts.write(tmp_path / "custody", "migrate", {}, lambda: (row for _ in range(5_000)))
        assert receipts.chain(tmp_path / "custody") == [msgspec.structs.replace(link, body=link.body | {"id_map": []})]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < link.path.stat().st_size / 2 > 500_000


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
