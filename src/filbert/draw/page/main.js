// The scene in the page in; the whole page, drawn and kept in step with the reader's choices, out.

import { attentionPart, context, step } from './attention.js';
import { explanationPanel } from './attribution.js';
import { blanksPanel } from './blanks.js';
import { themeNow, watchTheme } from './colours.js';
import { drawing, element, segmented } from './dom.js';
import { shortcuts, showHelp, tips } from './keys.js';
import { composer, draftOf, fetchLayers, look } from './live.js';
import { predictionPanel } from './prediction.js';
import { sceneOfPage, viewOf } from './scene.js';
import { store } from './state.js';
import { firstLanguage, LANGUAGES, say, speak } from './words.js';

const scene = sceneOfPage();
const page = document.getElementById('page');
const shown = store({
  language: firstLanguage(scene), theme: 'auto', layer: 0, head: 0, kind: 'self', unit: 'words', large: 'lines', direction: 'from',
  measure: 'none', sorted: false, windows: [0, 0], focus: null, pinned: null, loaded: 0,
});
let views = (scene.views ?? []).map(viewOf);
let before = []; // for each view, the blanks of the one it replaced
let stop = new AbortController();
const draft = scene.live ? draftOf(scene) : null;
let form = null;

/** Draws everything anew: at the start, in another language, with other views. */
function draw() {
  speak(shown.state.language);
  dress();
  document.title = scene.title || 'filbert';
  form = draft && composer(scene.live, draft, ask);
  page.replaceChildren(heading(), element('main', {}, form?.node ?? '', names() ?? '', ...parts()));
}

/** The theme, as the style sheet knows it. */
function dress() {
  document.documentElement.dataset.theme = themeNow(shown.state.theme);
}

function heading() {
  const head = element('header.top', {}, nut(),
    element('div.title', {}, element('h1', {}, scene.title || 'filbert'), views.length === 1 && element('p.soft', {}, described(views[0]))),
    element('nav.switches', { 'aria-label': say('help') },
      segmented(say('language'), LANGUAGES, shown.state.language, (language) => shown.change({ language })),
      segmented(say('theme'), ['auto', 'light', 'dark'].map((theme) => [theme, say(`theme_${theme}`)]), shown.state.theme, (theme) => shown.change({ theme })),
      element('button.round', { type: 'button', 'aria-label': say('help_key'), title: say('help_key'), onclick: showHelp }, '?')));
  shown.on(head, ['theme'], () => { for (const radio of head.querySelectorAll(`input[value="${shown.state.theme}"]`)) radio.checked = true; });
  return head;
}

/** A hazelnut in its husk. */
function nut() {
  return drawing('svg', { viewBox: '0 0 32 32', class: 'nut', 'aria-hidden': 'true' },
    drawing('path', { class: 'shell', d: 'M16 30C8 27 4 21 5 14h22c1 7-3 13-11 16z' }),
    drawing('path', { class: 'shine', d: 'M9 17c0 4 2 7 4.500 9' }),
    drawing('path', { class: 'husk', d: 'M3 14C4 7 9 4 16 2c7 2 12 5 13 12-3 2-5 2-6.500-.500-2 2.500-4.500 2.500-6.500 0-2 2.500-4.500 2.500-6.500 0C8 16 6 16 3 14z' }));
}

function described(view) {
  return [view.model, view.architecture, view.task && say('trained_for', { task: view.task })].filter(Boolean).join(' · ');
}

/** Above two views, what each is. */
function names() {
  if (views.length < 2) return null;
  return element('div.views.of-2.names', {}, views.map((view, place) =>
    element('p.panel', {}, element('b.letter', {}, 'AB'[place]), element('span', {}, described(view)))));
}

function parts() {
  if (!views.length) return [element('p.welcome.soft', {}, say('no_views'))];
  const told = views.some((view) => view.explanations?.length || view.blanks?.length || view.windows.some(({ kinds }) => kinds.length));
  return [
    told ? null : part('text', '', views.map(plain)),
    part('prediction', say('prediction_about'), views.map(predictionPanel)),
    part('why', say('why_about'), views.map(explanationPanel)),
    part('blanks', say('blanks_about') + (form ? ` ${say('blanks_edit')}` : ''), views.map((view, place) => blanksPanel(view, compared(place), form && ((text) => rewrite(place, text))))),
    attentionPart(shown, views),
  ].filter(Boolean);
}

/** Only the texts, where nothing else shows them. */
function plain(view) {
  return element('div.panel', {}, view.texts.map(({ text }) => element('p.marked', { dir: 'auto' }, text.trim() ? text : element('span.soft', {}, say('empty_text')))));
}

function part(name, about, panels) {
  if (!panels.some(Boolean)) return null;
  return element(`section.part.${name}`, { 'aria-label': say(name) },
    element('header', {}, element('h2', {}, say(name)), about && element('p.soft', {}, about)),
    element(`div.views.of-${panels.length}`, {}, panels.map((panel) => panel ?? element('div.panel'))));
}

/** What a view's blanks are compared with: themselves before an edit, or those of the view at the left. */
function compared(place) {
  if (before[place]) return before[place];
  return place === 1 && views[0].blanks?.length ? { blanks: views[0].blanks, text: views[0].texts[0].text, other: true } : null;
}

function rewrite(place, text) {
  if (place === 1 && draft.beside === 'text') draft.others[0] = text;
  else draft.texts[0] = text;
  form.node.requestSubmit();
}

/** Asks for views as the form wants them, and shows them; further layers come one by one behind. */
async function ask(requests) {
  stop.abort();
  stop = new AbortController();
  const { signal } = stop;
  form.told(say('looking'));
  try {
    const found = await Promise.all(requests.map((request) => look({ ...request, layers: [shown.state.layer] }, signal)));
    before = found.map((_, place) => views[place]?.blanks?.length ? { blanks: views[place].blanks, text: views[place].texts[0].text } : null);
    views = found.map(viewOf);
    shown.change({ focus: null, pinned: null, windows: [0, 0] });
    draw();
    await inflateAll();
    for (const [place, request] of requests.entries()) await fetchLayers(request, views[place], () => shown.state.layer, inflateAll, signal);
  } catch (error) {
    if (!signal.aborted) form.told(say('failed', { why: error.message }));
  }
}

/** Inflates the weights of all maps, those in sight first. */
async function inflateAll() {
  const all = views.flatMap((view, place) => view.windows.map((window, at) => ({ window, shown: at === (shown.state.windows[place] ?? 0) })));
  for (const { window } of [...all.filter((one) => one.shown), ...all.filter((one) => !one.shown)]) {
    for (const maps of window.kinds) {
      await maps.inflate(() => shown.change({ loaded: shown.state.loaded + 1 }));
    }
  }
}

function turn(name, values) {
  const at = values.indexOf(shown.state[name]);
  shown.change({ [name]: values[(at + 1) % values.length], ...(name === 'unit' || name === 'direction' ? { focus: null, pinned: null } : {}) });
}

function move(name, by) {
  const place = views.findIndex((view) => view.windows.some(({ kinds }) => kinds.length));
  if (place >= 0) step(context(shown, views, views[place], place), name, by);
}

function focusOn(selector) {
  const found = page.querySelector(selector);
  found?.focus();
  found?.scrollIntoView({ block: 'center' });
}

shortcuts({
  '?': showHelp,
  Escape: () => shown.change({ focus: null, pinned: null }),
  '[': () => move('layer', -1), ']': () => move('layer', 1), ',': () => move('head', -1), '.': () => move('head', 1),
  l: () => shown.change({ large: 'lines' }), m: () => shown.change({ large: 'matrix' }),
  w: () => turn('unit', ['words', 'tokens']), f: () => turn('direction', ['from', 'to']),
  g: () => focusOn('.head[tabindex="0"]'), t: () => focusOn('.running [tabindex="0"]'),
  d: () => shown.change({ theme: themeNow(shown.state.theme) === 'dark' ? 'light' : 'dark' }), z: () => turn('language', ['en', 'zh']),
});
shown.on(page, ['theme'], dress);
shown.on(page, ['language'], () => {
  const inside = page.contains(document.activeElement);
  draw();
  if (inside) page.querySelector('.switches input:checked')?.focus();
});
watchTheme(() => { dress(); shown.change({ loaded: shown.state.loaded + 1 }); });
tips();
draw();
inflateAll().catch((error) => page.prepend(element('p.status', { role: 'alert' }, say('broken', { why: error.message }))));
