// The page: conversations kept in the browser, answers streamed, the machine watched. Talks to this server only.
'use strict';
const $ = id => document.getElementById(id);
const store = {
  read(name, otherwise) {
    try {
      return JSON.parse(localStorage.getItem(name)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  write(name, value) {
    try {
      localStorage.setItem(name, JSON.stringify(value));
    } catch {
      note('The browser keeps no more: delete some conversations.');
    }
  },
};
let conversations = store.read('deltafin.conversations', []);
let settings = store.read('deltafin.settings', {effort: 'max'});
let current = conversations[0] || null;
let running = null;  // {controller, turn}

function headers() {
  const h = {'Content-Type': 'application/json'};
  if (settings.key) h.Authorization = 'Bearer ' + settings.key;
  return h;
}

function make(name, text, className) {
  const node = document.createElement(name);
  if (text) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function button(text, action) {
  const node = make('button', text);
  node.type = 'button';
  node.addEventListener('click', action);
  return node;
}

function note(text, bad = true) {
  const turn = make('div', '', 'turn');
  const line = make('div', text, bad ? 'note bad' : 'note');
  line.setAttribute('role', 'alert');
  turn.append(line);
  $('log').append(turn);
  toEnd();
}

const nearEnd = () => $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 80;
const toEnd = () => $('log').scrollTo(0, $('log').scrollHeight);

async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // no clipboard without a secure context
    const area = make('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  from.textContent = 'Copied';
  setTimeout(() => { from.textContent = 'Copy'; }, 1200);
}

// One turn's nodes, which a stream goes on filling.
class TurnView {
  constructor(turn, index) {
    this.turn = turn;
    this.root = make('article', '', 'turn ' + turn.role);
    this.root.setAttribute('aria-label', turn.role === 'user' ? 'You' : 'Answer');
    this.thought = make('details', '', 'thought');
    this.summary = make('summary', 'Thinking');
    this.thoughtText = make('div');
    this.thought.append(this.summary, this.thoughtText);
    this.body = make('div', '', 'body');
    this.status = make('div', '', 'note');
    this.tools = make('div', '', 'tools');
    const copyButton = button('Copy', () => copy(this.turn.content, copyButton));
    this.tools.append(copyButton);
    if (turn.role === 'assistant') this.tools.append(button('Retry', () => retry(index)));
    else this.tools.append(button('Edit', () => edit(index)));
    this.root.append(this.thought, this.body, this.status, this.tools);
    this.update(true);
  }
  update(finished) {
    const t = this.turn;
    this.thought.hidden = !t.reasoning;
    this.summary.textContent = t.content || finished ? 'Thoughts' : 'Thinking…';
    this.thoughtText.textContent = t.reasoning || '';
    if (t.role === 'user') this.body.textContent = t.content;
    else this.body.replaceChildren(...Markdown.render(t.content));
    this.status.textContent = t.note || '';
    this.status.className = t.failed ? 'note bad' : 'note';
    this.tools.hidden = !finished;
  }
}

function showConversation() {
  $('log').replaceChildren();
  if (current) current.turns.forEach((turn, i) => $('log').append(new TurnView(turn, i).root));
  if (!current || !current.turns.length) $('log').append(make('p', 'Ask something.', 'turn faint'));
  toEnd();
}

function showHistory() {
  $('history').replaceChildren(...conversations.map(c => {
    const item = make('li'), open = button(c.title || 'New conversation', () => { select(c); });
    open.className = 'open';
    if (c === current) open.setAttribute('aria-current', 'true');
    const remove = button('×', () => {
      if (running && c === current) stop();
      conversations = conversations.filter(other => other !== c);
      if (c === current) current = conversations[0] || null;
      save();
      showConversation();
    });
    remove.setAttribute('aria-label', 'Delete ' + (c.title || 'conversation'));
    item.append(open, remove);
    return item;
  }));
}

function save() {
  store.write('deltafin.conversations', conversations);
  showHistory();
}

function select(c) {
  if (running) stop();
  current = c;
  showHistory();
  showConversation();
  if (matchMedia('(max-width: 60rem)').matches) toggle('side', 'menu', false);
  $('input').focus();
}

function edit(index) {
  if (running) return;
  $('input').value = current.turns[index].content;
  current.turns.splice(index);
  save();
  showConversation();
  grow();
  $('input').focus();
}

function retry(index) {
  if (running) return;
  current.turns.splice(index);
  save();
  showConversation();
  answer();
}

function requestBody() {
  const messages = [];
  if (settings.system) messages.push({role: 'system', content: settings.system});
  for (const turn of current.turns) {
    if (turn.failed && !turn.content) continue;
    const message = {role: turn.role, content: turn.content};
    if (turn.reasoning) message.reasoning_content = turn.reasoning;
    messages.push(message);
  }
  const body = {messages, stream: true, stream_options: {include_usage: true}, reasoning_effort: settings.effort || 'max'};
  if (settings.temperature) body.temperature = Number(settings.temperature);
  if (settings.topP) body.top_p = Number(settings.topP);
  if (settings.max) body.max_tokens = Number(settings.max);
  return body;
}

// Lines of a stream of events, however its bytes were cut.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    held += value;
    const lines = held.split('\n');
    held = lines.pop();
    yield* lines;
  }
}

function take(turn, line) {
  if (line.startsWith(': prefill')) turn.note = 'reading the prompt:' + line.slice(9);
  if (!line.startsWith('data: ') || line === 'data: [DONE]') return;
  const chunk = JSON.parse(line.slice(6));
  if (chunk.error) throw new Error(chunk.error.message);
  const choice = chunk.choices && chunk.choices[0];
  if (choice) {
    const delta = choice.delta;
    if (delta.reasoning_content) turn.reasoning = (turn.reasoning || '') + delta.reasoning_content;
    if (delta.content) turn.content += delta.content;
    if (delta.reasoning_content || delta.content) turn.note = '';
    if (choice.finish_reason === 'length') turn.cut = true;
  }
  if (chunk.usage) turn.usage = chunk.usage;
}

function endNote(turn, seconds, firstSeconds) {
  const parts = [];
  if (turn.cut) parts.push('cut: the length limit');
  if (turn.usage) {
    const n = turn.usage.completion_tokens, cached = turn.usage.prompt_tokens_details.cached_tokens;
    parts.push(`${turn.usage.prompt_tokens} tokens in (${cached} kept)`, `${n} out`);
    if (n > 1 && seconds > firstSeconds) parts.push(`${((n - 1) / (seconds - firstSeconds)).toFixed(2)} tokens/s`);
  }
  if (firstSeconds) parts.push(`first after ${firstSeconds.toFixed(1)} s`);
  return parts.join(', ');
}

async function answer() {
  const turn = {role: 'assistant', content: '', reasoning: ''};
  const body = requestBody();
  const view = new TurnView(turn, current.turns.length);
  const conversation = current;
  conversation.turns.push(turn);
  $('log').append(view.root);
  turn.note = 'waiting';
  view.update(false);
  toEnd();
  const mine = running = {controller: new AbortController(), turn};
  showRunning();
  const start = performance.now();
  let first = 0, shown = 0;
  const show = finished => {
    const follow = nearEnd();
    view.update(finished);
    if (follow) toEnd();
  };
  try {
    const response = await fetch('/v1/chat/completions',
        {method: 'POST', headers: headers(), body: JSON.stringify(body), signal: mine.controller.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const line of events(response)) {
      take(turn, line);
      if (!first && (turn.content || turn.reasoning)) first = (performance.now() - start) / 1000;
      if (performance.now() - shown > 80) {
        shown = performance.now();
        show(false);
      }
    }
    turn.note = endNote(turn, (performance.now() - start) / 1000, first);
  } catch (error) {
    turn.note = error.name === 'AbortError' ? 'stopped' : String(error.message || error);
    turn.failed = error.name !== 'AbortError';
  }
  if (running === mine) running = null;
  show(true);
  showRunning();
  if (!conversation.title) conversation.title = conversation.turns[0].content.slice(0, 60);
  save();
}

function stop() {
  if (running) running.controller.abort();
}

function showRunning() {
  $('stop').hidden = !running;
  $('send').hidden = Boolean(running);
}

function grow() {
  const input = $('input');
  input.style.height = 'auto';
  input.style.height = input.scrollHeight + 2 + 'px';
}

function submit() {
  const text = $('input').value;
  if (running || !text.trim()) return;
  if (!current) {
    current = {title: '', turns: []};
    conversations.unshift(current);
  }
  if (!current.turns.length) $('log').replaceChildren();
  const turn = {role: 'user', content: text};
  current.turns.push(turn);
  $('log').append(new TurnView(turn, current.turns.length - 1).root);
  $('input').value = '';
  grow();
  save();
  answer();
}

function toggle(panel, control, open) {
  const node = $(panel);
  const now = open ?? node.classList.contains('closed');
  node.classList.toggle('closed', !now);
  $(control).setAttribute('aria-expanded', String(now));
}

// The machine: figures are differences between two looks.
let before = null;
const peaks = {};

function showDrives(now, seconds) {
  $('drives').replaceChildren(...now.drives.map((drive, i) => {
    const rate = before && before.drives[i] ? (drive.bytes - before.drives[i].bytes) / seconds / 1e9 : 0;
    peaks[drive.name] = Math.max(peaks[drive.name] || 0.1, rate);
    const node = make('div', '', 'drive'), row = make('div', '', 'row'), bar = make('meter');
    row.append(make('span', drive.name), make('span', rate.toFixed(2) + ' GB/s'));
    bar.max = peaks[drive.name];
    bar.value = rate;
    bar.setAttribute('aria-label', drive.name + ', GB per second');
    node.append(row, bar);
    return node;
  }));
}

function showMachine(now) {
  $('model').textContent = now.model;
  $('engine').textContent = now.engine + ', context ' + now.context + ', version ' + now.version;
  const words = {idle: 'idle', load: 'loading', prefill: 'reading a prompt', decode: 'answering'};
  $('phase').textContent = words[now.phase] + (now.phase === 'idle' ? '' : `, layer ${now.layer + 1} of ${now.layers}`);
  $('requests').textContent = `${now.live} live, ${now.queued} waiting`;
  $('first').textContent = now.first_token_seconds ? now.first_token_seconds.toFixed(2) + ' s' : '–';
  if (before) {
    const seconds = (now.at - before.at) / 1000, change = name => now[name] - before[name];
    const rate = change('new_tokens') / seconds;
    $('rate').textContent = rate > 0 ? rate.toFixed(2) : '–';
    const looked = change('cache_hits') + change('cache_misses');
    if (looked > 0) $('hits').textContent = (100 * change('cache_hits') / looked).toFixed(1) + ' %';
    const busy = change('step_seconds'), experts = change('expert_wait_seconds'), dense = change('dense_wait_seconds');
    if (busy > 0) {
      const percent = part => Math.min(100, Math.round(100 * part / busy));
      $('waits').textContent = `experts ${percent(experts)} %, other weights ${percent(dense)} %`;
    }
    showDrives(now, seconds);
  }
  before = now;
}

async function watch() {
  if (!document.hidden && !$('machine').classList.contains('closed')) {
    try {
      const response = await fetch('/v1/live', {headers: headers()});
      if (response.ok) showMachine({...await response.json(), at: performance.now()});
      else $('phase').textContent = (await response.json()).error.message;
    } catch {
      $('phase').textContent = 'the server does not answer';
      before = null;
    }
  }
  setTimeout(watch, 1000);
}

const fields = {system: 'set-system', effort: 'set-effort', temperature: 'set-temperature', topP: 'set-top-p',
                max: 'set-max', key: 'set-key'};
$('settings-open').addEventListener('click', () => {
  for (const [name, id] of Object.entries(fields)) $(id).value = settings[name] || (name === 'effort' ? 'max' : '');
  $('settings').showModal();
});
$('settings').addEventListener('close', () => {
  for (const [name, id] of Object.entries(fields)) settings[name] = $(id).value;
  store.write('deltafin.settings', settings);
});
$('forget').addEventListener('click', () => {
  if (!confirm('Delete all conversations?')) return;
  stop();
  conversations = [];
  current = null;
  save();
  showConversation();
});
$('new').addEventListener('click', () => {
  const empty = conversations.find(c => !c.turns.length);
  const c = empty || {title: '', turns: []};
  if (!empty) conversations.unshift(c);
  save();
  select(c);
});
$('menu').addEventListener('click', () => toggle('side', 'menu'));
$('machine-toggle').addEventListener('click', () => toggle('machine', 'machine-toggle'));
$('stop').addEventListener('click', stop);
$('composer').addEventListener('submit', event => {
  event.preventDefault();
  submit();
});
$('input').addEventListener('input', grow);
$('input').addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && !$('settings').open) stop();
});
$('log').addEventListener('click', event => {
  const text = event.target.dataset && event.target.dataset.copy;
  if (text !== undefined) copy(text, event.target);
});
addEventListener('beforeunload', () => { if (running) save(); });

const narrow = matchMedia('(max-width: 60rem)').matches;
toggle('side', 'menu', !narrow);
toggle('machine', 'machine-toggle', !narrow);
showHistory();
showConversation();
watch();
