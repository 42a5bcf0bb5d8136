"""The static instrument: what it finds, what it leaves alone, and what it will not call clear."""

import gc
import hashlib
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.denial.loads import Texts, Words
from nl_cutover.denial.prober import Searches, probe
from nl_cutover.denial.rules import covers
from nl_cutover.denial.source import Source
from nl_cutover.denial.static import check_static

from .conftest import RULES, brief, check, only

D = "better-sqlite3"
SEARCHES = Searches(RULES.loaders, Texts([D]))
NAMES = Searches(RULES.loaders, Texts([D], r"""(["'`])(?:%s)(?:/[^"'`\n]*)?\1"""))


def loads(code: str, path: str = "a.mjs", grammar: str = "javascript"):
    return probe(Source(path, code.encode("utf-8", "surrogatepass"), grammar), NAMES)


@pytest.mark.parametrize(
    "code",
    [
        f"'use strict';\nconst a = 1; import \"{D}\"; import y from\"{D}\";",
        f"import\n  z\nfrom\n  \"{D}\"\n",
        f"import/**/z/**/from/**/'{D}'",
        f"import d, * as n from '{D}'",
        f"import {{default as d}} from '{D}' with {{type: 'json'}}",
        f"export * as x from '{D}'",
        f"export {{default as 'a b'}} from '{D}'",
        f"import  (\n// why\n'{D}')",
        f"import('{D}', {{with: {{}}}})",
        f"async () => {{ for await (const x of [await import('{D}')]) {{}} }}",
        f"requ\\u0069re('{D}')",
        f"r\\u{{65}}quire('{D}')",
        f"((require))('{D}')",
        f"(0, require)('{D}')",
        f"require?.('{D}')",
        f"const {{require: r}} = module; r('{D}')",
        f"const m = module; m.require('{D}')",
        f"let r; r = require; r('{D}')",
        f"var r = typeof require !== 'undefined' ? require : null; r('{D}')",
        f"const a = require, b = a, c = b; c('{D}')",
        f"function f() {{ const r = require; return () => r('{D}') }}",
        f"import m from 'module'; m.createRequire(import.meta.url)('{D}')",
        f"import m from 'node:module'; const {{createRequire}} = m; createRequire(import.meta.url)('{D}')",
        f"const {{createRequire: c}} = await import('module'); c(import.meta.url)('{D}')",
        f"const {{createRequire: c}} = process.getBuiltinModule('module'); c(import.meta.url)('{D}')",
        f"require('module').createRequire(__filename)('{D}')",
        f"const M = require('module'); M['_lo' + 'ad']('{D}')",
        f"globalThis['require']('{D}')",
        f"process.mainModule['require']('{D}')",
        f"const p = process; p.mainModule.require('{D}')",
        f"const {{mainModule: {{require: r}}}} = process; r('{D}')",
        f"new (require('worker_threads').Worker)(`require('{D}')`, {{eval: !0}})",
        f"eval?.('import(\"{D}\")')",
        f"(0, eval)('require(\"{D}\")')",
        f"const code = `require('{D}')`; eval(code)",
        f"eval(\"eval('require(\\\\'{D}\\\\')')\")",
        f"Function('r', `return import('{D}')`)()",
        f"new globalThis.Function('return import(\"{D}\")')()",
        f"require('child_process').spawn(process.argv0, ['-p', `require('{D}')`])",
        f"require('child_process').execSync(`node --require {D} x.js`)",
        "import('data:text/javascript;base64,aW1wb3J0ICdiZXR0ZXItc3FsaXRlMyc=')",
        "import('data:text/javascript,import%20%22node:sqlite%22')",
        f"const x = `${{require('{D}')}}`",
        f"class A {{ static {{ require('{D}') }} }}",
        f"label: for (;;) {{ switch (1) {{ case 1: require('{D}') }} }}",
        f"const o = {{m() {{ return require('{D}') }}, get g() {{ return 1 }}, [require('{D}')]: 1}}",
        f"/[/\"']/.test(x); require('{D}')",
        f"x = a / b; /* ' */ require('{D}') / 2",
        f"`${{`${{1}}`}}`; require('{D}')",
        f"<!-- html comment\nrequire('{D}')",
        f"const f = (require) => require('{D}')",
    ],
)  # fmt: skip
def test_a_load_is_found(code):
    found = [load for load in loads(code).loads if load.texts]
    assert any(D in t or "node:sqlite" in t for load in found for t in load.texts), loads(code)


@pytest.mark.parametrize(
    "code",
    [
        f"// require('{D}')\n/* import '{D}' */\n/** import('{D}').Database */",
        f"const s = \"import '{D}'\", t = 'require(\"{D}\")'",
        f"const s = `import '{D}'; ${{1}} require('{D}')`",
        f"const r = /import\\('{D}'\\)/g; x.replace(/require\\(\"{D}\"\\)/, '')",
        f"function require(x) {{ return x }} require('{D}')",
        f"const require = x => x; require('{D}')",
        f"{{ let require = function (x) {{}}; require('{D}') }}",
        f"class A {{ require(x) {{}} go() {{ this.require('{D}') }} }}",
        f"const api = {{require() {{}}, import() {{}}}}; api.require('{D}'); api.import('{D}')",
        f"console.log('{D}'); describe('{D}', () => {{}})",
        f"import debug from 'debug'; debug('{D}')",
        f"import x from '{D}-helper'; import y from 'my-{D}'; import z from '@types/{D}'",
        f"const o = {{require: 1, module: 2, process: 3, eval: 4}}; o.require; o.eval('{D}')",
        f"export const a = '{D}'; export default '{D}'",
        f"process.env.X = '{D}'; process.on('exit', () => '{D}')",
        f"module.exports = {{driver: '{D}'}}",
        f"<p title='{D}'>require('{D}') import '{D}'</p>",
        "new Worker('./app.mjs', {type: 'module'})",
        f"this.constructor('{D}'); new x.constructor('{D}')",
        f"import.meta.url + '{D}'",
        f"const eval2 = 1; evaluate('{D}'); requires('{D}'); $require('{D}'); require$('{D}')",
    ],
)  # fmt: skip
def test_a_look_alike_is_none(code):
    found = [load for load in loads(code).loads if load.form != "static import" or D in load.texts]
    assert found == []


@pytest.mark.parametrize(
    ("code", "resolution"),
    [
        ("import(name)", "unresolved"),
        ("import(`./${name}.mjs`)", "unresolved"),
        ("let m = 'fs'; m = other(); import(m)", "unresolved"),
        ("let m = 'fs'; m += x; import(m)", "unresolved"),
        ("function f(name) { return require(name) }", "unresolved"),
        ("import {name} from './names.mjs'; import(name)", "unresolved"),
        ("eval(code)", "sink"),
        ("new Function(code)", "sink"),
        ("require('vm').runInThisContext(code)", "sink"),
        ("require('child_process').exec(command)", "sink"),
        ("new (require('worker_threads').Worker)(file)", "sink"),
        ("exports.load = require", "sink"),
        ("import {createRequire} from 'module'; export const load = createRequire(import.meta.url)", "sink"),
    ],
)
def test_what_cannot_be_told_is_a_finding(look, code, resolution):
    result = look({"a.cjs": code})
    assert {f.resolution for f in result.report.findings} == {resolution}
    assert (result.report.verdict, result.report.exit_code) == ("findings", 3)


def test_clear_says_so(look):
    result = look({"a.mjs": "import fs from 'node:fs';\nexport default fs;\n", "b/c.cjs": "require('../a.mjs')\n"})
    report = result.report
    assert (report.schema, report.verdict, report.exit_code) == ("nl-cutover/static/1", "clear", 0)
    assert report.findings == ()
    assert (report.population.found, report.population.parsed, report.population.skipped) == (2, 2, ())
    assert "fixtures found" in result.control


def test_every_extension_and_every_link_once(tree, look):
    names = [f"f.{e}" for e in ("js", "mjs", "cjs", "jsx", "ts", "tsx", "mts", "cts")]
    root = tree(dict.fromkeys(names, f"import '{D}'") | {"bin/tool": f"#!/usr/bin/env node\nrequire('{D}')\n"})
    tree({"bin/other": f"#!/bin/sh\n# require('{D}')", "notes.txt": f"import '{D}'", "LICENSE": f"import '{D}'"})
    (root / "linked").symlink_to(root / "bin", target_is_directory=True)
    (root / "loop").symlink_to(root, target_is_directory=True)
    (root / "link.mjs").symlink_to(root / "f.mjs")
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "o.mjs").write_text(f"import '{D}'")
    (root / "far").symlink_to(outside, target_is_directory=True)
    report = look({}).report
    assert {f.path for f in report.findings} == {*names, "bin/tool", "link.mjs", "far/o.mjs"}
    assert {(s.path, s.reason) for s in report.population.skipped} == {
        ("linked/", "a link to a folder that is already in"),
        ("loop/", "a link to a folder that is already in"),
    }


def test_packages_are_passed_over_and_named(look):
    report = look({"node_modules/x/a.js": f"require('{D}')", ".git/hooks/a.js": f"require('{D}')", "a.js": "1"}).report
    assert report.verdict == "clear"
    assert [s.path for s in report.population.skipped] == [".git/", "node_modules/"]


def test_nothing_found_is_nothing_proved(look, tree):
    tree({"README.md": ""})
    assert (look({}).report.verdict, look({}).report.exit_code) == ("unmeasurable", 4)
    nowhere = look({"a.mjs": "1"}, surface=("host/**",))
    assert (nowhere.report.exit_code, nowhere.notes) == (4, ("not one script in the surface",))


def test_a_dangling_script_is_no_pass(look, tree):
    root = tree({"a.mjs": "1"})
    (root / "gone.mjs").symlink_to(root / "nowhere.mjs")
    (root / "pipe.js").unlink(missing_ok=True)
    os.mkfifo(root / "pipe.js")
    report = look({}).report
    assert report.exit_code == 4
    assert [(s.path, s.reason) for s in report.population.skipped] == [
        ("gone.mjs", "a link to nothing"),
        ("pipe.js", "not a regular file"),
    ]
    assert (report.population.found, report.population.parsed) == (3, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to read as")
def test_a_script_that_may_not_be_read_is_no_pass(tree):
    root = tree({"a.mjs": "1", "secret.mjs": f"import '{D}'", "closed/b.mjs": "1"})
    (root / "secret.mjs").chmod(0)
    (root / "closed").chmod(0)
    for folder in (root.parent, *root.parent.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o755)
    code = (
        "import os\nfrom pathlib import Path\nfrom nl_cutover.denial.walk import walk\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"for s in walk(Path({str(root)!r})).skipped: print(s.path, s.reason, s.explained)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "closed/ cannot be listed: Permission denied False" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        f"import '{D}';\nconst = ;",
        f"import '{D}'; function (",
        f"if (a) {{ require('{D}')",
        "const = ;",
        "\0\0\1\2 garbage ((",
    ],
)
def test_what_does_not_parse_is_a_finding(look, text):
    report = look({"a.mjs": text, "b.mjs": "1"}).report
    assert any(f.resolution == "unparsable" for f in report.findings)
    assert (report.population.found, report.population.parsed, report.exit_code) == (2, 1, 3)
    if D in text:
        assert any(f.specifier == D for f in report.findings)


def test_attributes_on_exports_are_no_error(look):
    text = f'export {{default}} from "./p.json" with {{ type: "json" }};\nimport "{D}";\n'
    assert brief(look({"a.mjs": text}).report) == [("a.mjs", 2, D, "literal")]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("bom.js", b"\xef\xbb\xbfimport '%s'\n"),
        ("hashbang.js", b"#!/usr/bin/env node\nimport '%s'\n"),
        ("crlf.js", b"// a\r\nimport '%s'\r\n"),
        ("cr.js", b"// a\rimport '%s'\r"),
        ("latin1.js", b"// caf\xe9\nimport '%s'\n"),
        ("nul.js", b"// a\0\nimport '%s'\n"),
        ("separators.js", "// a\u2028import '%s'\n".encode()),
    ],
)
def test_bytes_as_they_come(look, name, data):
    report = look({name: data.replace(b"%s", D.encode())}).report
    assert only(report).specifier == D


def test_utf16_is_not_what_node_runs(look):
    report = look({"a.js": f"import '{D}'".encode("utf-16")}).report
    assert {f.resolution for f in report.findings} >= {"unparsable"}
    assert D in {f.specifier for f in report.findings}


@pytest.mark.parametrize("opening", ["(", "[", "{a:", "a?b:", "!", "f(", "()=>"])
def test_depth_is_no_way_past(opening):
    closing = {"(": ")", "[": "]", "{a:": "}", "f(": ")"}.get(opening, "")
    began = time.monotonic()
    found = loads("x=" + opening * 20_000 + f"require('{D}')" + closing * 20_000)
    assert any(D in load.texts for load in found.loads)
    assert time.monotonic() - began < 20


def test_a_huge_file_is_read_to_its_end():
    found = loads("const a = [" + "'x', 1.5, {b: 2}," * 300_000 + f"];\nrequire('{D}')")
    assert [load.line for load in found.loads] == [2]


def test_types_are_listed_and_not_fatal(look):
    code = f"import type {{Database}} from '{D}';\nexport type D = import('{D}').Database;\n"
    report = look({"a.ts": code}).report
    assert [(f.line, f.form) for f in report.findings] == [(1, "import type"), (2, "type import")]
    assert (report.verdict, report.exit_code) == ("clear", 0)


def test_a_chain_through_local_modules(look):
    files = {
        "host/start.mjs": "import './near.mjs';\n",
        "host/near.mjs": "export * from '../lib/a';\n",
        "lib/a.mjs": "const b = await import('./b.cjs');\n",
        "lib/b.cjs": f"module.exports = require('{D}');\neval(code);\n",
        "other/unrelated.mjs": f"import '{D}';\n",
    }
    found = {f.path: f for f in look(files, surface=("host/**",)).report.findings if f.resolution == "literal"}
    assert found["host/start.mjs"].chain == ("host/start.mjs", "host/near.mjs", "lib/a.mjs", "lib/b.cjs", D)
    assert (found["host/near.mjs"].line, found["host/near.mjs"].specifier) == (1, "../lib/a")
    assert found["lib/b.cjs"].chain == ("host/near.mjs", "lib/a.mjs", "lib/b.cjs")
    assert "other/unrelated.mjs" not in found
    sink = [f for f in look({}, surface=("host",)).report.findings if f.resolution == "sink"]
    assert [(f.path, f.line, f.chain[-1]) for f in sink] == [("lib/b.cjs", 2, "lib/b.cjs")]


@pytest.mark.parametrize(
    ("glob", "inside"),
    [
        ("host/**", "host/a.mjs"),
        ("host/**/*.mjs", "host/a.mjs"),
        ("host/**/*.mjs", "host/x/y/a.mjs"),
        ("./host", "host/x/a.mjs"),
        ("host/", "host/a.mjs"),
        ("host/*.{mjs,cjs}", "host/a.cjs"),
        ("**/neural-link/**", "ai/services/neural-link/a.mjs"),
        ("a.mjs", "host/a.mjs"),
    ],
)
def test_a_surface_takes_what_a_glob_says(glob, inside):
    assert covers([glob], inside)
    assert not covers([glob], "other/b.ts")
    assert not covers([glob], "hostile/x.mjs")


def test_a_script_is_started_from_the_root_or_from_beside(look):
    start = "import {Worker} from 'node:worker_threads';\nnew Worker('./lib/w.mjs');\n"
    files = {"app/a.mjs": start, "lib/w.mjs": f"import '{D}'", "b.mjs": start, "app/lib/w.mjs": f"import '{D}'"}
    assert {f.path for f in look(files).report.findings} == set(files)


def test_a_ring_of_modules_ends(look):
    files = {"a.mjs": "import './b.mjs'", "b.mjs": "import './a.mjs'; import './c.mjs'", "c.mjs": f"import '{D}'"}
    chains = {f.path: f.chain for f in look(files).report.findings}
    assert chains["a.mjs"] == ("a.mjs", "b.mjs", "c.mjs", D)


@pytest.mark.parametrize(
    ("manifest", "specifier"),
    [
        ('{"imports": {"#db": "better-sqlite3"}}', "#db"),
        ('{"imports": {"#x/*": {"node": ["better-sqlite3/*"]}}}', "#x/lib/database.js"),
        ('{"dependencies": {"db": "npm:better-sqlite3@^12"}}', "db"),
        ('{"devDependencies": {"@a/db": "npm:better-sqlite3"}}', "@a/db/lib"),
        ('{"overrides": {"x": {"y@1": "npm:better-sqlite3@1"}}}', "y"),
        ('{"resolutions": {"**/y": "npm:@journeyapps/sqlcipher@1"}}', "y"),
    ],
)
def test_aliases_of_packages(look, manifest, specifier):
    report = look({"package.json": manifest, "src/a.mjs": f"import '{specifier}'"}).report
    assert brief(report) == [("src/a.mjs", 1, specifier, "literal")]


def test_a_ring_of_aliases_ends(look):
    manifest = '{"dependencies": {"a": "npm:b@1", "b": "npm:a@1"}, "imports": {"#x": "#y", "#y": "#x"}}'
    assert look({"package.json": manifest, "a.mjs": "import 'a'; import '#x'"}).report.verdict == "clear"


def test_an_alias_that_grows_each_time_ends(look):
    manifest = '{"imports": {"#x/*": "#x/y/*"}}'
    assert look({"package.json": manifest, "a.mjs": "import '#x/z'"}).report.verdict == "clear"


def test_paths_of_tsconfig(look):
    config = '{"compilerOptions": {"paths": {"@db": ["./node_modules/better-sqlite3"], "~/*": ["./src/*"]}}} // ,'
    files = {"tsconfig.json": config, "a.ts": "import '@db'", "b.ts": "import '~/db'", "src/db.ts": f"import '{D}'"}
    assert [f.path for f in look(files).report.findings] == ["a.ts", "b.ts", "src/db.ts"]


def test_a_manifest_that_does_not_read_is_no_pass(look):
    assert look({"package.json": "{", "a.mjs": "1"}).report.exit_code == 4


@pytest.mark.parametrize("path", ["x/../node_modules/better-sqlite3/lib/index.js", "C:\\\\node_modules\\\\better-sqlite3", "./build/better_sqlite3.node", "Better-SQLite3", "better-sqlite3/", "file:///x/node_modules/.pnpm/better-sqlite3@1/node_modules/better-sqlite3"])  # fmt: skip
def test_other_spellings_of_the_same(look, path):
    assert look({"a.cjs": f"require('{path}')"}).report.exit_code == 3


def test_graph_modules_and_paths(look):
    files = {
        "ai/a.mjs": "import S from '../../services/memory-core/GraphService.mjs';\n",
        "ai/b.mjs": "// memory-core-graph.sqlite\nexport const p = `${root}/memory-core-graph.sqlite`;\n",
        "ai/c.mjs": "import S from './GraphServiceHelper.mjs';\n",
    }
    assert [(f.path, f.line) for f in look(files).report.findings] == [("ai/a.mjs", 1), ("ai/b.mjs", 2)]


def allow(line: str, text: str, path: str = "a.mjs") -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'[[allow]]\npath = "{path}"\nline = {line}\nsha256 = "{digest}"\nwhy = "reads its own plugins"\n'


def test_an_allowance_holds_on_to_the_line(look):
    text = "await import(plugin);"
    assert look({"a.mjs": f"\n  {text}\n"}, allow=allow("2", text)).report.verdict == "clear"
    moved = look({"a.mjs": f"\n\n{text}\n"}, allow=allow("2", text))
    assert moved.report.verdict == "findings"
    assert "fits nothing" in moved.notes[0]
    assert look({"a.mjs": "\nawait import(other);\n"}, allow=allow("2", text)).report.verdict == "findings"


def test_a_link_that_leads_to_itself_is_passed_over_and_a_script_of_that_kind_is_not_clear(look, tree):
    root = tree({"a.mjs": "export {};"})
    (root / "ring").symlink_to("ring")
    assert look({}).report.exit_code == 0
    (root / "b.js").symlink_to("b.js")
    report = look({}).report
    assert (report.exit_code, [s.path for s in report.population.skipped]) == (4, ["b.js"])


@pytest.mark.parametrize(
    "code",
    [
        "let n = 'a'; " + "n = n + n; " * 40 + "require(n)",
        "".join(f"const a{i} = a{i + 1} + a{i + 1}; " for i in range(50)) + "const a50 = process.argv[2]; require(a0)",
        "let n = 'a'; " + "n = 'b'; require(n); " * 1500,
        ";".join(f"(function (b) {{ require(b) }})(x{i})" for i in range(3000)),
    ],
    ids=["ring", "doubling", "assignments", "scopes"],
)
def test_the_work_grows_with_the_file_and_no_faster(code):
    began = time.process_time()
    found = probe(Source("a.cjs", code.encode(), "javascript"), SEARCHES)
    assert {load.complete for load in found.loads} == {False}
    assert time.process_time() - began < 5


def test_a_package_is_not_taken_for_a_parameter_that_is_called_like_a_loader(look):
    assert look({"a.cjs": f"const run = require => require('{D}'); run(n => n.length)"}).report.exit_code == 0
    assert look({"a.cjs": f"module.exports = require => require('{D}')"}).report.exit_code == 3


def test_an_allowance_never_covers_what_is_known(look):
    text = f"await import('{D}');"
    assert look({"a.mjs": text}, allow=allow("1", text)).report.verdict == "findings"


def test_the_command_answers_with_exactly_these_fields(tree):
    root = tree({"a.mjs": f"import '{D}';\n", "node_modules/x.js": "1"})
    code, report = check("static", "--tree", root, cwd=root)
    assert code == report["exit_code"] == 3
    report.pop("stderr")
    assert set(report) == {"schema", "verdict", "exit_code", "findings", "population"}
    assert report["findings"] == [
        {"path": "a.mjs", "line": 1, "form": "side effect import", "specifier": D, "resolution": "literal", "chain": []}
    ]
    assert set(report["population"]) == {"found", "parsed", "skipped"}
    assert [entry["path"] for entry in report["population"]["skipped"]] == ["node_modules/"]


WHITE = st.text(alphabet=" \t\n", max_size=3)
GAP = st.one_of(WHITE, WHITE.map(lambda w: f"{w}/* ' */"), WHITE.map(lambda w: f"{w}// `\n"))


@given(
    GAP,
    GAP,
    GAP,
    st.sampled_from("'\"`"),
    st.sampled_from(["import", "require"]),
    st.sampled_from(["", "1;", "x=>", "`${1}`;", "/'/;"]),
)
def test_white_space_and_comments_hide_nothing(a, b, c, quote, word, before):
    code = f"{before}{word}{a}({b}{quote}{D}{quote}{c})"
    assert [load.texts for load in loads(code).loads] == [(D,)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_pieces_fold_to_the_whole(cuts, data):
    pieces, rest = [], D
    for size in cuts:
        pieces.append(rest[:size])
        rest = rest[size:]
    pieces.append(rest)
    written = []
    for piece in pieces:
        style = data.draw(st.sampled_from(["plain", "template", "hex", "unicode", "base64", "code"]))
        match style:
            case "plain":
                written.append(repr(piece))
            case "template":
                written.append(f"`{piece}`")
            case "hex":
                written.append("'" + "".join(f"\\x{ord(c):02x}" for c in piece) + "'")
            case "unicode":
                written.append('"' + "".join(f"\\u{{{ord(c):x}}}" for c in piece) + '"')
            case "base64":
                import base64

                written.append(f"atob('{base64.b64encode(piece.encode()).decode()}')")
            case "code":
                written.append(f"String.fromCharCode({', '.join(str(ord(c)) for c in piece)})" if piece else "''")
    assert loads(f"const a = {' + '.join(written)}; import(a)").loads[0].texts == (D,)


@given(st.text(alphabet=st.sampled_from(list("(){}[];'\"`/*\\ \n=>.,:$_?!<-aeimoprqtu0129\u2028é\0")), max_size=60))
def test_any_text_ends_without_a_fault(text):
    for grammar in ("javascript", "typescript", "tsx"):
        loads(text, grammar=grammar)


def test_no_file_s_tree_outlives_its_turn(tmp_path):
    for number in range(50):
        (tmp_path / f"{number}.mjs").write_text("import cp from 'child_process';\ncp.fork('./worker.mjs');\n")
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        check_static(tmp_path, RULES)
        left = sum(isinstance(item, Source) for item in gc.get_objects())
    finally:
        if enabled:
            gc.enable()
    assert left == 0


def test_a_link_to_a_driver_is_a_finding(look, tree, tmp_path):
    target = tmp_path / "node_modules" / "better-sqlite3" / "lib" / "index.js"
    target.parent.mkdir(parents=True)
    target.write_text("module.exports = require('./database')")
    other = tmp_path / "other.js"
    other.write_text("1")
    root = tree({"use.cjs": "require('./db.js')", "bare.cjs": "require('./bare')"})
    (root / "db.js").symlink_to(target)
    (root / "bare").symlink_to(target)
    (root / "fine.js").symlink_to(other)
    found = look({}).report.findings
    assert [(f.path, f.form, f.chain) for f in found] == [
        ("bare", "link", ()),
        ("bare.cjs", "require", ("bare.cjs", "bare", "/node_modules/better-sqlite3/lib/index.js")),
        ("db.js", "link", ()),
        ("use.cjs", "require", ("use.cjs", "db.js", "/node_modules/better-sqlite3/lib/index.js")),
    ]


def test_what_node_runs_as_a_script_is_read_whatever_its_name(look):
    """A file without extension or shebang, and any extension that Node does not know, where something loads it."""
    driver = "require('better-sqlite3')"
    files = {
        "a.cjs": "require('./tool'); require('./driver.txt'); require('child_process').fork('./run')",
        "tool": driver,
        "driver.txt": driver,
        "run": driver,
        "notes.txt": driver,
        "b.mjs": "import './style.glsl'",
        "style.glsl": "no script {",
    }
    report = look(files, surface=("a.cjs", "b.mjs")).report
    assert {f.path for f in report.findings} == {"a.cjs", "tool", "driver.txt", "run"}
    assert report.population.found == report.population.parsed == 5


@given(
    st.lists(st.text("ab\\.", min_size=1, max_size=4), min_size=1, max_size=6, unique=True),
    st.text("ab\\.", max_size=40),
)
def test_words_are_found_wherever_they_begin(words, code):
    """One pass finds what a search for each word finds, overlaps and repetitions included."""
    found = Words(word.encode() for word in words).places(code.encode())
    wanted = {word: [at for at in range(len(code)) if code.startswith(word, at)] for word in words}
    assert found == {word.encode(): places for word, places in wanted.items() if places}
