"""What an earlier call confirmed is read again: no answer is not a difference, a difference is one."""

import pytest

from nl_cutover.testing import embedded_memory_core
from nl_cutover.verdicts import Unknown
from tests.migration.test_settle import Job


@pytest.mark.parametrize(("answer", "code"), [(Unknown("no answer before the deadline"), 7), (None, 8)])
def test_no_answer_is_not_a_difference(tmp_path, monkeypatch, answer, code):
    with embedded_memory_core(tmp_path / "core", tokens="t") as core:
        job = Job(tmp_path / "job", core, archives=3, actions=0)
        assert job.migrate().exit_code == 0
        from nl_cutover.ingress.operations import Operations

        real, asked = Operations.get, []

        def get(self, archive_id):
            asked.append(archive_id)
            told = real(self, archive_id)
            if len(asked) > 1:
                return told
            if answer is not None:
                return answer
            return type(told)(told.result | {"appSessionId": "another"}, told.reply)

        monkeypatch.setattr(Operations, "get", get)
        again = job.migrate()
        assert (again.exit_code, again.archives.confirmed) == (code, 3), again.stopped
        assert ("could not be read" in again.stopped) is (code == 7)
        assert ("give the same command again" if code == 7 else "the identity that saved") in again.next_steps[0]
