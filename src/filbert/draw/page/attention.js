// Views in; the part of the page that shows their attention: text, all heads, one head large, for one view or two linked, out.

import { aligned } from './compare.js';
import { chooser, element, framed, segmented } from './dom.js';
import { headGrid } from './grid.js';
import { linesView } from './lines.js';
import { matrixView } from './matrix.js';
import { pointable, running, tint } from './tokens.js';
import { coarse, percent, say } from './words.js';

const NUM_LINKS = 6;

/** The whole part, or null where no view has attention. */
export function attentionPart(store, views) {
  const seen = views.map((view, place) => ({ view, place })).filter(({ view }) => view.windows.some(({ kinds }) => kinds.length));
  if (!seen.length) return null;
  const contexts = seen.map(({ view, place }) => context(store, views, view, place));
  return element('section.part.attention', { 'aria-label': say('attention') },
    element('header', {}, element('h2', {}, say('attention')), element('p.soft', {}, say('attention_about'))),
    toolbar(store, contexts),
    element(`div.views.of-${seen.length}`, {}, contexts.map((ctx) => panel(ctx))));
}

/** What the drawings of one view ask and tell: what is chosen now, what is pointed at, and pointing. */
export function context(store, views, view, place) {
  const ctx = {
    store, view, place,
    now: () => chosen(store.state, view, place),
    row: (index) => { const { weights, columns } = ctx.now(); return weights?.subarray(index * columns.length, (index + 1) * columns.length) ?? null; },
    column: (index) => { const { weights, columns, rows } = ctx.now(); return weights && rows.map((_, row) => weights[row * columns.length + index]); },
    lit: () => linked(store.state, views, ctx),
    point: (side, index, cell = null) => store.change({ focus: side && { view: place, side, index, cell } }),
    pin: (side, index) => {
      const { pinned } = store.state;
      const again = pinned && pinned.view === place && pinned.side === side && pinned.index === index;
      store.change({ pinned: again ? null : { view: place, side, index } });
    },
  };
  return ctx;
}

/** The window, kind, head and units that are shown of a view: what was chosen, or the nearest it has. */
function chosen(state, view, place) {
  const window = view.windows[Math.min(state.windows[place] ?? 0, view.windows.length - 1)];
  const maps = window.kinds.find(({ kind }) => kind === state.kind) ?? window.kinds[0];
  const nearest = (all, wanted) => all.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best), all[0]);
  const [layer, head] = [nearest(maps.layers, state.layer), nearest(maps.heads, state.head)];
  const unit = maps.byWords ? state.unit : 'tokens';
  return {
    window, maps, layer, head, unit, weights: maps.weights(layer, head, unit),
    rows: maps.units('row', unit), columns: maps.units('column', unit),
  };
}

/** What is pointed at or kept, as a unit of this view; one of the other view is found again in this one. */
function linked(state, views, ctx) {
  const found = state.focus ?? state.pinned;
  if (!found) return null;
  const here = ctx.now()[`${found.side}s`];
  if (found.view === ctx.place) return found.index < here.length ? found : null;
  const other = chosen(state, views[found.view], found.view)[`${found.side}s`];
  const index = alignment(other, here, views[found.view], ctx.view)[found.index] ?? -1;
  return index < 0 ? null : { side: found.side, index };
}

const alignments = new WeakMap();

function alignment(other, here, otherView, view) {
  if (!alignments.has(other)) alignments.set(other, new Map());
  const known = alignments.get(other);
  if (!known.has(here)) {
    const sameText = otherView.texts.map(({ text }) => text).join('\n') === view.texts.map(({ text }) => text).join('\n');
    known.set(here, aligned(other, here, sameText));
  }
  return known.get(here);
}

function toolbar(store, contexts) {
  const kinds = [...new Set(contexts.flatMap(({ view }) => view.windows.flatMap((window) => window.kinds.map(({ kind }) => kind))))];
  const bar = element('div.toolbar', { role: 'toolbar', 'aria-label': say('attention') });
  const fill = () => bar.replaceChildren(...[
    kinds.length > 1 && chooser(say('kind'), kinds.map((kind) => [kind, say(`kind_${kind}`)]), contexts[0].now().maps.kind, (kind) => store.change({ kind, focus: null, pinned: null })),
    contexts.some((ctx) => ctx.now().maps.byWords) && segmented(say('units'), ['words', 'tokens'].map((unit) => [unit, say(unit)]), store.state.unit, (unit) => store.change({ unit, focus: null, pinned: null })),
    segmented(say('large'), ['lines', 'matrix'].map((large) => [large, say(large)]), store.state.large, (large) => store.change({ large })),
    contexts.some((ctx) => ctx.now().maps.square) && segmented(say('direction'), ['from', 'to'].map((direction) => [direction, say(direction)]), store.state.direction, (direction) => store.change({ direction, focus: null, pinned: null })),
  ].filter(Boolean));
  fill();
  store.on(bar, ['kind'], () => { fill(); bar.querySelector('select')?.focus(); });
  for (const name of ['unit', 'large', 'direction']) {
    store.on(bar, [name], () => { for (const radio of bar.querySelectorAll(`input[value="${store.state[name]}"]`)) radio.checked = true; });
  }
  return bar;
}

function panel(ctx) {
  const node = element('div.panel.seen');
  const build = () => node.replaceChildren(element('div.text', {}, windowChooser(ctx), reading(ctx)), overview(ctx), large(ctx));
  build();
  ctx.store.on(node, ['unit', 'kind', 'windows'], build);
  return node;
}

/** Which window of a long text is shown, and how much of the text they all read. */
function windowChooser({ store, view, place }) {
  const coverage = view.coverage ?? 1;
  if (view.windows.length < 2 && coverage >= 1) return null;
  const names = view.windows.map((window, at) => [String(at), `${say('of', { one: at + 1, all: view.windows.length })} · ${stretch(window)}`]);
  const choose = (at) => store.change({ windows: Object.assign([...store.state.windows], { [place]: Number(at) }), focus: null, pinned: null });
  return element('div.windows', {},
    view.windows.length > 1 && chooser(say('window'), names, String(store.state.windows[place] ?? 0), choose),
    element('span.soft', {}, say('coverage', { share: percent(coverage) })));
}

function stretch({ tokens }) {
  const part = Math.max(...tokens.map((token) => token.part));
  const own = tokens.filter((token) => token.part === part && part >= 0);
  if (!own.length) return '–';
  return say(part ? 'window_pair' : 'window_about', { part: part + 1, start: own[0].start, end: own.at(-1).end });
}

/** The running text, coloured by the attention of the unit that is pointed at, or else by what each gets. */
function reading(ctx) {
  const { rows, columns, maps } = ctx.now();
  const note = element('p.note.soft');
  if (!ctx.view.texts.some(({ text }) => text.trim())) note.classList.add('empty');
  const strips = maps.square
    ? [{ ...running(ctx.view, rows, say('text_words')), side: null }]
    : [{ ...running(ctx.view, rows, say('who_asks')), side: 'row' }, { ...running(ctx.view, columns, say('who_answers')), side: 'column' }];
  for (const strip of strips) pointable(strip.node, ctx, () => strip.side ?? (ctx.store.state.direction === 'to' ? 'column' : 'row'));
  const paint = framed(() => {
    const lit = ctx.lit();
    note.textContent = noted(ctx, lit);
    for (const { nodes, side } of strips) tint(nodes, tintOf(ctx, lit, side), !lit || (side && side !== lit.side) ? -1 : lit.index);
  });
  for (const strip of strips) ctx.store.on(strip.node, ['layer', 'head', 'loaded', 'focus', 'pinned'], paint);
  paint();
  const blocks = strips.map(({ node, side }) => element('div.strip', {}, side && element('h3.soft', {}, say(side === 'row' ? 'who_asks' : 'who_answers')), node));
  return [...blocks, note];
}

function noted(ctx, lit) {
  if (!ctx.view.texts.some(({ text }) => text.trim())) return say('empty_text');
  const { rows, columns } = ctx.now();
  if (!lit) return say('resting');
  return lit.side === 'row' ? say('looking_from', { word: rows[lit.index].text }) : say('looking_to', { word: columns[lit.index].text });
}

/** The weights that colour a strip: one row, one column, or the mean of all rows. */
function tintOf(ctx, lit, side) {
  const { weights, rows, columns } = ctx.now();
  if (!weights) return null;
  if (lit) return side === lit.side ? null : lit.side === 'row' ? ctx.row(lit.index) : ctx.column(lit.index);
  if (side === 'row') return null;
  const means = new Float32Array(columns.length);
  for (let at = 0; at < weights.length; at += 1) means[at % columns.length] += weights[at] / rows.length;
  return means;
}

function overview(ctx) {
  const { store } = ctx;
  const { window, maps } = ctx.now();
  const names = maps === window.kinds[0] ? [...window.measures.keys()] : [];
  const sort = element('input', { type: 'checkbox', checked: store.state.sorted, disabled: store.state.measure === 'none', onchange: () => store.change({ sorted: sort.checked }) });
  store.on(sort, ['measure', 'sorted'], () => { sort.disabled = store.state.measure === 'none'; sort.checked = store.state.sorted; });
  return element('div.overview', {},
    element('div.caption', {}, element('h3', {}, say('heads')), element('p.soft', {}, say('heads_about'))),
    names.length > 0 && element('div.toolbar', {},
      chooser(say('measure'), [['none', say('measure_none')], ...names.map((name) => [name, say(name)])], store.state.measure, (measure) => store.change({ measure })),
      element('label.check', {}, sort, element('span', {}, say('sorted')))),
    headGrid(ctx));
}

function large(ctx) {
  const { store } = ctx;
  const holder = element('div.drawing');
  const build = () => holder.replaceChildren(store.state.large === 'matrix' ? matrixView(ctx) : linesView(ctx));
  build();
  store.on(holder, ['large'], build);
  return element('div.large', {}, stepper(ctx), holder, readout(ctx), links(ctx));
}

/** The head's name, with buttons to the layers and heads beside it. */
function stepper(ctx) {
  const name = element('h3', { 'aria-live': 'polite' });
  const arrow = (label, sign, act) => element('button.step', { type: 'button', 'aria-label': say(label), onclick: act }, sign);
  const write = () => { const { layer, head } = ctx.now(); name.textContent = say('head_name', { layer, head }); };
  write();
  ctx.store.on(name, ['layer', 'head'], write);
  return element('div.stepper', {}, name,
    element('span.pair', {}, element('span.soft', {}, say('layer')), arrow('previous_layer', '‹', () => step(ctx, 'layer', -1)), arrow('next_layer', '›', () => step(ctx, 'layer', 1))),
    element('span.pair', {}, element('span.soft', {}, say('head')), arrow('previous_head', '‹', () => step(ctx, 'head', -1)), arrow('next_head', '›', () => step(ctx, 'head', 1))));
}

/** Chooses the layer or head before or after, around the ends. */
export function step(ctx, name, by) {
  const now = ctx.now();
  const all = now.maps[`${name}s`];
  ctx.store.change({ layer: now.layer, head: now.head, [name]: all[(all.indexOf(now[name]) + by + all.length) % all.length] });
}

/** The cell that is pointed at in the matrix, in words. */
function readout(ctx) {
  const node = element('p.readout', { 'aria-live': 'polite' });
  ctx.store.on(node, ['focus', 'layer', 'head', 'large'], framed(() => {
    const { weights, rows, columns } = ctx.now();
    const cell = ctx.store.state.focus?.view === ctx.place ? ctx.store.state.focus.cell : null;
    node.textContent = cell && weights
      ? say('link', { from: rows[cell[0]].text, to: columns[cell[1]].text, weight: coarse(weights[cell[0] * columns.length + cell[1]]) }) : '';
  }));
  return node;
}

/** The strongest weights in words: what the drawing shows, for those who cannot see it. */
function links(ctx) {
  const list = element('ol.links');
  const write = framed(() => {
    const { weights, rows, columns } = ctx.now();
    const found = weights ? strongest(weights, Math.min(NUM_LINKS, weights.length)) : [];
    list.replaceChildren(...found.map((at) => element('li', {},
      element('span', {}, element('bdi', {}, rows[Math.floor(at / columns.length)].text), ' → ', element('bdi', {}, columns[at % columns.length].text)), ' ',
      element('span.number', {}, coarse(weights[at])))), weights ? '' : element('li.soft', {}, say('loading')));
  });
  write();
  ctx.store.on(list, ['layer', 'head', 'loaded'], write);
  return element('details', { open: true }, element('summary', {}, say('strongest')), list);
}

function strongest(weights, count) {
  const best = [];
  for (let at = 0; at < weights.length; at += 1) {
    if (best.length === count && weights[at] <= weights[best.at(-1)]) continue;
    let place = best.length;
    while (place > 0 && weights[best[place - 1]] < weights[at]) place -= 1;
    best.splice(place, 0, at);
    best.length = Math.min(best.length, count);
  }
  return best;
}
