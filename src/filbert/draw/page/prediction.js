// A prediction as `filbert predict` writes it in; its scores as bars and its entities or answers as marks in the text out.

import { element } from './dom.js';
import { percent, say } from './words.js';

const NUM_BARS = 10;
const NUM_COLOURS = 6;

/** What the model says of one view, or null where it says nothing. */
export function predictionPanel(view) {
  const said = view.prediction;
  if (!said) return null;
  const marks = marksOf(said, view);
  return element('div.panel', {}, element('div.said', {}, headline(said), bars(said.scores ?? {}, said.label)),
    marks && (marks.length ? null : element('p.soft', {}, 'answer' in said ? say('no_answer') : say('nothing_found'))),
    marks?.length ? markedTexts(view, marks) : null);
}

function headline(said) {
  const written = said.written ?? said.answer ?? said.text;
  const label = said.label ?? written ?? (said.labels ? said.labels.join(' · ') || say('none') : null);
  const score = said.score ?? said.value ?? said.cosine;
  if (label === null || label === undefined) return score === undefined ? null : element('p.answer', {}, String(score));
  return element('p.answer', {}, element('bdi', {}, label), ' ', typeof score === 'number' && element('span.number', {}, percent(score)));
}

/** The likeliest labels, each with a bar as long as its share. */
function bars(scores, best) {
  const rows = Object.entries(scores).filter(([, score]) => typeof score === 'number').sort(([, one], [, other]) => other - one);
  if (!rows.length) return null;
  return element('div', {}, barTable(rows.slice(0, NUM_BARS).map(([name, score]) => ({ name, score, best: name === best }))),
    rows.length > NUM_BARS && element('p.soft', {}, say('more', { count: rows.length - NUM_BARS })));
}

/** Bars as a table, so that they can be read aloud: {name, score, best, more}. */
export function barTable(rows) {
  return element('table.bars', {},
    element('thead', {}, element('tr', {}, element('th', {}, say('column_label')), element('th', {}), element('th', {}, say('column_score')))),
    element('tbody', {}, rows.map(({ name, score, best, more }) => element(`tr${best ? '.best' : ''}`, {},
      element('th', { scope: 'row' }, element('bdi', {}, name)),
      element('td.bar', { 'aria-hidden': 'true' }, element('span', { style: { '--share': Math.max(0, Math.min(1, score)) } })),
      element('td.number', {}, percent(score), more)))));
}

/** All stretches of the texts that the prediction names, or null where it is not that kind. */
function marksOf(said, view) {
  const last = view.texts.length - 1;
  const found = [
    ...(said.spans ?? said.entities ?? []),
    ...(said.candidates ?? []).slice(0, said.answer ? 1 : 0).map((span) => ({ part: last, label: '', ...span })),
    ...['head', 'tail'].filter((name) => said[name]).map((name) => ({ label: name, ...said[name] })),
  ];
  if (!found.length && !['spans', 'entities', 'candidates'].some((name) => name in said)) return null;
  return found.map((span) => ({ part: 0, ...span })).filter(({ part, start, end }) => view.texts[part] && end > start);
}

function markedTexts(view, marks) {
  const labels = [...new Set(marks.map(({ label }) => label))].sort();
  return element('div', {}, element('p.soft', {}, say('marks_about', { count: marks.length })),
    view.texts.map((text, part) => {
      const own = marks.filter((mark) => mark.part === part).sort((one, other) => one.start - other.start || other.end - one.end);
      return own.length > 0 && element('p.marked', { dir: 'auto' }, nested(text, own, 0, text.length, labels));
    }));
}

/** The text from start to end with its marks, marks within marks; one that crosses another's end is cut there. */
function nested(text, marks, start, end, labels) {
  const found = [];
  let cursor = start;
  const rest = [...marks];
  while (rest.length) {
    const mark = rest.shift();
    if (mark.start >= end) break;
    const [from, to] = [Math.max(mark.start, cursor), Math.min(mark.end, end)];
    if (to <= from) continue;
    const inner = [];
    while (rest.length && rest[0].start < to) {
      const next = rest.shift();
      inner.push({ ...next, end: Math.min(next.end, to) });
      if (next.end > to) rest.unshift({ ...next, start: to });
      if (next.end > to) break;
    }
    found.push(text.slice(cursor, from), markNode(mark, nested(text, inner, from, to, labels), labels));
    cursor = to;
  }
  found.push(text.slice(cursor, end));
  return found.flat();
}

function markNode({ label, score }, children, labels) {
  const tip = [label, typeof score === 'number' ? percent(score) : ''].filter(Boolean).join(' · ');
  return element(`mark.colour-${labels.indexOf(label) % NUM_COLOURS}`, { tabindex: 0, 'data-tip': tip || null, 'aria-label': null },
    children, label && element('span.tag', {}, label), typeof score === 'number' && element('span.tag.score', {}, percent(score)));
}
