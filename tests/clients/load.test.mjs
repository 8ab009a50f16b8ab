// Many clients at once, not all of them well-behaved: nothing breaks, every accepted request is answered once and
// rightly, memory stays flat. LOAD_REQUESTS (default 240) and LOAD_CLIENTS (default 24): how many. The whole load is
// LOAD_REQUESTS=2000 LOAD_CLIENTS=64; a short one ends before every thread and cache has what it will ever have.
// LOAD_MEMORY=ignore: a build with sanitizers, which keep what was freed.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import net from 'node:net';
import {test} from 'node:test';
import {startServer} from './server.mjs';

const requests = Number(process.env.LOAD_REQUESTS || 240), clients = Number(process.env.LOAD_CLIENTS || 24);
const bursts = 5;
const known = [
  ['What is the capital of France?', 'none', 'The capital of France is Paris.'],
  ['What is the capital of Japan?', 'max', 'The capital of Japan is Tokyo.'],
  ['Who are you?', 'low', 'I am a tiny demo model with the Kimi K3 architecture.'],
  ['What is 12 + 30?', 'high', '42'],
];

// The same numbers every time.
function randomNumbers(seed) {
  let state = seed;
  return below => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state % below;
  };
}

const body = ([text, effort], extra) => JSON.stringify(
    {messages: [{role: 'user', content: text}], temperature: 0, reasoning_effort: effort, ...extra});
const post = (url, text, options = {}) => fetch(url + '/v1/chat/completions',
    {method: 'POST', headers: {'Content-Type': 'application/json'}, body: text, ...options});

async function answered(url, which, stream, counts) {
  const reply = await post(url, body(which, {stream}));
  if (reply.status === 429) {
    assert.ok(reply.headers.get('retry-after'));
    ++counts.refused;
    return void await reply.text();
  }
  assert.equal(reply.status, 200);
  let content;
  if (stream) {
    const text = await reply.text();
    assert.equal(text.split('data: [DONE]').length, 2);
    content = text.split('\n').filter(line => line.startsWith('data: {'))
        .map(line => JSON.parse(line.slice(6)).choices[0]?.delta.content ?? '').join('');
  } else {
    content = (await reply.json()).choices[0].message.content;
  }
  assert.equal(content, which[2]);
  ++counts.answered;
}

async function cancelled(url, which, random) {
  const controller = new AbortController();
  const going = post(url, body(which, {stream: random(2) === 0, temperature: 2, max_tokens: 500}), {signal: controller.signal})
      .then(reply => reply.text());
  setTimeout(() => controller.abort(), random(60));
  await going.catch(() => {});
}

// What is no request, a body that is too large, or one that never ends.
function rawBytes(url, text, patience) {
  const {hostname, port} = new URL(url);
  return new Promise(resolve => {
    const socket = net.connect(Number(port), hostname, () => socket.write(text));
    socket.on('data', () => {});
    socket.on('error', resolve);
    socket.on('close', resolve);
    setTimeout(() => socket.destroy(), patience);
  });
}

// Reads a stream, but hardly.
async function slow(url, which) {
  const text = body(which, {stream: true});
  const {hostname, port} = new URL(url);
  await new Promise(resolve => {
    const socket = net.connect(Number(port), hostname, () => socket.write(
        `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`));
    socket.pause();
    const timer = setInterval(() => socket.read(16), 20);
    setTimeout(() => {
      clearInterval(timer);
      socket.destroy();
      resolve();
    }, 300);
    socket.on('error', () => {});
  });
}

const resident = pid => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);

async function oneRequest(url, random, counts) {
  const which = known[random(known.length)];
  switch (random(10)) {
    case 0:
    case 1:
      return cancelled(url, which, random);
    case 2: {
      const reply = await post(url, ['{', '[]', '{"messages": 3}', '{"messages": []}', '\u0000'][random(5)]);
      assert.equal(reply.status, 400);
      return void await reply.text();
    }
    case 3:
      return random(2) === 0
          ? rawBytes(url, 'GARBAGE '.repeat(random(50)) + '\r\n\r\n', 100)
          : rawBytes(url, 'POST /v1/tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n' + 'x'.repeat(100000), 200);
    case 4:
      return slow(url, which);
    default:
      return answered(url, which, random(2) === 0, counts);
  }
}

async function round(url, count, seed, counts) {
  let left = count;
  await Promise.all(Array.from({length: clients}, async (_, i) => {
    const random = randomNumbers(seed + i);
    while (left-- > 0) await oneRequest(url, random, counts);
  }));
}

test(`${requests} requests of ${clients} clients`, {timeout: 3600_000}, async () => {
  const server = await startServer('--max-body', '1MB', '--max-queue', '128', '--max-queue-per-client', '128');
  const counts = {answered: 0, refused: 0};
  try {
    // All clients begin at once, which takes the most memory: some such beginnings come before what is compared.
    for (let i = 0; i < bursts; ++i) await round(server.url, requests / 2 / bursts, 1 + 1000 * i, counts);
    const before = resident(server.pid);
    await round(server.url, requests / 2, 1000 * bursts, counts);
    // What was given up ends within a step.
    for (let i = 0; i < 200; ++i) {
      const live = await (await fetch(server.url + '/v1/live')).json();
      if (live.live === 0 && live.queued === 0) break;
      await new Promise(resolve => setTimeout(resolve, 50));
    }
    const after = resident(server.pid), metrics = await (await fetch(server.url + '/metrics')).text();
    const metric = name => Number(new RegExp(`^deltafin_${name} (\\d+)`, 'm').exec(metrics)[1]);
    console.log(`answered ${counts.answered}, refused ${counts.refused}, memory ${before} -> ${after} kB`);
    assert.equal(metric('requests_live'), 0);
    assert.equal(metric('requests_queued'), 0);
    assert.equal(metric('requests_failed_total'), 0);
    assert.equal(metric('requests_accepted_total'), metric('requests_completed_total') + metric('requests_cancelled_total'));
    assert.ok(counts.answered > requests / 4);
    const more = requests < 1000 ? 16_000 : before * 0.05;
    assert.ok(process.env.LOAD_MEMORY === 'ignore' || after < before + more, `memory grew from ${before} to ${after} kB`);
  } finally {
    assert.equal(await server.stop(), 0, server.said());
  }
});
