"""A migration against a Memory Core of its own."""

import pytest

from tests.migration.test_settle import Job


@pytest.fixture
def own(tmp_path, serve):
    with serve(tmp_path / "core", tokens={"neo-operator": "t"}) as core:
        yield core


@pytest.fixture
def job(tmp_path, own):
    return Job(tmp_path, own)


@pytest.fixture
def told(tmp_path, own):
    """A job with telemetry."""
    return Job(tmp_path, own, actions=30)
