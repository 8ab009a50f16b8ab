// curl, and the life of the program: keys, and SIGTERM in the middle of a stream.
import assert from 'node:assert/strict';
import {execFile, spawn} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {test} from 'node:test';
import {promisify} from 'node:util';
import {answer, program, question, startServer} from './server.mjs';

const run = promisify(execFile);
const curl = async (...options) => (await run('curl', ['--silent', '--show-error', ...options])).stdout;
const body = extra => JSON.stringify(
    {messages: [{role: 'user', content: question}], temperature: 0, reasoning_effort: 'none', ...extra});
const json = ['--header', 'Content-Type: application/json'];

test('whole and streamed, with a key', async () => {
  const folder = mkdtempSync(tmpdir() + '/deltafin-keys-');
  writeFileSync(folder + '/keys', 'a-long-key\n');
  const server = await startServer('--api-key-file', folder + '/keys');
  const path = server.url + '/v1/chat/completions', key = ['--header', 'Authorization: Bearer a-long-key'];
  assert.equal(JSON.parse(await curl(path, ...json, '--data', body())).error.type, 'authentication_error');
  assert.equal(JSON.parse(await curl(path, ...json, ...key, '--data', body())).choices[0].message.content, answer);
  const events = await curl(path, ...json, ...key, '--no-buffer', '--data', body({stream: true}));
  assert.match(events, /data: \[DONE\]\n\n$/);
  rmSync(folder, {recursive: true});
  assert.equal(await server.stop(), 0);
});

test('SIGTERM ends streams with an error within five seconds', async () => {
  const server = await startServer();
  const client = spawn('curl', ['--silent', '--no-buffer', server.url + '/v1/chat/completions', ...json, '--data',
      body({stream: true, temperature: 1, logit_bias: {7938: -100, 7937: -100, 7940: -100}})]);
  let events = '';
  client.stdout.on('data', data => { events += data; });
  const closed = new Promise(resolve => client.on('close', resolve));
  while (events.split('\n').length < 10) await new Promise(resolve => setTimeout(resolve, 20));
  const start = Date.now();
  assert.equal(await server.stop(), 0);
  await closed;
  assert.ok(Date.now() - start < 5000);
  assert.match(events, /data: \{"error"/);
});

test('a host that is not loopback needs a key or a flag', async () => {
  const refused = await run(program, ['serve', '--model', '.', '--host', '0.0.0.0']).catch(error => error);
  assert.equal(refused.code, 2);
  assert.match(refused.stderr, /--api-key-file/);
});
