// The openai package: chat completions, completions and responses, whole and streamed.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import OpenAI from 'openai';
import {answer, question, startServer} from './server.mjs';

let server, client;
before(async () => {
  server = await startServer();
  client = new OpenAI({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0});
});
after(() => server.stop());

const ask = {model: 'k3-nano', temperature: 0, reasoning_effort: 'none', messages: [{role: 'user', content: question}]};
const weather = {
  type: 'function',
  function: {
    name: 'get_weather', description: 'The weather of a city',
    parameters: {type: 'object', required: ['city'], properties: {city: {type: 'string', enum: ['Paris', 'Rome']}}},
  },
};

test('models', async () => {
  const models = await client.models.list();
  assert.equal(models.data[0].id, 'k3-nano');
});

test('a chat, whole and streamed', async () => {
  const whole = await client.chat.completions.create(ask);
  assert.equal(whole.choices[0].message.content, answer);
  assert.equal(whole.choices[0].finish_reason, 'stop');
  const stream = await client.chat.completions.create({...ask, stream: true, stream_options: {include_usage: true}});
  let text = '', usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, answer);
  assert.deepEqual({...usage, prompt_tokens_details: 0}, {...whole.usage, prompt_tokens_details: 0});
});

test('the helper that puts a stream together gives the same message', async () => {
  const runner = client.chat.completions.stream({...ask, reasoning_effort: 'high', messages: [{role: 'user', content: 'What is 12 + 30?'}]});
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, '42');
});

test('thoughts are apart from the answer', async () => {
  const reply = await client.chat.completions.create(
      {...ask, reasoning_effort: 'high', messages: [{role: 'user', content: 'What is 12 + 30?'}]});
  assert.equal(reply.choices[0].message.content, '42');
  assert.match(reply.choices[0].message.reasoning_content, /Add the ones/);
  assert.ok(reply.usage.completion_tokens_details.reasoning_tokens > 10);
});

test('a tool is called, its result answered, streamed and not', async () => {
  const request = {...ask, tools: [weather], tool_choice: 'required', max_tokens: 300, parallel_tool_calls: false};
  const reply = await client.chat.completions.create(request);
  const message = reply.choices[0].message;
  assert.equal(message.tool_calls[0].function.name, 'get_weather');
  assert.ok(['Paris', 'Rome'].includes(JSON.parse(message.tool_calls[0].function.arguments).city));
  const streamed = await client.chat.completions.stream(request).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.tool_calls[0].function.arguments,
                   message.tool_calls[0].function.arguments);
  const next = await client.chat.completions.create({
    ...ask, tools: [weather], max_tokens: 5,
    messages: [...ask.messages, message, {role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'sunny'}],
  });
  assert.ok(next.usage.completion_tokens > 0);
});

test('a schema is kept to', async () => {
  for (let seed = 0; seed < 5; ++seed) {
    const reply = await client.chat.completions.create({
      ...ask, temperature: 1, seed, max_tokens: 80,
      response_format: {
        type: 'json_schema',
        json_schema: {name: 'city', strict: true, schema: {
          type: 'object', additionalProperties: false, required: ['name', 'size'],
          properties: {name: {type: 'string', maxLength: 10}, size: {type: 'integer', minimum: 0, maximum: 99}},
        }},
      },
    });
    const value = JSON.parse(reply.choices[0].message.content);
    assert.deepEqual(Object.keys(value), ['name', 'size']);
    assert.ok(Number.isInteger(value.size) && value.size >= 0 && value.size <= 99);
  }
});

test('completions', async () => {
  const reply = await client.completions.create(
      {model: 'k3-nano', prompt: 'The capital of France is', temperature: 0, max_tokens: 3, echo: true, logprobs: 1});
  assert.match(reply.choices[0].text, /^The capital of France is Paris\./);
  assert.equal(reply.choices[0].logprobs.tokens.length, reply.choices[0].logprobs.token_logprobs.length);
});

test('responses, whole and streamed', async () => {
  const request = {model: 'k3-nano', input: question, temperature: 0, reasoning: {effort: 'none'}, store: false};
  const whole = await client.responses.create(request);
  assert.equal(whole.output_text, answer);
  const stream = client.responses.stream(request);
  let text = '';
  stream.on('response.output_text.delta', event => { text += event.delta; });
  const final = await stream.finalResponse();
  assert.equal(text, answer);
  assert.equal(final.output_text, answer);
  const called = await client.responses.create({
    ...request, tools: [{type: 'function', name: 'get_weather', parameters: weather.function.parameters, strict: false}],
    tool_choice: 'required', parallel_tool_calls: false, max_output_tokens: 300,
  });
  const call = called.output.find(item => item.type === 'function_call');
  assert.ok(['Paris', 'Rome'].includes(JSON.parse(call.arguments).city));
  const next = await client.responses.create({
    ...request, max_output_tokens: 5,
    input: [{role: 'user', content: question}, ...called.output,
            {type: 'function_call_output', call_id: call.call_id, output: 'sunny'}],
  });
  assert.equal(next.object, 'response');
});

test('a stream that is given up is given up by the server', async () => {
  const controller = new AbortController();
  const stream = await client.chat.completions.create(
      {...ask, stream: true, temperature: 1, logit_bias: {7938: -100, 7937: -100, 7940: -100}}, {signal: controller.signal});
  let pieces = 0;
  try {
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content && ++pieces === 3) controller.abort();
  } catch {
    // some versions throw, some end
  }
  for (let i = 0; i < 100; ++i) {
    const live = await (await fetch(server.url + '/v1/live')).json();
    if (live.live === 0) return;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  assert.fail('the request is live still');
});

test('refusals are the errors that the package knows', async () => {
  await assert.rejects(client.chat.completions.create({...ask, temperature: 9}), error => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    return true;
  });
  await assert.rejects(client.chat.completions.create({...ask, model: 'gpt-4'}), OpenAI.NotFoundError);
});
