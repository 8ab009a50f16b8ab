// The page in a headless browser. CHROMIUM: the browser (default: the first of chromium, google-chrome in PATH).
// SCREENSHOTS: a folder for pictures.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {after, before, test} from 'node:test';
import {chromium} from 'playwright-core';
import {answer, question, startServer} from './server.mjs';

function findBrowser() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ['chromium', 'google-chrome', 'chrome']) {
    try {
      return execFileSync('sh', ['-c', 'command -v ' + name]).toString().trim();
    } catch {
      // the next one
    }
  }
  return null;
}

const browserPath = findBrowser();
const skip = browserPath ? false : 'no chromium is installed';
let server, browser, page;
const foreign = [], faults = [];

async function open(options = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, ...options});
  page = await context.newPage();
  page.on('request', request => { if (!request.url().startsWith(server.url) && !request.url().startsWith('data:')) foreign.push(request.url()); });
  page.on('pageerror', error => faults.push(String(error)));
  page.on('console', message => { if (message.type() === 'error') faults.push(message.text()); });
  await page.goto(server.url);
}

async function shot(name) {
  if (process.env.SCREENSHOTS) await page.screenshot({path: `${process.env.SCREENSHOTS}/${name}.png`});
}

async function settings(change) {
  await page.click('#settings-open');
  await change();
  await page.keyboard.press('Escape');
}

before(async () => {
  if (skip) return;
  server = await startServer('--temperature', '0');
  browser = await chromium.launch({executablePath: browserPath, args: ['--no-sandbox']});
  await open();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

test('a question is answered, by keyboard', {skip}, async () => {
  await settings(() => page.selectOption('#set-effort', 'none'));
  await page.fill('#input', question);
  await page.keyboard.press('Enter');
  await page.waitForFunction(text => document.querySelector('.assistant .body')?.textContent === text, answer);
  await page.waitForFunction(() => /tokens in/.test(document.querySelector('.assistant .note').textContent));
  await shot('answer');
});

test('thoughts are folded', {skip}, async () => {
  await settings(() => page.selectOption('#set-effort', 'high'));
  await page.click('#new');
  await page.fill('#input', 'What is 12 + 30?');
  await page.click('#send');
  await page.waitForFunction(() => document.querySelector('.assistant .body')?.textContent === '42');
  const thought = page.locator('.assistant details.thought');
  assert.equal(await thought.evaluate(node => node.open), false);
  assert.match(await thought.locator('div').textContent(), /Add the ones/);
  await thought.locator('summary').click();
  await shot('thoughts');
});

test('conversations are kept in the browser', {skip}, async () => {
  await page.reload();
  assert.equal(await page.locator('#history li').count(), 2);
  await page.locator('#history .open').nth(1).click();
  assert.equal(await page.locator('.assistant .body').textContent(), answer);
});

test('an answer is stopped and tried again', {skip}, async () => {
  await settings(() => page.fill('#set-temperature', '2'));
  await page.click('#new');
  await page.fill('#input', 'Tell me a very long story about a fish.');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#stop:not([hidden])');
  await page.keyboard.press('Escape');
  await page.waitForSelector('#send:not([hidden])');
  await settings(() => page.fill('#set-temperature', '0'));
  await page.locator('.assistant button', {hasText: 'Retry'}).click();
  await page.waitForFunction(() => /tokens in/.test(document.querySelector('.assistant .note').textContent));
});

test('markdown is rendered and markup is text', {skip}, async () => {
  const text = '# Title\n\nSome **bold**, `code` and <img src=x onerror="window.hurt=1">.\n\n- one\n- two\n\n' +
      '```js\nlet a = "<b>";\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[good](https://example.com) [bad](javascript:alert(1))';
  await page.evaluate(source => {
    const node = document.createElement('div');
    node.id = 'probe';
    node.append(...Markdown.render(source));
    document.querySelector('#log').replaceChildren(node);
  }, text);
  const count = selector => page.locator('#probe ' + selector).count();
  assert.equal(await count('h2'), 1);
  assert.equal(await count('strong'), 1);
  assert.equal(await count('li'), 2);
  assert.equal(await count('pre code'), 1);
  assert.equal(await count('td'), 2);
  assert.equal(await count('img'), 0);
  assert.equal(await count('a'), 1);
  assert.equal(await page.evaluate(() => window.hurt), undefined);
  await shot('markdown');
});

test('the machine is shown', {skip}, async () => {
  await page.waitForFunction(() => document.querySelectorAll('.drive meter').length > 0);
  assert.match(await page.textContent('#engine'), /cpu|reference/);
  assert.match(await page.textContent('#first'), /s$/);
  await shot('machine');
});

test('it fits a phone', {skip}, async () => {
  await page.context().close();
  await open({viewport: {width: 375, height: 700}, hasTouch: true, isMobile: true, colorScheme: 'dark'});
  await settings(() => page.selectOption('#set-effort', 'none'));
  await page.fill('#input', question);
  await page.tap('#send');
  await page.waitForFunction(text => document.querySelector('.assistant .body')?.textContent === text, answer);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  assert.equal(wide, false);
  await shot('phone');
});

test('nothing was asked of anybody else, and nothing went wrong', {skip}, () => {
  assert.deepEqual(foreign, []);
  assert.deepEqual(faults, []);
});
