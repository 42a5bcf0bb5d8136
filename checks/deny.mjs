/*
 * The same guard for `NODE_OPTIONS='--import /path/to/deny.mjs'`; with `?hooks` it is the module that deny.cjs
 * registers on a Node whose module hooks run in a thread of their own (20.6 to 22.14).
 */
import {createRequire} from 'node:module';
import {fileURLToPath} from 'node:url';

const guard = createRequire(import.meta.url)('./deny.cjs');

export async function resolve(specifier, context, next) {
    if (guard.denied(specifier)) guard.refuse(specifier, 'import');
    const found = await next(specifier, context);
    if (guard.denied(found.url)) guard.refuse(found.url, 'import');
    if (found.url.endsWith('.node')) guard.guardAddon(fileURLToPath(found.url), 'import');
    return found;
}
