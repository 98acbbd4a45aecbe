// Explanations in; words coloured by what they did to the answer, the numbers, and the certificate beside them, out.

import { chooser, element } from './dom.js';
import { rove } from './keys.js';
import { figure, meaning, say, signed, spokenNow } from './words.js';

const SIGNS = { faithful: '✓', weak: '~', random: '✕' };
const MOST_UNITS = 3000; // words with an element each; of more, those that matter most get one
const LEVELS = 20; // of colour, each a class of the style sheet
const NUM_ROWS = 200;

/** The explanations of one view, one at a time, or null where there is none. */
export function explanationPanel(view) {
  const all = view.explanations ?? [];
  if (!all.length) return null;
  const holder = element('div');
  const show = (at) => holder.replaceChildren(explanation(view, all[at]));
  show(0);
  const names = all.map((found, at) => [String(at), say('explained', found)]);
  return element('div.panel', {},
    all.length > 1 ? chooser(say('explanation'), names, '0', (at) => show(Number(at))) : element('p.soft', {}, names[0][1]), holder);
}

function explanation(view, found) {
  const largest = Math.max(1e-12, ...found.words.map(({ score }) => Math.abs(score)));
  const kept = [...found.words].sort((one, other) => Math.abs(other.score) - Math.abs(one.score)).slice(0, MOST_UNITS)
    .sort((one, other) => one.start - other.start);
  const texts = element('div.attributed', { role: 'list', 'aria-label': say('why') }, view.texts.map((text, part) =>
    coloured(text, kept.filter((word) => word.part === part), largest)));
  rove(texts);
  return element('div.explanation', {},
    element('div.picture', {}, texts, legend(largest),
      typeof found.value === 'number' && element('p.soft', {}, say('value_baseline', { value: figure(found.value), baseline: figure(found.baseline) })),
      table(found.words)),
    certificate(found.certificate), numbers(found.certificate?.numbers ?? {}));
}

function coloured(text, words, largest) {
  if (!text.text.trim()) return element('p.soft', {}, say('empty_text'));
  const line = element('p', { dir: 'auto', role: 'presentation' });
  let cursor = 0;
  words.forEach(({ start, end, score }, index) => {
    if (end <= cursor) return;
    line.append(text.slice(cursor, Math.max(cursor, start)), wordNode(text.slice(Math.max(cursor, start), end), score, largest, index));
    cursor = end;
  });
  line.append(text.slice(cursor, text.length));
  return line;
}

function wordNode(word, score, largest, index) {
  const share = Math.abs(score) / largest;
  return element(`span.word.${score < 0 ? 'against' : 'for'}.w${Math.round(LEVELS * share)}${share > 0.15 ? '.strong' : ''}`, {
    role: 'listitem', tabindex: -1, 'data-index': index, 'data-tip': signed(score),
    'aria-label': `${word} ${signed(score)}`,
  }, word);
}

function legend(largest) {
  return element('p.legend', { 'aria-hidden': 'true' }, element('span', {}, `${say('against_answer')} ${figure(-largest)}`),
    element('i'), element('span', {}, `${say('for_answer')} +${figure(largest)}`));
}

function table(words) {
  const rows = [...words].sort((one, other) => Math.abs(other.score) - Math.abs(one.score));
  return element('details', {}, element('summary', {}, say('as_table')), element('table', {},
    element('thead', {}, element('tr', {}, element('th', {}, say('column_word')), element('th.number', {}, say('column_score')))),
    element('tbody', {}, rows.slice(0, NUM_ROWS).map(({ text, score }) => element('tr', {}, element('th', { scope: 'row' }, element('bdi', {}, text)), element('td.number', {}, signed(score)))))),
  rows.length > NUM_ROWS && element('p.soft', {}, say('more', { count: rows.length - NUM_ROWS })));
}

/** How far the picture can be trusted: a verdict and a sentence. */
function certificate(found) {
  if (!found) return element('aside.certificate', {}, element('h3', {}, say('certificate')), element('p.soft', {}, say('no_certificate')));
  return element(`aside.certificate.${found.verdict in SIGNS ? found.verdict : 'weak'}`, { 'aria-label': say('certificate') },
    element('h3', {}, say('certificate')),
    element('p.badge', {}, element('span', { 'aria-hidden': 'true' }, SIGNS[found.verdict] ?? '?'), say(`verdict_${found.verdict}`)),
    element('p', {}, sentence(found)));
}

/** The certificate's sentence without the verdict that it begins with, which the badge says. */
function sentence(found) {
  const told = (spokenNow() === 'zh' ? found.sentence_zh : found.sentence_en) ?? '';
  const verdict = say(`verdict_${found.verdict}`);
  const rest = told.startsWith(verdict) ? told.slice(verdict.length).replace(/^[:：]\s*/, '') : told;
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

/** Each number that the verdict rests on, with what random orders or words get, and with what it means. */
function numbers(found) {
  const own = Object.entries(found).filter(([name]) => !(name.endsWith('_random') && name.slice(0, -7) in found));
  return element('dl.numbers', {}, own.map(([name, value]) => {
    const [title, plain] = meaning(name);
    const random = found[`${name}_random`];
    return element('div', {}, element('dt', {}, title), element('dd.number', {}, figure(value)),
      random && element('dd.number.random', {}, say('against_random', { range: figure(random) })), plain && element('dd.soft', {}, plain));
  }));
}

