// Markdown -> DOM nodes. Text becomes text nodes, never markup, so nothing that a model writes can run; links go to
// http, https and mailto only. Headings, paragraphs, lists, quotes, tables, rules, fenced code; bold, italic, code.
'use strict';
const Markdown = (() => {
  function element(name, children, className) {
    const node = document.createElement(name);
    if (className) node.className = className;
    node.append(...children);
    return node;
  }

  const inlineRule =
    /(`+)([\s\S]+?)\1(?!`)|\*\*([\s\S]+?)\*\*|__([\s\S]+?)__|\*([^*\n]+?)\*|\[([^\]\n]*)\]\(([^)\s]+)\)|(https?:\/\/[^\s<>()]+)/;

  function link(text, target) {
    if (!/^(https?:|mailto:)/i.test(target)) return document.createTextNode(text);
    const a = element('a', [text]);
    a.href = target;
    a.rel = 'noopener noreferrer';
    a.target = '_blank';
    return a;
  }

  function inline(text, depth = 0) {
    const out = [];
    while (text) {
      const m = depth > 8 ? null : inlineRule.exec(text);
      if (!m) {
        out.push(text);
        break;
      }
      if (m.index > 0) out.push(text.slice(0, m.index));
      if (m[2] !== undefined) out.push(element('code', [m[2].trim() || m[2]]));
      else if (m[3] !== undefined) out.push(element('strong', inline(m[3], depth + 1)));
      else if (m[4] !== undefined) out.push(element('strong', inline(m[4], depth + 1)));
      else if (m[5] !== undefined) out.push(element('em', inline(m[5], depth + 1)));
      else if (m[7] !== undefined) out.push(link(m[6] || m[7], m[7]));
      else out.push(link(m[8], m[8]));
      text = text.slice(m.index + m[0].length);
    }
    return out;
  }

  function codeBlock(lines) {
    const pre = element('pre', [element('code', [lines.join('\n')])]);
    const copy = element('button', ['Copy']);
    copy.type = 'button';
    copy.dataset.copy = lines.join('\n');
    pre.append(copy);
    return pre;
  }

  const cells = line => line.trim().replace(/^\||\|$/g, '').split('|').map(cell => cell.trim());
  const isRow = line => line !== undefined && line.includes('|');
  const isDivider = line => line !== undefined && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(line);

  function table(lines, at) {
    const row = (line, name) => element('tr', cells(line).map(cell => element(name, inline(cell))));
    const head = row(lines[at], 'th'), rows = [];
    for (at += 2; at < lines.length && isRow(lines[at]); ++at) rows.push(row(lines[at], 'td'));
    return [element('table', [element('thead', [head]), element('tbody', rows)]), at];
  }

  const itemRule = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

  function list(lines, at, depth) {
    const first = itemRule.exec(lines[at]);
    const ordered = /\d/.test(first[2]), indent = first[1].length;
    const node = document.createElement(ordered ? 'ol' : 'ul');
    if (ordered) node.start = parseInt(first[2], 10);
    while (at < lines.length) {
      const m = itemRule.exec(lines[at]);
      if (!m || m[1].length !== indent || /\d/.test(m[2]) !== ordered) break;
      const inner = [m[3]];
      for (++at; at < lines.length; ++at) {
        const more = lines[at], deeper = /^\s*/.exec(more)[0].length > indent;
        if (more.trim() && !deeper) break;
        if (!more.trim() && !/^\s+\S/.test(lines[at + 1] || '')) break;
        inner.push(more.slice(Math.min(indent + 2, /^\s*/.exec(more)[0].length)));
      }
      node.append(element('li', depth > 8 ? [inner.join('\n')] : blocks(inner, depth + 1, true)));
      while (at < lines.length && !lines[at].trim() && itemRule.test(lines[at + 1] || '')) ++at;
    }
    return [node, at];
  }

  function blocks(lines, depth = 0, tight = false) {
    const out = [];
    for (let at = 0; at < lines.length;) {
      const line = lines[at];
      const fence = /^\s*(```+|~~~+)/.exec(line), heading = /^(#{1,6})\s+(.*)$/.exec(line);
      if (!line.trim()) {
        ++at;
      } else if (fence) {
        const body = [];
        for (++at; at < lines.length && !lines[at].trim().startsWith(fence[1]); ++at) body.push(lines[at]);
        ++at;
        out.push(codeBlock(body));
      } else if (heading) {
        out.push(element('h' + Math.min(6, heading[1].length + 1), inline(heading[2])));
        ++at;
      } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
        out.push(element('hr', []));
        ++at;
      } else if (isRow(line) && isDivider(lines[at + 1])) {
        const [node, next] = table(lines, at);
        out.push(node);
        at = next;
      } else if (/^\s*>/.test(line)) {
        const body = [];
        for (; at < lines.length && /^\s*>/.test(lines[at]); ++at) body.push(lines[at].replace(/^\s*> ?/, ''));
        out.push(element('blockquote', depth > 8 ? [body.join('\n')] : blocks(body, depth + 1)));
      } else if (itemRule.test(line)) {
        const [node, next] = list(lines, at, depth);
        out.push(node);
        at = next;
      } else {
        const body = [];
        for (; at < lines.length && lines[at].trim() && !/^\s*(```|~~~|#{1,6}\s|>)/.test(lines[at]) &&
               !(body.length && itemRule.test(lines[at])); ++at)
          body.push(lines[at]);
        if (!body.length) body.push(lines[at++]);
        const children = inline(body.join('\n'));
        out.push(...(tight ? children : [element('p', children)]));
      }
    }
    return out;
  }

  return {render: text => blocks(text.replace(/\r\n?/g, '\n').split('\n'))};
})();
