"""The event stream, as properties: chunks cut anywhere, any line end, U+2028 inside."""

from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.ingress.sse import events

payload = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=20)


def cut(body: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(body), *(min(i, len(body)) for i in at)})
    return [body[a:b] for a, b in zip(edges, edges[1:], strict=False)]


@given(
    st.lists(st.lists(payload, min_size=1, max_size=3), max_size=4),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 400), max_size=8),
    st.booleans(),
)
def test_events_come_back_whatever_the_chunks_and_line_ends(messages, end, at, primed):
    body = b""
    if primed:
        body += b"id: p0" + end + b"data:" + end + end + b": comment" + end + end
    for lines in messages:
        body += b"event: message" + end
        body += b"".join(b"data: " + line.encode() + end for line in lines) + end
    assert list(events(cut(body, at))) == ["\n".join(lines).encode() for lines in messages]


def test_line_separators_of_unicode_do_not_end_a_line():
    body = 'data: {"a":"\u2028\u2029\x85"}\n\n'.encode()
    assert list(events([body])) == ['{"a":"\u2028\u2029\x85"}'.encode()]


def test_an_event_that_the_stream_ends_within_is_no_event():
    assert list(events([b"data: {}\n"])) == []
    assert list(events([b"data: {}"])) == []


def test_other_fields_are_not_data():
    assert list(events([b"database: x\ndata\nretry: 5\ndata:1\n\n"])) == [b"1"]
