"""The runtime instrument: what it refuses, and what it does not take for guarded."""

from __future__ import annotations

import json
import os
import select
import shutil
import sqlite3
import subprocess
import sys
import threading

import pytest

from nl_cutover.denial.evidence import Evidence
from nl_cutover.denial.runtime import conclude, run_denied
from nl_cutover.resources import resource

from ..node import node
from .conftest import check

pytestmark = pytest.mark.node
D = "better-sqlite3"


@pytest.fixture
def run(tmp_path):
    node()

    def go(code: str, *flags: str, suffix: str = ".cjs", **environ: str):
        script = tmp_path / f"script{suffix}"
        script.write_text(code)
        return check("run", "--", "node", *flags, script, cwd=tmp_path, **environ)

    return go


def test_a_command_that_loads_nothing_is_clear(run):
    code, report = run("console.log('hello')")
    assert (code, report["verdict"], report["exit_code"], report["command_exit"]) == (0, "clear", 0, 0)
    assert report["armed"][0]["thread"] == 0
    assert report["refused"] == report["unguarded"] == []
    assert report["control"] == "every attempt refused on 1 Node"
    assert "hello" in report["stderr"]


@pytest.mark.parametrize(
    ("code", "suffix"),
    [
        (f"try {{ require('{D}') }} catch {{}}", ".cjs"),
        (f"import('{D}').catch(() => {{}})", ".cjs"),
        ("const {default: x} = await import(['better', 'sqlite3'].join('-')).catch(() => ({}))", ".mjs"),
        ("import('node:sqlite').catch(() => {})", ".mjs"),
        ("try { require('node:module')._load('sqlite3') } catch {}", ".cjs"),
        ("try { require('/x/node_modules/better-sqlite3/lib') } catch {}", ".cjs"),
        ("try { require('./GraphService.mjs') } catch {}", ".cjs"),
        ("try { process.dlopen(module, '/x/node_sqlite3.node') } catch {}", ".cjs"),
        ("try { process.binding('sqlite') } catch {}", ".cjs"),
        (
            f"const {{Worker}} = require('worker_threads'); new Worker(`require('{D}')`, "
            "{eval: true, env: {}, execArgv: []}).on('error', () => {})",
            ".cjs",
        ),
        (f"const M = require('module'); const old = M._load; M._load = (...a) => old(...a); try {{ require('{D}') }} catch {{}}", ".cjs"),
        *(
            (
                f"delete process.env.NODE_OPTIONS; const c = require('child_process'); const x = process.execPath; "
                f"const e = ['-e', \"try {{ require('{D}') }} catch {{}}\"]; {call}",
                ".cjs",
            )
            for call in (
                "c.spawn(x, e, {env: {}})",
                "c.spawnSync(x, e, {env: {}})",
                "c.execFile(x, e, {env: {PATH: process.env.PATH}})",
                "c.execFileSync(x, e, {env: {}})",
                "c.execFileSync(x, e)",
                f"c.execSync(`node -e \"try {{ require('{D}') }} catch {{}}\"`, {{env: {{PATH: process.env.PATH}}}})",
                f"c.exec(`sh -c 'node -r {D} x'`, {{env: {{PATH: process.env.PATH}}}}, () => {{}})",
            )
        ),
    ],
)  # fmt: skip
def test_a_refusal_counts_even_if_it_is_swallowed(run, code, suffix):
    done, report = run(code, suffix=suffix)
    assert done == 3, report
    assert report["verdict"] == "findings"
    assert report["refused"], report


def test_a_link_is_followed_as_without_the_guard(run, tmp_path):
    (tmp_path / "real.cjs").write_text("")
    (tmp_path / "link.cjs").symlink_to(tmp_path / "real.cjs")
    _, report = run("console.log(require.resolve('./link.cjs'))")
    assert "real.cjs" in report["stderr"]


def test_a_driver_before_the_guard_is_found(run, tmp_path):
    (tmp_path / "child.cjs").write_text("")
    installed = tmp_path / "node_modules" / D
    installed.mkdir(parents=True)
    (installed / "index.js").write_text("console.log('loaded')")
    line = f"'NODE_OPTIONS=\"--require {D} $NODE_OPTIONS\" '"
    for first in (
        f"process.env.NODE_OPTIONS = '--require {D} ' + process.env.NODE_OPTIONS; require('child_process').fork('./child.cjs')",
        f"new (require('worker_threads').Worker)('./child.cjs', {{execArgv: ['--require', '{D}']}}).on('error', () => {{}})",
        f"require('child_process').execSync({line} + 'node ./child.cjs || true')",
        f"require('child_process').execSync({line} + process.execPath + ' ./child.cjs || true')",
    ):
        code, report = run(first)
        assert (code, report["verdict"]) == (3, "findings"), first


@pytest.mark.parametrize(
    "how", ["module.load(f)", "M._extensions['.js'](new M('m'), f)", "new M('m')._compile('1', f)"]
)
def test_a_driver_of_one_file_is_refused_where_nothing_is_resolved(run, tmp_path, how):
    file = tmp_path / "node_modules" / "sql.js" / "index.js"
    file.parent.mkdir(parents=True)
    file.write_text("console.log('loaded')")
    code, report = run(f"const M = require('module'), f = {json.dumps(str(file))}; module.loaded = false; {how}")
    assert (code, len(report["refused"]), "loaded\n" in report["stderr"]) == (3, 1, False)


def test_a_hook_that_transpiles_sees_each_file_once(run, tmp_path):
    """As ts-node does it: `_compile` of one module is replaced, for its own kind of file."""
    for n in range(40):
        (tmp_path / f"m{n}.ts").write_text("")
        (tmp_path / f"m{n}.js").write_text("")
    code, report = run(
        "const seen = [], old = require.extensions['.js']; require.extensions['.ts'] = (m, file) => { const _compile = m._compile; "
        "m._compile = function (code, name) { seen.push(name); return _compile.call(this, code, name) }; return old(m, file) }; "
        "for (let n = 0; n < 40; n++) require(`./m${n}.ts`), require(`./m${n}.js`); "
        "console.log('transpiled', seen.length, new Set(seen).size, seen.filter(f => f.endsWith('.js')).length)"
    )
    assert (code, "transpiled 40 40 0\n" in report["stderr"]) == (0, True), report["stderr"][-2000:]


@pytest.mark.parametrize("back", ["", "m._compile = compile; "])
def test_a_chain_of_hooks_over_many_modules_ends(run, tmp_path, back):
    """Each hook wraps the loader before it; pirates also puts `_compile` back before it calls on."""
    for n in range(500):
        (tmp_path / f"m{n}.js").write_text("")
    code, report = run(
        "let count = 0; for (let hook = 0; hook < 20; hook++) { const old = require.extensions['.js']; "
        "require.extensions['.js'] = (m, file) => { const compile = m._compile; m._compile = function (code, name) { "
        f"{back}count++; return compile.call(m, code, name) }}; old(m, file) }} }} "
        "for (let n = 0; n < 500; n++) require(`./m${n}.js`); console.log('hooked', count)"
    )
    assert (code, "hooked 10000\n" in report["stderr"]) == (0, True), report["stderr"][-2000:]


def test_a_loader_that_is_patched_and_put_back_many_times_grows_no_stack(run):
    code, report = run(
        "const M = require('module'); for (let n = 0; n < 20000; n++) { const old = M._load; M._load = (...a) => old(...a); M._load = old } "
        f"require('fs'); console.log('went on'); {LOAD}"
    )
    assert (code, len(report["refused"]), "went on" in report["stderr"]) == (3, 1, True), report["stderr"][-2000:]


@pytest.mark.parametrize("first", ["M.prototype._compile = C", "m._compile = C"])
def test_a_compiler_put_in_place_is_behind_the_guard(run, tmp_path, first):
    file = tmp_path / "node_modules" / "sql.js" / "index.js"
    file.parent.mkdir(parents=True)
    file.write_text("console.log('loaded')")
    code, report = run(
        "const M = require('module'), C = code => require('vm').runInThisContext(code), m = new M('m'); "
        f"{first}; m.load({json.dumps(str(file))})"
    )
    assert (code, len(report["refused"]), "loaded\n" in report["stderr"]) == (3, 1, False)


def test_an_alias_is_known_by_the_name_inside(run, tmp_path):
    installed = tmp_path / "node_modules" / "db"
    installed.mkdir(parents=True)
    (installed / "package.json").write_text(json.dumps({"name": D, "main": "main.js"}))
    (installed / "main.js").write_text("console.log('loaded')")
    for suffix, text in ((".cjs", "require('db')"), (".mjs", "import 'db'")):
        code, report = run(text, suffix=suffix)
        assert (code, "loaded" in report["stderr"]) == (3, False)
    unread = (
        "const fs = require('fs'), held = []; try { for (;;) held.push(fs.openSync('/dev/null')) } catch {} "
        f"try {{ require.resolve({json.dumps(str(installed / 'main.js'))}) }} catch {{}} held.forEach(fs.closeSync); "
    )
    (tmp_path / "script.cjs").write_text(unread + "require('db')")
    code, report = check("run", "--", "sh", "-c", "ulimit -n 256; node script.cjs", cwd=tmp_path)
    assert (code, "loaded" in report["stderr"]) == (3, False)


def test_an_addon_is_known_by_what_is_in_it(run, tmp_path):
    (tmp_path / "harmless.node").write_bytes(b"\x7fELF....SQLite format 3\0....")
    code, report = run("try { require('./harmless.node') } catch {}")
    assert code == 3
    assert "an addon with SQLite in it" in report["refused"][0]["how"]


def test_a_process_without_the_guard_is_no_pass(tmp_path):
    node()
    command = f"env -i PATH='{os.environ['PATH']}' node -e 'setTimeout(() => {{}}, 1500)'; node -e 0"
    code, report = check("run", "--", "sh", "-c", command, cwd=tmp_path)
    assert (code, report["verdict"]) == (4, "unmeasurable")
    assert len(report["unguarded"]) == 1
    assert "ran without the guard" in report["reasons"][0]


@pytest.mark.parametrize("command", [["true"], ["false"], ["/nowhere/at/all"], ["node", "--version"]])
def test_a_command_that_proves_nothing(tmp_path, command):
    node()
    code, report = check("run", "--", *command, cwd=tmp_path)
    assert (code, report["verdict"], report["armed"]) == (4, "unmeasurable", [])


def test_a_command_that_fails_is_no_pass(run):
    code, report = run("process.exit(7)")
    assert (code, report["command_exit"], report["verdict"]) == (4, 7, "unmeasurable")


def test_a_false_nonce_is_no_proof(run):
    text = (
        "require('fs').appendFileSync(require('path').join(process.env.NL_CUTOVER_DENY_DIR, 'evidence'), "
        'JSON.stringify({nonce: "guessed", id: "1", kind: "armed", pid: 1, thread: 0, node: "v1", exec: "/bin/true"}) + "\\n")'
    )
    code, report = run(text)
    assert code == 4
    assert "did not write" in report["reasons"][0]


@pytest.mark.parametrize("line", ["{nonce, id: 'a', kind: 'armed'}", "{nonce, id: 1}", "[]", "null"])
def test_a_line_of_the_right_nonce_and_no_sense_ends_no_hearing(run, line):
    text = (
        "const nonce = process.env.NL_CUTOVER_DENY_NONCE; "
        "require('fs').appendFileSync(process.env.NL_CUTOVER_DENY_DIR + '/evidence', JSON.stringify("
        + line
        + ") + '\\n'); "
    )
    code, report = run(text + LOAD)
    assert (code, [entry["what"] for entry in report["refused"]]) == (3, [D])
    assert any("did not write" in reason for reason in report["reasons"])


ALL = "const fs = require('fs'), path = require('path'), D = process.env.NL_CUTOVER_DENY_DIR, all = fs.readdirSync(D).filter(f => fs.statSync(path.join(D, f)).isDirectory() === false).map(f => path.join(D, f)); "
LOAD = f"try {{ require('{D}') }} catch {{}}; "
TAMPER = {
    "deletes": "for (const f of all) fs.rmSync(f)",
    "deletes the folder": "fs.rmSync(D, {recursive: true, force: true})",
    "empties": "for (const f of all) fs.rmSync(f), fs.writeFileSync(f, '')",
    "rewrites": "for (const f of all) { let text = ''; if (fs.statSync(f).isFile()) text = fs.readFileSync(f, 'utf8'); "
    "fs.writeFileSync(f + '.new', text.split('\\n').filter(l => !l.includes('refused')).join('\\n')); fs.renameSync(f + '.new', f) }",
    "puts away and back": "fs.renameSync(D, D + 'x'); fs.mkdirSync(D); fs.rmSync(D, {recursive: true}); fs.renameSync(D + 'x', D); "
    "for (const f of all) { fs.renameSync(f, f + 'x'); fs.renameSync(f + 'x', f) }",
}


@pytest.mark.parametrize("tamper", TAMPER)
def test_what_was_said_cannot_be_unsaid(run, tamper):
    code, report = run(ALL + LOAD + TAMPER[tamper])
    assert (code, report["verdict"]) == (3, "findings")
    assert [entry["what"] for entry in report["refused"]] == [D]
    assert any("was changed" in reason for reason in report["reasons"])


@pytest.mark.parametrize("tamper", TAMPER)
def test_evidence_that_was_tampered_with_is_no_pass(run, tamper):
    code, report = run(ALL + TAMPER[tamper] + ";" + LOAD)
    assert code in (3, 4)
    assert any("was changed" in reason for reason in report["reasons"])


FULL = "try { for (;;) fs.openSync('/dev/null') } catch {}; "
SHUT = (
    "for (let n = 3; n < 256; n++) try { if (fs.fstatSync(n).ino === fs.statSync(D + '/evidence').ino) fs.closeSync(n) } "
    "catch {}; "
)


@pytest.mark.parametrize(
    ("first", "codes"),
    [
        (FULL, {3}),
        ("fs.rmSync(D, {recursive: true}); ", {3}),
        pytest.param(
            "process.setgid(65534); process.setuid(65534); ",
            {3},
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user"),
        ),
        (SHUT + FULL, {4}),
        (SHUT + "fs.rmSync(D, {recursive: true}); ", {4}),
    ],
)
def test_a_refusal_that_cannot_be_written_down_is_no_pass(tmp_path, first, codes):
    node()
    (tmp_path / "script.cjs").write_text(ALL + first + LOAD + "console.log('went on')")
    code, report = check("run", "--", "sh", "-c", "ulimit -n 256; node script.cjs || true", cwd=tmp_path)
    assert code in codes, report
    assert codes == {3} or "went on" not in report["stderr"]


def test_a_program_that_reads_the_evidence_in_place_of_the_checker_hides_nothing(run):
    read = (
        "for (const f of all) { const d = fs.openSync(f, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK); "
        "try { while (fs.readSync(d, Buffer.alloc(65536))); } catch {} }"
    )
    code, report = run(ALL + LOAD + read)
    assert (code, [entry["what"] for entry in report["refused"]]) == (3, [D])
    thief = "require('child_process').spawn('sh', ['-c', 'exec cat \"$0\" 2>/dev/null', path.join(D, 'evidence')], {stdio: 'ignore'}); "
    wait = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500); "
    code, report = run(ALL + "const c = " + thief + wait + LOAD + "c.kill('SIGKILL')")
    assert (code, [entry["what"] for entry in report["refused"]]) == (3, [D])


@pytest.mark.parametrize(
    "first",
    [
        "fs.openSync = fs.writeSync = () => 1",
        "JSON.stringify = () => '{}'",
        "Atomics.wait = () => 'ok'",
        "path.join = () => '/nowhere'",
    ],
)
def test_what_a_program_puts_in_place_of_a_function_changes_no_evidence(run, first):
    code, report = run(ALL + first + ";" + LOAD)
    assert (code, [entry["what"] for entry in report["refused"]]) == (3, [D])


def test_a_long_name_is_heard_too(run):
    code, report = run(f"try {{ require('{D}/' + 'x'.repeat(200000)) }} catch {{}}; ")
    assert (code, len(report["refused"]), report["reasons"][1:]) == (3, 1, [])


@pytest.mark.parametrize("name", ["\\x01", "\u6f22", "\U0001f418", "x"])
def test_a_line_goes_through_a_pipe_at_once(tmp_path, name):
    """Longer ones of two writers could tear each other."""
    (tmp_path / "script.cjs").write_text(f"try {{ require('{D}/' + '{name}'.repeat(3000)) }} catch {{}}")
    (tmp_path / "evidence").touch()
    words = [node(), "--require", resource("checks", "deny.cjs"), "script.cjs", "\u6f22" * 3000]
    environ = os.environ | {"NL_CUTOVER_DENY_DIR": str(tmp_path), "NL_CUTOVER_DENY_NONCE": "0" * 32}
    subprocess.run(words, cwd=tmp_path, env=environ, check=True)
    lines = [line for line in (tmp_path / "evidence").read_bytes().splitlines(keepends=True) if line.strip()]
    assert max(map(len, lines)) < select.PIPE_BUF  # and the line break before it
    said = [json.loads(line) for line in lines]
    assert said[-1]["what"].startswith(f"{D}/")
    json.dumps(said, ensure_ascii=False).encode()  # no half of a character


def test_lines_that_do_not_cease_end_the_hearing_all_the_same(tmp_path):
    evidence = Evidence(tmp_path, "n")
    flood = "import sys\nwith open(sys.argv[1], 'w') as out:\n    while True: print(file=out, flush=True)"
    writer = subprocess.Popen([sys.executable, "-c", flood, tmp_path / "evidence"], stderr=subprocess.DEVNULL)
    closing = threading.Thread(target=evidence.close, daemon=True)
    closing.start()
    closing.join(20)
    still = closing.is_alive()
    writer.kill()
    writer.wait()
    closing.join()
    assert not still
    assert "did not cease" in evidence.strange


def test_a_shim_that_was_changed_is_no_pass(run):
    code, report = run(ALL + "fs.appendFileSync(path.join(D, 'bin', 'node'), '\\n')")
    assert code == 4
    assert "was changed" in report["reasons"][0]


def outliving(code: str) -> str:
    return (
        f"require('child_process').spawn(process.execPath, ['-e', {json.dumps(code)}], "
        "{detached: true, stdio: 'ignore'}).unref()"
    )


def test_a_grandchild_that_outlives_the_command_is_heard(run):
    code, report = run(outliving(f"setTimeout(() => {{ {LOAD} }}, 700)"))
    assert (code, [entry["what"] for entry in report["refused"]]) == (3, [D])


def test_a_node_that_begins_after_the_command_is_heard(tmp_path):
    node()
    (tmp_path / "late.cjs").write_text(LOAD)
    code, report = check("run", "--", "sh", "-c", "(sleep 1; node late.cjs) & node -e 0", cwd=tmp_path)
    assert (code, [entry["what"] for entry in report["refused"]]) == (3, [D])


@pytest.mark.parametrize(
    "command",
    [["node", "-e", outliving("setTimeout(() => {}, 3000)")], ["sh", "-c", "(sleep 3; node late.cjs) & node -e 0"]],
)
def test_a_grandchild_that_does_not_end_is_no_pass(command):
    node()
    with open(os.devnull, "wb") as out:
        ran = run_denied(
            command,
            environ=os.environ, nonce=command[0], out=out.fileno(), interpreters=["node"], linger=0.3,
        )  # fmt: skip
    report = conclude(ran, [])
    assert report.verdict == "unmeasurable"
    assert "still runs" in report.reasons[0]


def test_many_workers_are_all_heard(run):
    code, report = run(
        "const {Worker} = require('worker_threads'); "
        f"for (let i = 0; i < 12; i++) new Worker(`try {{ require('{D}') }} catch {{}}`, {{eval: true}})"
    )
    assert (code, len(report["refused"])) == (3, 12)
    assert len({entry["thread"] for entry in report["refused"]}) == 12


def test_the_third_look_finds_who_holds_the_store(tmp_path):
    node()
    folder = tmp_path / "neo" / ".neo-ai-data" / "sqlite"
    folder.mkdir(parents=True)
    store = folder / "memory-core-graph.sqlite"
    sqlite3.connect(store).execute("CREATE TABLE t (x)").connection.close()
    holder = subprocess.Popen(
        [sys.executable, "-c", f"f = open({str(store)!r}); print('ready', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "ready\n"
        code, report = check("run", "--tree", tmp_path / "neo", "--", "node", "-e", "0", cwd=tmp_path)
        assert (code, report["verdict"]) == (3, "findings")
        assert report["holders"][0]["pids"] == [holder.pid]
    finally:
        holder.communicate("\n")


def test_a_checker_without_its_preload_says_so(tmp_path):
    """The control runs on the Node that the command used: a guard that refuses nothing is seen."""
    from nl_cutover.denial import runtime

    folder = tmp_path / "checks"
    shutil.copytree(resource("checks"), folder, ignore=shutil.ignore_patterns("fixtures"))
    text = (folder / "deny.cjs").read_text()
    (folder / "deny.cjs").write_text(
        text.replace("    proveArmed();\n", "").replace("if (denied(what)) refuse(what, how);", "")
    )
    find = runtime.resource
    runtime.resource = lambda *parts: tmp_path.joinpath(*parts)
    try:
        with open(os.devnull, "wb") as out:
            ran = runtime.run_denied(
                ["node", "-e", "0"], environ=os.environ, nonce="n", out=out.fileno(), interpreters=["node"]
            )
    finally:
        runtime.resource = find
    report = runtime.conclude(ran, [])
    assert report.verdict == "unmeasurable"
    assert "the control loads a driver" in report.control


@pytest.mark.parametrize("options", ["NODE_OPTIONS=", "NODE_OPTIONS=--no-warnings NL_CUTOVER_DENY_DIR="])
def test_a_shell_line_that_takes_the_guard_away_gets_it_back(run, options):
    line = f"{options} node -e 'require(`{D}`)' || true"
    code, report = run(f"require('child_process').execSync({json.dumps(line)}, {{stdio: 'ignore'}})")
    assert (code, report["verdict"]) == (3, "findings")
    assert [entry["what"] for entry in report["refused"]] == [D]


def test_a_guard_that_refuses_nothing_does_not_begin(tmp_path):
    folder = tmp_path / "checks"
    shutil.copytree(resource("checks"), folder, ignore=shutil.ignore_patterns("fixtures"))
    text = (folder / "deny.cjs").read_text()
    (folder / "deny.cjs").write_text(text.replace("if (denied(what)) refuse(what, how);", ""))
    done = subprocess.run(
        [node(), "--require", folder / "deny.cjs", "-e", "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "does not refuse a driver" in done.stderr
