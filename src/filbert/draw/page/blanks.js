// Blanks with their candidates in; bars, and what an edit (or the other text) moved, out.

import { edit } from './compare.js';
import { element } from './dom.js';
import { rove } from './keys.js';
import { barTable } from './prediction.js';
import { say } from './words.js';

/** The blanks of a view, or null. `before`: {blanks, text} to compare with; `change(text)`: to ask again, when live. */
export function blanksPanel(view, before, change) {
  const blanks = view.blanks ?? [];
  if (!blanks.length) return null;
  const text = view.texts[0];
  const moved = before && edit(before.text, text.text);
  const shown = (part) => part.trim() || say('nothing');
  return element('div.panel', {}, sentence(view, blanks, change),
    element('div.candidates', {}, blanks.map((blank, at) => element('div.blank', {},
      element('h3', {}, say('blank', { number: at + 1 })), barTable(candidates(blank, moved && before.blanks[at]))))),
    moved && element('p.moved', {}, before.other ? say('moved_against') : say('moved_by', { from: shown(moved.from), to: shown(moved.to) })));
}

/** Candidates now, each with how far it went up or down. */
function candidates(blank, before) {
  const old = new Map((before?.candidates ?? []).map(({ token, score }) => [token, score]));
  return blank.candidates.map(({ token, score }, at) => ({ name: token, score, best: at === 0, more: before && arrow(score, old.get(token)) }));
}

function arrow(score, was) {
  if (was === undefined) return element('span.arrow.up', {}, ` ${say('fresh')}`);
  const by = score - was;
  if (Math.abs(by) < 0.0005) return element('span.arrow', { 'aria-hidden': 'true' }, ' =');
  const size = say('points', { by: (100 * Math.abs(by)).toFixed(1) });
  return element(`span.arrow.${by > 0 ? 'up' : 'down'}`, { 'aria-label': say(by > 0 ? 'up' : 'down', { by: size }) }, ` ${by > 0 ? '▲' : '▼'} ${size}`);
}

/** The text with its blanks marked; when live, each word is a button that turns into a field. */
function sentence(view, blanks, change) {
  const text = view.texts[0];
  const words = change ? view.windows.flatMap((window) => window.words).filter(({ part }) => part === 0) : [];
  const line = element('p.cloze', { dir: 'auto' });
  const pieces = [...blanks.map((blank) => ({ ...blank, blank: true })), ...words.filter((word) => !blanks.some((blank) => word.start < blank.end && word.end > blank.start))]
    .sort((one, other) => one.start - other.start);
  let cursor = 0;
  let number = 0;
  for (const piece of pieces) {
    if (piece.start < cursor) continue;
    line.append(text.slice(cursor, piece.start));
    const own = text.slice(piece.start, piece.end);
    line.append(piece.blank ? element('span.gap', {}, piece.candidates[0]?.token.replace(/^##/, '') ?? own, element('sub', {}, String((number += 1))))
      : wordButton(own, (set) => change(text.slice(0, piece.start) + set + text.slice(piece.end, text.length)), piece.start));
    cursor = piece.end;
  }
  line.append(text.slice(cursor, text.length));
  rove(line);
  return line;
}

function wordButton(word, commit, index) {
  const button = element('button.editable', { type: 'button', tabindex: -1, 'data-index': index, onclick: () => {
    const field = element('input.edit', { value: word, size: Math.max(2, [...word].length), 'aria-label': say('change_word', { word }) });
    let done = false;
    const end = (keep) => { if (done) return; done = true; field.replaceWith(button); if (keep && field.value !== word) commit(field.value); else button.focus(); };
    field.addEventListener('keydown', ({ key, isComposing }) => { if (!isComposing && key === 'Enter') end(true); if (key === 'Escape') end(false); });
    field.addEventListener('blur', () => end(true));
    button.replaceWith(field);
    field.select();
  } }, word);
  return button;
}
