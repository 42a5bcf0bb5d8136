"""A recorder that does not know of the cut: writes rows in bursts and says of each what it was told.

usage: writer.py STORE SEED; ends when its stdin closes or after ten refusals in a row.
"""

import json
import random
import select
import sqlite3
import sys
import time

store, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
connection = sqlite3.connect(store, isolation_level=None, timeout=5)
refused = number = 0
while refused < 10 and not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(rng.randint(1, 4)):
        number += 1
        name = f"py-{seed}-{number}"
        writer = json.dumps({"agentId": "py", "sessionId": "s"})
        try:
            if rng.random() < 0.5:
                connection.execute(
                    "INSERT INTO nl_transaction_archive (archive_id, source_tx_id, origin_writer, archived_at, ops) "
                    "VALUES (?, ?, ?, 1, '[{\"a\":1}]')",
                    (name, name, writer),
                )
            else:
                connection.execute(
                    "INSERT INTO nl_action_log (id, agent_id, sequence_id, timestamp, tool, args) "
                    "VALUES (?, 'py', 's', 1, ?, '{}')",
                    (name, name),
                )
            print("stored", name, flush=True)
            refused = 0
        except sqlite3.Error as error:
            print("refused", name, error, flush=True)
            refused += 1
    # Longer pauses as it goes on, so that a slow machine gets to the end of the race as well.
    time.sleep(rng.choice((0.0, 0.01, 0.3, 0.6)) * (1 + number // 40))
