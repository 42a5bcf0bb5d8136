// Runs inside the container, sent there as text: the twin of inside.py for images with Node and better-sqlite3.
// Nothing of Neo is imported, because importing it opens and stamps the graph.
'use strict';
const crypto = require('crypto'), fs = require('fs'), os = require('os'), path = require('path');
const {createRequire} = require('module');

const LABEL  = "CASE WHEN json_valid(data) THEN json_extract(data, '$.label') END";
const ASKED  = `SELECT CAST(data AS BLOB) AS data FROM main.Nodes WHERE ${LABEL} = ?`;
const COUNTS = `SELECT ${LABEL} AS label, count(*) AS n FROM main.Nodes GROUP BY 1`;

const write = data => { for (let at = 0; at < data.length;) {
    try { at += fs.writeSync(1, data, at); } catch (error) { if (error.code !== 'EAGAIN') throw error; }
} };
const say = value => write(Buffer.from(JSON.stringify(value) + '\n'));

function driver() {
    for (const from of [process.cwd(), '/app', '/proc/1/cwd']) {
        try { return createRequire(path.join(from, 'x.js'))('better-sqlite3'); }
        catch (error) { if (error.code !== 'MODULE_NOT_FOUND') throw error; }
    }
    throw new Error('better-sqlite3 is not found from the working directory, /app or /proc/1/cwd');
}

const head = graph => ({reader: `node ${process.versions.node}, sqlite ${
    graph.prepare('SELECT sqlite_version() AS v').get().v}`, now: Date.now()});
const counts = graph => Object.fromEntries(graph.prepare(COUNTS).all().map(row => [row.label || '', row.n]));

function facts(graph, orders) {
    let revision = null;
    try { revision = fs.readFileSync('/app/.neo-revision', 'utf8').slice(0, 200).trim(); } catch { /* older images */ }
    say({counts: counts(graph), bytes: fs.statSync(orders.db).size, revision});
    return 1;
}

function nodes(graph, orders) {
    let sql = ASKED, number = 0;
    const parameters = [orders.label];
    if (orders.since) {
        sql += " AND json_extract(data, '$.properties.archivedAt') >= ?";
        parameters.push(orders.since);
    }
    if (orders.tokens) {
        sql += " AND json_extract(data, '$.properties.sequenceId') IN (SELECT value FROM json_each(?))";
        parameters.push(JSON.stringify(orders.tokens));
    }
    for (const row of graph.prepare(sql).iterate(...parameters)) {
        say(row.data.toString('base64'));
        number++;
    }
    return number;
}

async function backup(graph, orders) {
    const room = fs.statSync(orders.db).size + (16 << 20);
    const place = [os.tmpdir(), path.dirname(orders.db)].find(folder => {
        try {
            fs.accessSync(folder, fs.constants.W_OK);
            const disk = fs.statfsSync(folder);
            return disk.bavail * disk.bsize > room;
        } catch { return false; }
    });
    if (!place) throw new Error(`neither the temporary folder nor the graph's has ${room} bytes free for a copy`);
    const folder = fs.mkdtempSync(path.join(place, 'nl-cutover-'));
    const digest = crypto.createHash('sha256');
    let bytes = 0, held;
    try {
        const copy = path.join(folder, 'copy.sqlite');
        graph.exec('BEGIN');
        held = counts(graph);
        await graph.backup(copy);
        const made = new graph.constructor(copy);
        made.pragma('journal_mode = DELETE');  // whoever opens the copy leaves nothing beside it
        made.close();
        const file = fs.openSync(copy, 'r'), chunk = Buffer.alloc(1 << 20);
        for (let read; (read = fs.readSync(file, chunk)) > 0; bytes += read) {
            digest.update(chunk.subarray(0, read));
            write(chunk.subarray(0, read));
        }
        fs.closeSync(file);
    } finally { fs.rmSync(folder, {recursive: true, force: true}); }
    fs.writeSync(2, JSON.stringify({...head(graph), counts: held, sha256: digest.digest('hex'), bytes}));
}

require('readline').createInterface({input: process.stdin}).once('line', async line => {
    try {
        const orders = JSON.parse(line);
        const graph = new (driver())(orders.db, {readonly: true, fileMustExist: true, timeout: 5000});
        graph.pragma('query_only = 1');
        write(Buffer.from('nl-cutover reads:\n'));
        if (orders.op === 'backup') await backup(graph, orders);
        else {
            say(head(graph));
            say({end: {facts, nodes}[orders.op](graph, orders)});
        }
        process.exit(0);
    } catch (error) {
        fs.writeSync(2, String(error && error.message || error));
        process.exit(1);
    }
});
