// The Vercel AI SDK: ai with @ai-sdk/openai-compatible.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {generateText, jsonSchema, Output, streamText, tool} from 'ai';
import {answer, question, startServer} from './server.mjs';

let server, model;
before(async () => {
  server = await startServer();
  const provider = createOpenAICompatible(
      {name: 'deltafin', baseURL: server.url + '/v1', includeUsage: true, supportsStructuredOutputs: true});
  model = provider('k3-nano');
});
after(() => server.stop());

const off = {providerOptions: {deltafin: {reasoningEffort: 'none'}}};

test('text, whole and streamed', async () => {
  const whole = await generateText({model, prompt: question, temperature: 0, ...off});
  assert.equal(whole.text, answer);
  const stream = streamText({model, prompt: question, temperature: 0, ...off});
  let text = '';
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, answer);
  assert.ok((await stream.usage).outputTokens > 3);
});

test('thoughts', async () => {
  const reply = await generateText(
      {model, prompt: 'What is 12 + 30?', temperature: 0, providerOptions: {deltafin: {reasoningEffort: 'high'}}});
  assert.equal(reply.text, '42');
  assert.match(reply.reasoningText, /Add the ones/);
});

test('a tool', async () => {
  const weather = tool({
    description: 'The weather',
    inputSchema: jsonSchema({type: 'object', required: ['city'], properties: {city: {type: 'string', enum: ['Paris', 'Rome']}}}),
  });
  const reply = await generateText(
      {model, prompt: question, temperature: 0, maxOutputTokens: 300, tools: {weather}, toolChoice: 'required', ...off});
  assert.equal(reply.toolCalls[0].toolName, 'weather');
  assert.ok(['Paris', 'Rome'].includes(reply.toolCalls[0].input.city));
});

test('an object of a schema', async () => {
  const schema = jsonSchema({type: 'object', required: ['n'], additionalProperties: false,
                             properties: {n: {type: 'integer', minimum: 1, maximum: 9}}});
  const reply = await generateText(
      {model, prompt: question, temperature: 1, maxOutputTokens: 80, output: Output.object({schema}), ...off});
  assert.ok(reply.output.n >= 1 && reply.output.n <= 9);
});
