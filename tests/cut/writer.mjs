// The same recorder on better-sqlite3, the driver that Neo's own recorder uses.
// usage: node writer.mjs STORE SEED, started where better-sqlite3 can be resolved
import {createRequire} from 'node:module';
import {join} from 'node:path';

const require = createRequire(join(process.cwd(), 'x.js'));
const Database = require('better-sqlite3');
const [store, seed] = process.argv.slice(2);
let state = Number(seed) || 1;
const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
const db = new Database(store);
const archive = db.prepare(`INSERT INTO nl_transaction_archive (archive_id, source_tx_id, origin_writer, archived_at, ops)
    VALUES (?, ?, ?, 1, '[{"a":1}]')`);
const action = db.prepare(`INSERT INTO nl_action_log (id, agent_id, sequence_id, timestamp, tool, args)
    VALUES (?, 'js', 's', 1, ?, '{}')`);
let refused = 0, number = 0, ended = false;
process.stdin.on('end', () => { ended = true; }).resume();
while (refused < 10 && !ended) {
    for (let i = 0, n = 1 + Math.floor(random() * 4); i < n; i++) {
        const name = `js-${seed}-${++number}`;
        try {
            random() < 0.5 ? archive.run(name, name, '{"agentId":"js","sessionId":"s"}') : action.run(name, name);
            console.log(`stored ${name}`);
            refused = 0;
        } catch (error) {
            console.log(`refused ${name} ${error.message}`);
            refused++;
        }
    }
    const pause = [0, 10, 300, 600][Math.floor(random() * 4)] * (1 + Math.floor(number / 40)); // see writer.py
    await new Promise(done => setTimeout(done, pause));
}
process.exit(0);
