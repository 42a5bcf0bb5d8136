"""Token files, and who a bearer is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nl_cutover.errors import CredentialsError
from nl_cutover.memory_core.auth import Denied, Identity, Tokens, read_tokens


def tokens(folder: Path, text: str) -> Tokens:
    path = folder / "tokens"
    path.write_text(text, encoding="utf-8")
    return read_tokens(path)


@pytest.mark.parametrize("text", ["secret", "# note\n\n  secret  \n", "c2VjcmV0==\n"])
def test_one_bare_token_is_local_bearer_mode(tmp_path: Path, text: str) -> None:
    read = tokens(tmp_path, text)
    bare = text.strip().splitlines()[-1].strip()
    assert read.local_bearer
    assert read.identify(f"Bearer {bare}") == Identity()
    assert read.identify(f"bearer {bare} trailing") == Identity()


def test_named_tokens_map_to_identities(tmp_path: Path) -> None:
    read = tokens(tmp_path, "vega=one\n# comment\nada.x=a=b==\nvega=two\n")
    assert not read.local_bearer
    assert read.identify("Bearer a=b==") == Identity("ada.x", "token-file")
    assert read.identify("Bearer one") == read.identify("Bearer two") == Identity("vega", "token-file")


@pytest.mark.parametrize(
    ("header", "description"),
    [
        (None, "Missing Authorization header"),
        ("", "Invalid Authorization header format, expected 'Bearer TOKEN'"),
        ("Bearer", "Invalid Authorization header format, expected 'Bearer TOKEN'"),
        ("Bearer ", "Invalid Authorization header format, expected 'Bearer TOKEN'"),
        ("Basic secret", "Invalid Authorization header format, expected 'Bearer TOKEN'"),
        ("Bearer secreT", "Invalid local bearer token"),
        ("Bearer \ud800", "Invalid local bearer token"),
    ],
)
def test_a_denial_says_why(tmp_path: Path, header: str | None, description: str) -> None:
    assert tokens(tmp_path, "secret").identify(header) == Denied(description)


@pytest.mark.parametrize("text", ["", "# only\n", "xx1\nxx2\n", "vega=xx1\nxx2\n", "vega=xx1\nada=xx1\n"])
def test_a_token_file_that_means_nothing_is_refused_without_showing_tokens(tmp_path: Path, text: str) -> None:
    with pytest.raises(CredentialsError) as refusal:
        tokens(tmp_path, text)
    assert "xx" not in refusal.value.message


def test_a_missing_token_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="cannot be read"):
        read_tokens(tmp_path / "absent")
