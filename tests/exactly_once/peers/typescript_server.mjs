// The operations on the MCP TypeScript SDK over Express, everything in memory, arranged as the SDK's examples do it.
// usage: node typescript_server.mjs PORT [json] [stateless], started where its packages can be resolved;
// it prints its URL once it listens
import {randomUUID} from 'node:crypto';
import {createRequire} from 'node:module';
import {join} from 'node:path';

const require = createRequire(join(process.cwd(), 'x.js'));
const {createMcpExpressApp} = require('@modelcontextprotocol/sdk/server/express.js');
const {McpServer} = require('@modelcontextprotocol/sdk/server/mcp.js');
const {StreamableHTTPServerTransport} = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const {isInitializeRequest} = require('@modelcontextprotocol/sdk/types.js');
const z = require('zod');

const enableJsonResponse = process.argv.includes('json');
const stateless = process.argv.includes('stateless');
const archives = new Map();
const executed = {save: 0, mark: 0, admit: 0, actions: 0};

const answer = value => ({content: [{type: 'text', text: JSON.stringify(value)}], structuredContent: value});

function buildServer() {
    const server = new McpServer({name: 'typescript-peer', version: '1.0.0'});

    server.registerTool('save_nl_transaction', {
        inputSchema: {
            transaction: z.looseObject({}),
            appSessionId: z.string().nullable().optional(),
            name: z.string().nullable().optional()
        }
    }, ({transaction, appSessionId = null, name = null}) => {
        executed.save++;
        if (!Array.isArray(transaction.ops) || !transaction.ops.length) {
            return answer({saved: false, reason: 'invalid-transaction'});
        }
        const {txId: sourceTxId, originWriter, committedAt, ops} = transaction;
        const archiveId = randomUUID();
        archives.set(archiveId, {
            archiveId, name, sourceTxId, appSessionId, originWriter, committedAt, ops, replayCount: 0
        });
        return answer({saved: true, archiveId});
    });

    server.registerTool('get_nl_transaction', {inputSchema: {archiveId: z.string()}}, ({archiveId}) => {
        const found = archives.get(archiveId);
        return answer(found ? {status: 'found', ...found} : {status: 'not-found'});
    });

    server.registerTool('mark_nl_transaction_replayed', {inputSchema: {archiveId: z.string()}}, ({archiveId}) => {
        executed.mark++;
        const found = archives.get(archiveId);
        return answer(found ? {updated: true, replayCount: ++found.replayCount} : {updated: false, status: 'not-found'});
    });

    server.registerTool('admit_nl_actions', {
        inputSchema: {
            actions: z.array(z.object({
                sequenceId: z.string(),
                sessionId: z.string().nullable(),
                timestamp: z.number().nullable(),
                tool: z.string().nullable(),
                success: z.boolean(),
                durationMs: z.number().nullable(),
                appName: z.string().nullable(),
                targets: z.object({classNames: z.array(z.string()), componentIds: z.array(z.string())})
            }))
        }
    }, ({actions}) => {
        executed.admit++;
        executed.actions += actions.length;
        return answer({admitted: actions.length, refused: 0});
    });

    server.registerTool('healthcheck', {inputSchema: {}}, () =>
        answer({status: 'healthy', plane: {id: 'peer'}, executed}));

    return server;
}

const app = createMcpExpressApp();
const transports = new Map();

async function open(options) {
    const transport = new StreamableHTTPServerTransport({enableJsonResponse, ...options});
    await buildServer().connect(transport);
    return transport;
}

app.post('/mcp', async (request, response) => {
    const id = request.headers['mcp-session-id'];
    let transport = transports.get(id);
    if (stateless) {
        transport = await open({sessionIdGenerator: undefined});
        response.on('close', () => transport.close());
    } else if (!transport && !id && isInitializeRequest(request.body)) {
        transport = await open({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: sessionId => transports.set(sessionId, transport)
        });
        transport.onclose = () => transports.delete(transport.sessionId);
    } else if (!transport) {
        // What the SDK's example servers answered before they told a lost session by a 404.
        response.status(400).json({
            jsonrpc: '2.0',
            error: {code: -32000, message: 'Bad Request: No valid session ID provided'},
            id: null
        });
        return;
    }
    await transport.handleRequest(request, response, request.body);
});

app.delete('/mcp', async (request, response) => {
    const transport = transports.get(request.headers['mcp-session-id']);
    if (!transport) {
        response.status(405).end();
        return;
    }
    await transport.handleRequest(request, response);
});

const listener = app.listen(Number(process.argv[2]), '127.0.0.1', () =>
    console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
