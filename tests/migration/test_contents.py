"""Which contents were met under which key."""

from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.migration.contents import Contents

NAMES = st.text(st.characters(codec="utf-8"), max_size=2)


@given(st.lists(st.tuples(NAMES, st.sampled_from("abc"))))
def test_contents_come_back_in_the_order_in_which_they_were_met(pairs):
    known = {}
    with Contents() as contents:
        for key, content in pairs:
            before = known.setdefault(key, [])
            assert contents.meet(key, content) == before
            if content not in before:
                before.append(content)
