// A Node host over stdio, on the MCP TypeScript SDK: makes the calls that stand in a JSON file and prints what it heard.
// usage: node bridge_host.mjs CALLS.json COMMAND [ARG...], started where the SDK can be resolved
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';

const require = createRequire(join(process.cwd(), 'x.js'));
const {Client} = require('@modelcontextprotocol/sdk/client/index.js');
const {StdioClientTransport} = require('@modelcontextprotocol/sdk/client/stdio.js');

const [calls, command, ...args] = process.argv.slice(2);
const client = new Client({name: 'host', version: '1.0.0'});
const heard = {initiated: [], answers: []};

client.fallbackRequestHandler = async request => {
    heard.initiated.push(request.method);
    return {};
};
await client.connect(new StdioClientTransport({command, args, env: process.env, stderr: 'inherit'}));
heard.capabilities = client.getServerCapabilities();
heard.tools = (await client.listTools()).tools;

let last = null;
for (const {name, arguments: given} of JSON.parse(readFileSync(calls, 'utf8'))) {
    const filled = given?.archiveId === '$LAST' ? {archiveId: last} : given;
    const result = await client.callTool({name, arguments: filled});
    const text = result.content.map(block => block.text).join('');
    const value = result.isError ? null : JSON.parse(text);
    last = value?.archiveId ?? last;
    heard.answers.push({isError: result.isError ?? false, text, value, structured: result.structuredContent ?? null});
}
await client.close();
console.log(JSON.stringify(heard));
