'use strict';
// What the checker runs under the guard, on each Node that a command used: every attempt has to be refused.
const {Worker} = require('node:worker_threads');
const {spawnSync} = require('node:child_process');

const CODE = 'ERR_NL_CUTOVER_DENIED';
const inside = `try { require('better-sqlite3') } catch (error) { process.stdout.write(String(error.code)) }`;

async function refused(attempt) {
    try {
        await attempt();
    } catch (error) {
        return error.code === CODE;
    }
    return false;
}

(async () => {
    const attempts = {
        require: () => require('better-sqlite3'),
        resolve: () => require.resolve('better-sqlite3'),
        import: () => import('better-sqlite3'),
        builtin: () => import('node:sqlite'),
        dlopen: () => process.dlopen({exports: {}}, '/x/better_sqlite3.node'),
        worker: () => new Promise((resolve, reject) => {
            new Worker(`require('better-sqlite3')`, {eval: true, env: {}, execArgv: []}).on('error', reject).on('exit', resolve);
        }),
        child: () => {
            const {stdout} = spawnSync(process.execPath, ['-e', inside], {env: {}, encoding: 'utf8'});
            throw Object.assign(new Error(stdout), {code: stdout});
        }
    };
    const passed = [];
    for (const [name, attempt] of Object.entries(attempts)) if (!await refused(attempt)) passed.push(name);
    process.stdout.write(JSON.stringify({attempts: Object.keys(attempts).length, passed}));
})();
