// The table of docs/SERVER.md, field by field and endpoint by endpoint, through the packages that people use.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {after, before, test} from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import {startServer} from './server.mjs';

const tool = {type: 'function', function: {name: 'f', parameters: {type: 'object', properties: {}}}};
const flat = {type: 'function', name: 'f', parameters: {type: 'object', properties: {}}, strict: false};
const custom = {name: 'f', input_schema: {type: 'object', properties: {}}};
const message = {role: 'user', content: 'Hi'};

// good: a value that is taken; bad: one that is refused. `with`: what must stand beside it. One for an endpoint wins.
const values = {
  model: {good: 'k3-nano', bad: 'gpt-4'},
  stream: {good: false, bad: 'x'},
  temperature: {good: 0.5, bad: 3},
  top_p: {good: 0.5, bad: 2},
  top_k: {good: 3, bad: 'x'},
  min_p: {good: 0.1, bad: 2},
  seed: {good: 3, bad: 'x'},
  presence_penalty: {good: 1, bad: 3},
  frequency_penalty: {good: 1, bad: 3},
  repetition_penalty: {good: 1.1, bad: 0},
  logit_bias: {good: {5: 1}, bad: {5: 101}},
  n: {good: 2, bad: 0},
  best_of: {good: 1, bad: 2},
  stop: {good: 'x', bad: 3},
  stop_sequences: {good: ['x'], bad: 3},
  max_tokens: {good: 2, bad: -1},
  max_completion_tokens: {good: 2, bad: 0},
  max_output_tokens: {good: 2, bad: 0},
  logprobs: {good: true, bad: 3, completions: {good: 1, bad: 'x'}},
  top_logprobs: {good: 1, bad: 21, with: {logprobs: true}, responses: {good: 0, bad: 2, with: {}}},
  echo: {good: true, bad: 3},
  suffix: {bad: 'end'},
  stream_options: {good: {include_usage: true}, bad: {x: 1}, with: {stream: true},
                   responses: {good: {include_obfuscation: false}, bad: {x: 1}}},
  tools: {good: [tool], bad: [{type: 'x'}], responses: {good: [flat], bad: [{type: 'x'}]},
          messages: {good: [custom], bad: [{type: 'x', name: 'y'}]}},
  tool_choice: {good: 'none', bad: 'x', messages: {good: {type: 'none'}, bad: {type: 'x'}}},
  parallel_tool_calls: {good: false, bad: 3},
  response_format: {good: {type: 'text'}, bad: {type: 'x'}},
  text: {good: {format: {type: 'text'}}, bad: {format: {type: 'x'}}},
  reasoning_effort: {good: 'low', bad: 'medium'},
  reasoning: {good: {effort: 'low'}, bad: {effort: 'medium'}},
  output_config: {good: {effort: 'low'}, bad: {effort: 'medium'}},
  thinking: {good: {type: 'disabled'}, bad: {type: 'x'}},
  chat_template_kwargs: {good: {thinking: false}, bad: {x: 1}},
  instructions: {good: 'Be brief.', bad: 3},
  system: {good: 'Be brief.', bad: 3},
  metadata: {good: {user_id: 'a'}},
  user: {good: 'a'},
  safety_identifier: {good: 'a'},
  prompt_cache_key: {good: 'a'},
  store: {good: false, bad: true},
  service_tier: {good: 'auto', bad: 'priority'},
  modalities: {good: ['text'], bad: ['audio']},
  truncation: {good: 'disabled', bad: 'auto'},
  include: {good: [], bad: ['x']},
  previous_response_id: {bad: 'resp_1'},
  background: {good: false, bad: true},
  functions: {bad: []},
  audio: {bad: {}},
  prediction: {bad: {}},
  mcp_servers: {bad: [1]},
};

let server, openai, anthropic;
before(async () => {
  server = await startServer();
  openai = new OpenAI({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0});
  anthropic = new Anthropic({baseURL: server.url, apiKey: 'none', maxRetries: 0});
});
after(() => server.stop());

const send = {
  chat: body => openai.chat.completions.create({messages: [message], max_tokens: 2, ...body}),
  completions: body => openai.completions.create({prompt: 'Once', max_tokens: 2, ...body}),
  responses: body => openai.responses.create({input: 'Hi', max_output_tokens: 2, ...body}),
  messages: body => anthropic.messages.create({messages: [message], max_tokens: 2, ...body}),
};

async function taken(api, field, value, beside) {
  const reply = await send[api]({...beside, [field]: value});
  if (!beside?.stream) return;
  for await (const _ of reply) ;
}

async function refused(api, field, value, beside) {
  await assert.rejects(async () => send[api]({...beside, [field]: value}), error => {
    assert.ok([400, 404].includes(error.status), `${error.status} ${error.message}`);
    const text = api === 'messages' ? error.message : error.param ?? error.message;
    assert.ok(text.includes(field), `${field}: ${error.message}`);
    return true;
  });
}

const table = readFileSync(new URL('../../docs/SERVER.md', import.meta.url), 'utf8').split('\n')
    .map(line => /^\| `(\w+)` \|(.*)\|$/.exec(line)).filter(match => match)
    .map(match => [match[1], match[2].split('|').map(cell => cell.trim())]);
const apis = ['chat', 'completions', 'responses', 'messages'];

test('the table and the values here are about the same fields', () => {
  assert.deepEqual(table.map(([field]) => field).sort(), Object.keys(values).sort());
});

for (const [field, cells] of table) {
  for (const [i, api] of apis.entries()) {
    const value = {...values[field], ...values[field]?.[api]};
    test(`${api}: ${field}: ${cells[i]}`, async () => {
      const word = cells[i].split(' ')[0];
      if (word === '–') return refused(api, field, value.good ?? value.bad);
      if (word !== 'refused') await taken(api, field, value.good, value.with);
      if (word !== 'taken') await refused(api, field, value.bad, value.with);
    });
  }
}
