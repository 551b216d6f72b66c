// Generates a TypeScript client from the OpenAPI document and calls every operation with it.
//
// Usage: typescript.mjs CALLS.json, in a writable folder with node_modules. The calls are written as a program, so that the
// compiler checks parameters, bodies and answers against the types.
import { execFileSync } from "node:child_process";
import { request } from "node:http";
import { readFileSync, writeFileSync } from "node:fs";

const given = JSON.parse(readFileSync(process.argv[2], "utf8"));

// fetch does not let callers set the host, and not every system resolves names below localhost.
const send = (url, method, headers, body) => new Promise((done, fail) => {
  request(url, { method, headers: { ...headers, host: given.host } }, async (answer) => {
    let all = "";
    for await (const part of answer) all += part;
    done(new Response(answer.statusCode === 204 ? null : all, { status: answer.statusCode, headers: { "content-type": answer.headers["content-type"] } }));
  }).on("error", fail).end(body);
});
const text = await (await send(`${given.url}/api/openapi.json`, "GET")).text();
writeFileSync("openapi.json", text);
const run = (program, ...args) => execFileSync(`node_modules/.bin/${program}`, args, { stdio: "inherit" });
run("openapi-typescript", "openapi.json", "--output", "schema.ts", "--default-non-nullable", "false");

const called = new Set([...given.calls.map((call) => call.id), ...given.left_out]);
const missing = Object.values(JSON.parse(text).paths).flatMap((item) => Object.values(item))
  .map(({ operationId }) => operationId).filter((id) => !called.has(id));
if (missing.length) throw new Error(`no calls of ${missing}`);
const lines = given.calls.map(({ id, method, path, params, query, header, body, headers, code, streams }) => {
  const options = (credential, parseAs) => JSON.stringify({
    headers: credential,
    params: { path: orNothing(params), query: orNothing(query), header: orNothing(header) },
    body,
    parseAs,
  });
  const call = (credential, parseAs) => `client.${method}(${JSON.stringify(path)}, ${options(credential, parseAs)})`;
  const refused = orNothing(headers) ? `refused("${id}", await ${call({})});\n` : "";
  if (code === 204) return `${refused}emptied("${id}", await ${call(headers)});`;
  return refused + (streams
    ? `streamed("${id}", await ${call(headers, "text")});`
    : `succeeded("${id}", ${code}, await ${call(headers)});`);
});
function orNothing(object) {
  return Object.keys(object).length ? object : undefined;
}

writeFileSync("calls.ts", `
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

export default async function (send: (r: Request) => Promise<Response>) {
const querySerializer = { object: { style: "form", explode: true } } as const; // as the document says
const client = createClient<paths>({ baseUrl: ${JSON.stringify(given.url)}, fetch: send, querySerializer });
type Any<T> = 0 extends 1 & T ? true : false;
type Success<T> = T extends { status: "ok" } ? T : never;
// The type of the data must be known: neither any, unknown nor never.
type Known<D> = Any<D> extends true ? never : unknown extends D ? never : [D] extends [never] ? never : D;

let faults = 0, count = 0;
function fault(id: string, what: unknown) {
  faults++;
  console.log(id, JSON.stringify(what));
}
function succeeded<T extends { status: string; data: unknown }>(id: string, code: number, answer: { data?: T; response: Response }) {
  count++;
  if (answer.response.status !== code || answer.data?.status !== "ok") return fault(id, answer);
  const data: Known<Success<T>["data"]> = (answer.data as Success<T>).data as Known<Success<T>["data"]>;
  if (typeof data !== "object" || data === null) fault(id, answer);
}
function emptied(id: string, answer: { response: Response }) {
  count++;
  if (answer.response.status !== 204) fault(id, answer);
}
function streamed(id: string, answer: { data?: string; response: Response }) {
  count++;
  if (answer.response.status !== 200 || !answer.data) fault(id, answer);
}
function refused(id: string, answer: { error?: { status: string; message: string }; response: Response }) {
  if (answer.response.status !== 403 || answer.error?.status !== "failed") fault(id, answer);
}
${lines.join("\n")}
return { count, faults };
}
`);
run("tsc", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable", "--outDir", "out", "calls.ts");
const { default: call } = await import(`${process.cwd()}/out/calls.js`);
const { count, faults } = await call(async (r) => send(r.url, r.method, Object.fromEntries(r.headers), await r.text()));
console.log(`TypeScript: ${count} operations`);
process.exit(faults ? 1 : 0);
