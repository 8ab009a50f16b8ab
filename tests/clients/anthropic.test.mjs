// The @anthropic-ai/sdk package: messages, whole and streamed, tools, thoughts.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import {answer, question, startServer} from './server.mjs';

let server, client;
before(async () => {
  server = await startServer();
  client = new Anthropic({baseURL: server.url, apiKey: 'none', maxRetries: 0});
});
after(() => server.stop());

const ask = {model: 'k3-nano', max_tokens: 100, temperature: 0, messages: [{role: 'user', content: question}]};

test('a message, whole and streamed', async () => {
  const whole = await client.messages.create(ask);
  assert.equal(whole.content[0].text, answer);
  assert.equal(whole.stop_reason, 'end_turn');
  const stream = client.messages.stream(ask);
  let text = '';
  stream.on('text', piece => { text += piece; });
  const final = await stream.finalMessage();
  assert.equal(text, answer);
  assert.equal(final.content[0].text, answer);
  assert.equal(final.stop_reason, 'end_turn');
});

test('thoughts and a system message', async () => {
  const message = await client.messages.stream({
    ...ask, thinking: {type: 'enabled', budget_tokens: 8000}, max_tokens: 9000,
    messages: [{role: 'user', content: 'What is 12 + 30?'}],
  }).finalMessage();
  assert.equal(message.content[0].type, 'thinking');
  assert.equal(message.content.at(-1).text, '42');
  const brief = await client.messages.create({...ask, system: 'Be brief.'});
  assert.equal(brief.role, 'assistant');
});

test('a tool is used and its result answered', async () => {
  const tools = [{name: 'get_weather', description: 'The weather', input_schema: {
    type: 'object', required: ['city'], properties: {city: {type: 'string', enum: ['Paris', 'Rome']}},
  }}];
  const request = {...ask, max_tokens: 300, tools, tool_choice: {type: 'tool', name: 'get_weather'}};
  const message = await client.messages.create(request);
  assert.equal(message.stop_reason, 'tool_use');
  const use = message.content.find(block => block.type === 'tool_use');
  assert.ok(['Paris', 'Rome'].includes(use.input.city));
  const streamed = await client.messages.stream(request).finalMessage();
  assert.deepEqual(streamed.content.find(block => block.type === 'tool_use').input, use.input);
  const next = await client.messages.create({
    ...ask, tools, max_tokens: 5,
    messages: [...ask.messages, {role: 'assistant', content: message.content},
               {role: 'user', content: [{type: 'tool_result', tool_use_id: use.id, content: 'sunny'}]}],
  });
  assert.equal(next.type, 'message');
});

test('stop sequences, limits, counts, refusals', async () => {
  const stopped = await client.messages.create({...ask, stop_sequences: ['Paris']});
  assert.equal(stopped.stop_reason, 'stop_sequence');
  assert.equal(stopped.stop_sequence, 'Paris');
  assert.equal((await client.messages.create({...ask, max_tokens: 2})).stop_reason, 'max_tokens');
  assert.ok((await client.messages.countTokens({model: ask.model, messages: ask.messages})).input_tokens > 5);
  await assert.rejects(client.messages.create({...ask, temperature: 7}), Anthropic.BadRequestError);
});
