'use strict';
/*
 * A preload that refuses to load a SQLite driver or a graph module, in this process, its workers and its children:
 *
 *     NODE_OPTIONS='--require /path/to/deny.cjs' node program.js
 *
 * What is refused is read from rules/*.toml beside this file. With NL_CUTOVER_DENY_DIR and NL_CUTOVER_DENY_NONCE each
 * process and worker writes to `evidence` there that it was armed, and everything that was refused, also where a
 * program swallows the error. `nl-cutover check run` sets both, reads that from a pipe and demands the nonce back.
 */
const fs = require('node:fs');
const path = require('node:path');
const Module = require('node:module');
const threads = require('node:worker_threads');
const children = require('node:child_process');
const {fileURLToPath, pathToFileURL} = require('node:url');

const CODE = 'ERR_NL_CUTOVER_DENIED';
const ARMED = Symbol.for('nl-cutover.denial');
const {NL_CUTOVER_DENY_DIR: DIR, NL_CUTOVER_DENY_NONCE: NONCE} = process.env;
const PIPE = `${DIR}/evidence`;
const FLAG = `--require ${JSON.stringify(__filename)}`;
// Taken before the program begins: what it puts in their place is not called here.
const {readFileSync, realpathSync, existsSync, lstatSync, fstatSync, openSync, writeSync, mkdirSync} = fs;
const {pid, _kill: kill} = process;
const {O_WRONLY, O_APPEND, O_CREAT, O_NONBLOCK} = fs.constants;
const {randomBytes} = require('node:crypto');
const PAUSE = new Int32Array(new SharedArrayBuffer(4));
const {wait} = Atomics, {stringify} = JSON;
const {byteLength} = Buffer;
const ATOMIC = process.platform === 'linux' ? 4096 : 512; // bytes of PIPE_BUF: no line of another gets in between

function rules(folder) {
    const found = {packages: [], builtins: [], natives: [], modules: []};
    for (const name of fs.readdirSync(folder)) {
        if (!name.endsWith('.toml')) continue;
        for (const [, key, list] of readFileSync(path.join(folder, name), 'utf8').matchAll(/^(\w+) = \[([^\]]*)\]/gm)) {
            if (found[key]) found[key].push(...[...list.matchAll(/"([^"]+)"/g)].map(match => match[1]));
        }
    }
    if (!found.packages.length || !found.builtins.length) throw new Error(`nl-cutover: no rules in ${folder}`);
    return found;
}

const RULES = rules(path.join(__dirname, 'rules'));
const PACKAGES = new Set(RULES.packages.map(name => name.toLowerCase()));
const BUILTINS = new Set(RULES.builtins);
const NATIVES = new Set(RULES.natives.map(name => `${name.toLowerCase()}.node`));

function packageOf(parts) {
    return (parts[0]?.startsWith('@') ? parts.slice(0, 2) : parts.slice(0, 1)).join('/');
}

const named = new Map();
function installedAs(file) {
    // An alias such as "db": "npm:better-sqlite3@12" has the driver's name in its own package.json.
    const at = file.lastIndexOf(`${path.sep}node_modules${path.sep}`);
    if (at < 0) return '';
    const folder = path.join(file.slice(0, at), 'node_modules', packageOf(file.slice(at + 14).split(path.sep)));
    if (!named.has(folder)) {
        try {
            named.set(folder, String(JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')).name).toLowerCase());
        } catch { /* no manifest, no name; it may be read another time */ }
    }
    return named.get(folder);
}

/** Whether a specifier, a URL or a file name is one of the family. */
function denied(what) {
    let text = String(what);
    if (BUILTINS.has(text)) return true;
    let file = '';
    if (text.startsWith('file:')) {
        try {
            text = file = fileURLToPath(text.split(/[?#]/)[0]);
        } catch { /* not a path: looked at as text */ }
    } else if (path.isAbsolute(text)) {
        file = text;
    }
    const parts = text.replaceAll('\\', '/').toLowerCase().split('/').filter(Boolean);
    const local = /^(\.|\/|[a-z]:|#)/i.test(text);
    if (!local && PACKAGES.has(packageOf(parts))) return true;
    if (parts.some((part, at) => part === 'node_modules' && PACKAGES.has(packageOf(parts.slice(at + 1))))) return true;
    if (NATIVES.has(parts.at(-1))) return true;
    if (local) {
        const stem = `/${text.replaceAll('\\', '/').replace(/\.[^./]*$/, '')}`;
        if (RULES.modules.some(module => stem.endsWith(`/${module}`))) return true;
    }
    return file !== '' && PACKAGES.has(installedAs(file));
}

let quiet = false;
function record({what, argv, ...entry}) {
    if (!DIR || quiet) return;
    const id = randomBytes(16).toString('hex');
    let most = 1000, line;
    const cut = word => word.slice(0, most).toWellFormed();
    do {
        const said = {...entry, what: what && cut(what), argv: argv?.map(cut)};
        line = `\n${stringify({nonce: NONCE, id, pid, thread: threads.threadId, ...said})}\n`;
    } while (byteLength(line) > ATOMIC && (most >>= 1));
    // Through a pipe the line is said until the checker took it: from then on nothing here can unsay it.
    // It is never given up: the checker would not know.
    for (let turn = 0; !existsSync(`${DIR}/taken/${id}`); turn++) {
        if (turn % 50 === 0 && !say(line)) return;
        wait(PAUSE, 0, 0, 2);
    }
}

let kept; // open from the start: a process without a free descriptor, or of another user by now, is heard too
/** Whether somebody has to take it: a file keeps it. Throws where nobody can. */
function say(line) {
    let now;
    try {
        now = fstatSync(kept.out);
    } catch { /* not open yet, or closed by the program */ }
    if (!now || now.ino !== kept.ino || now.dev !== kept.dev) { // the program's own file by now
        const out = openSync(PIPE, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0o600);
        now = fstatSync(out);
        kept = {out, ino: now.ino, dev: now.dev, pipe: now.isFIFO()};
    }
    try {
        writeSync(kept.out, line);
    } catch (error) {
        if (error.code !== 'EAGAIN') throw error;
    }
    lstatSync(kept.pipe ? `${DIR}/taken` : DIR); // also: Node resolves no link while its last look was at a pipe
    return kept.pipe;
}

/** The end of a process that cannot say what it tried: going on would pass for clear. */
function end() {
    try {
        mkdirSync(`${DIR}/unheard`); // needs no descriptor, and is seen where a parent swallows the end
    } catch { /* a folder that is gone is seen as well; to another user the exit code is left */ }
    for (;;) {
        kill(pid, 9);
        wait(PAUSE, 0, 0, 1000);
    }
}

function refuse(what, how) {
    try {
        record({kind: 'refused', what: String(what), how});
    } catch {
        end();
    }
    const error = new Error(`nl-cutover: refused to load ${what} (${how})`);
    error.code = CODE;
    throw error;
}

function guard(what, how) {
    if (denied(what)) refuse(what, how);
}

function guardAddon(file, how) {
    guard(file, how);
    let real = String(file);
    try {
        real = realpathSync(real.replace(/^\\\\\?\\/, ''));
    } catch { /* what is not there fails by itself */ }
    guard(real, how);
    let bytes;
    try {
        bytes = readFileSync(real);
    } catch {
        return;
    }
    if (bytes.includes('SQLite format 3\0')) refuse(file, `${how}: an addon with SQLite in it`);
}

/** Replace a property so that whoever assigns it later is still behind the guard. */
function wrap(object, name, make) {
    if (typeof object[name] !== 'function') return;
    const behind = new WeakSet();
    const guarded = value => {
        if (behind.has(value)) return value; // what was taken from here and is put back
        const made = make(value);
        behind.add(made);
        return made;
    };
    let outer = guarded(object[name]);
    Object.defineProperty(object, name, {
        configurable: false,
        enumerable: true,
        get: () => outer,
        set(value) {
            // On an instance it is that instance's own: each require hook replaces `_compile` of the module at hand.
            if (this === object || Object.hasOwn(this, name)) outer = guarded(value);
            else Object.defineProperty(this, name, {value: guarded(value), writable: true, configurable: true, enumerable: true});
        }
    });
}

function armedEnv(env) {
    const armed = {...(env ?? process.env)};
    armed.NODE_OPTIONS = `${FLAG} ${(armed.NODE_OPTIONS ?? '').replaceAll(FLAG, '').trim()}`.trim(); // the first to load
    if (DIR) Object.assign(armed, {NL_CUTOVER_DENY_DIR: DIR, NL_CUTOVER_DENY_NONCE: NONCE});
    return armed;
}

function arm() {
    wrap(Module, '_load', inner => function (request, ...rest) {
        guard(request, 'require');
        return Reflect.apply(inner, this, [request, ...rest]);
    });
    wrap(Module, '_resolveFilename', inner => function (request, ...rest) {
        guard(request, 'resolve');
        const file = Reflect.apply(inner, this, [request, ...rest]);
        guard(file, 'resolve');
        return file;
    });
    wrap(Module.prototype, '_compile', inner => function (code, file, ...rest) {
        guard(file, 'compile'); // a module that was loaded by its path, past all that resolves
        return Reflect.apply(inner, this, [code, file, ...rest]);
    });
    wrap(process, 'dlopen', inner => function (module, file, ...rest) {
        guardAddon(file, 'dlopen');
        return Reflect.apply(inner, this, [module, file, ...rest]);
    });
    for (const name of ['getBuiltinModule', 'binding', '_linkedBinding']) {
        wrap(process, name, inner => function (id, ...rest) {
            if (BUILTINS.has(id) || BUILTINS.has(`node:${id}`)) refuse(id, name);
            return Reflect.apply(inner, this, [id, ...rest]);
        });
    }
    wrap(threads, 'Worker', inner => class Worker extends inner {
        constructor(file, options = {}) {
            const armed = {...options};
            if (options.env !== threads.SHARE_ENV) armed.env = armedEnv(options.env);
            if (options.execArgv) armed.execArgv = ['--require', __filename, ...options.execArgv];
            super(file, armed);
        }
    });
    wrap(children.ChildProcess.prototype, 'spawn', inner => function (options) {
        const env = Object.fromEntries((options.envPairs ?? []).map(pair => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]));
        const armed = armedEnv(env);
        return Reflect.apply(inner, this, [{...options, envPairs: Object.entries(armed).map(([key, value]) => `${key}=${value}`)}]);
    });
    for (const name of ['spawnSync', 'execFileSync']) {
        wrap(children, name, inner => function (file, args, options) {
            if (!Array.isArray(args)) [args, options] = [[], args ?? options];
            return Reflect.apply(inner, this, [file, args, {...options, env: armedEnv(options?.env)}]);
        });
    }
    wrap(children, 'execSync', inner => function (command, options) {
        return Reflect.apply(inner, this, [command, {...options, env: armedEnv(options?.env)}]);
    });
    const hooks = {
        resolve(specifier, context, next) {
            guard(specifier, 'import');
            const found = next(specifier, context);
            guard(found.url, 'import');
            if (found.url.endsWith('.node')) guardAddon(fileURLToPath(found.url), 'import');
            return found;
        }
    };
    if (typeof Module.registerHooks === 'function') {
        Module.registerHooks(hooks);
    } else if (typeof Module.register === 'function') {
        Module.register(`${pathToFileURL(path.join(__dirname, 'deny.mjs'))}?hooks`);
    } else {
        throw new Error(`nl-cutover: Node ${process.version} has no module hooks: 20.6 or newer is needed`);
    }
    Module.syncBuiltinESMExports();
}

/** Before the program begins: what is refused is refused now, or it does not begin. */
function proveArmed() {
    quiet = true;
    for (const attempt of [
        () => Module._load('better-sqlite3'),
        () => Module.createRequire(__filename).resolve('better-sqlite3'),
        () => process.dlopen({exports: {}}, 'better_sqlite3.node')
    ]) {
        try {
            attempt();
        } catch (error) {
            if (error.code === CODE) continue;
        }
        throw new Error('nl-cutover: the guard does not refuse a driver');
    }
    quiet = false;
}

module.exports = {denied, guardAddon, record, refuse};

if (!globalThis[ARMED]) {
    Object.defineProperty(globalThis, ARMED, {value: true});
    arm();
    proveArmed();
    record({kind: 'armed', node: process.version, exec: process.execPath, argv: process.argv.slice(1, 3)});
    // Loaded by a preload that came first: too late to refuse, but not to tell.
    for (const file of Object.keys(Module._cache)) guard(file, 'before the guard');
    for (const name of BUILTINS) {
        if (process.moduleLoadList?.includes(`NativeModule ${name.replace('node:', '')}`)) refuse(name, 'before the guard');
    }
}
