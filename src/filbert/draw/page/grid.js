// The maps of all heads in; a grid of thumbnails on one canvas, with a button on each for mouse, keys and readers, out.

import { imaged, themeNow } from './colours.js';
import { element, framed, sized } from './dom.js';
import { rove } from './keys.js';
import { figure, say } from './words.js';

const [PIXELS, LABEL, GAP, LEAST, MOST] = [48, 26, 5, 18, 84];
const SLICE_MS = 8; // of drawing in one frame, so that pointing stays smooth meanwhile

/** The grid of one view. It asks `ctx.now()` what is shown and tells the store which head was chosen. */
export function headGrid(ctx) {
  const { store } = ctx;
  const { maps } = ctx.now();
  const canvas = element('canvas', { 'aria-hidden': 'true' });
  const board = element('div.board', { role: 'grid', 'aria-label': say('heads') });
  const node = element('div.grid', {}, canvas, board);
  const buttons = maps.layers.flatMap((layer) => maps.heads.map((head) => button(ctx, layer, head)));
  let side = 0;

  const arrange = () => {
    board.replaceChildren(...maps.layers.map((layer) => element('div.row', { role: 'row' },
      element('span.label', { role: 'rowheader' }, String(layer)), ordered(ctx, buttons.filter((one) => one.layer === layer)).map((one) => one.node))));
    measured(ctx, buttons);
    chosen();
  };
  const chosen = () => {
    const now = ctx.now();
    for (const one of buttons) {
      const on = one.layer === now.layer && one.head === now.head;
      one.node.setAttribute('aria-selected', String(on));
      one.node.tabIndex = on ? 0 : -1;
    }
  };
  const paint = framed(() => {
    const room = node.clientWidth - LABEL;
    if (room <= 0) return;
    side = Math.max(LEAST, Math.min(MOST, Math.floor(room / maps.heads.length) - GAP));
    node.style.setProperty('--side', `${side}px`);
    const pen = sized(canvas, (side + GAP) * maps.heads.length, board.offsetHeight || 1);
    drawn(pen, ctx, buttons.map((one) => ({ ...one, x: one.node.offsetLeft - LABEL, y: one.node.offsetTop, side })), canvas);
  });
  arrange();
  rove(board);
  chosen();
  store.on(node, ['layer', 'head'], chosen);
  store.on(node, ['sorted', 'measure'], () => { arrange(); paint(); });
  store.on(node, ['loaded', 'theme'], paint);
  new ResizeObserver(paint).observe(node);
  return node;
}

function button(ctx, layer, head) {
  const choose = () => ctx.store.change({ layer, head });
  const node = element('button.head', {
    type: 'button', role: 'gridcell', tabindex: -1, 'data-index': `${layer}/${head}`, onclick: choose,
    onfocus: () => { if (node.matches(':focus-visible')) choose(); }, // arrows choose as they go
  });
  return { node, layer, head };
}

/** The value of a measure (entropy, distance, importance) for a head, or null. */
function valueOf(ctx, measure, layer, head) {
  const { maps, window } = ctx.now();
  if (maps !== window.kinds[0]) return null;
  return window.measures.get(measure)?.get(layer)?.[maps.heads.indexOf(head)] ?? null;
}

function ordered(ctx, row) {
  const { measure, sorted } = ctx.store.state;
  if (!sorted || measure === 'none') return row;
  const value = ({ layer, head }) => valueOf(ctx, measure, layer, head) ?? -Infinity;
  return [...row].sort((one, other) => value(other) - value(one));
}

/** A bar below each thumbnail, and all that is known of the head in its label. */
function measured(ctx, buttons) {
  const { measure } = ctx.store.state;
  const values = buttons.map(({ layer, head }) => valueOf(ctx, measure, layer, head));
  const most = Math.max(1e-9, ...values.map((value) => Math.abs(value ?? 0)));
  buttons.forEach(({ node, layer, head }, at) => {
    const known = ['entropy', 'distance', 'importance'].map((name) => [say(name), valueOf(ctx, name, layer, head)]).filter(([, value]) => value !== null);
    const label = [say('head_name', { layer, head }), ...known.map(([name, value]) => `${name} ${figure(value)}`)].join(' · ');
    node.setAttribute('aria-label', label);
    node.dataset.tip = label;
    node.style.setProperty('--share', values[at] === null ? 0 : Math.abs(values[at]) / most);
  });
}

/** Draws what is there, and goes on in later frames with what is still to be made small. */
function drawn(pen, ctx, places, canvas) {
  const theme = themeNow(ctx.store.state.theme);
  const { maps, unit } = ctx.now();
  const size = [canvas.width, canvas.height].join();
  const todo = places.filter(({ layer, head, x, y, side }) => {
    const thumb = maps.thumbs[unit].get(`${layer}/${head}`);
    if (thumb) put(pen, thumb, x, y, side, theme);
    return !thumb && maps.planes.has(layer);
  });
  const go = () => {
    if (!canvas.isConnected || [canvas.width, canvas.height].join() !== size) return;
    for (const end = performance.now() + SLICE_MS; todo.length && performance.now() < end;) {
      const { layer, head, x, y, side } = todo.shift();
      put(pen, thumbOf(maps, layer, head, unit), x, y, side, theme);
    }
    if (todo.length) requestAnimationFrame(go);
  };
  go();
}

function put(pen, { values, width, height }, x, y, side, theme) {
  pen.imageSmoothingEnabled = width > side;
  pen.drawImage(imaged(values, width, height, theme), x, y, side, side);
}

/** The map made small: each pixel the largest weight below it, because a mean would hide what is sharp. */
function thumbOf(maps, layer, head, unit) {
  const key = `${layer}/${head}`;
  if (!maps.thumbs[unit].has(key)) {
    const [rows, columns] = [maps.units('row', unit).length, maps.units('column', unit).length];
    maps.thumbs[unit].set(key, smaller(maps.reckoned(layer, head, unit), rows, columns));
  }
  return maps.thumbs[unit].get(key);
}

function smaller(weights, rows, columns) {
  const [height, width] = [Math.min(rows, PIXELS), Math.min(columns, PIXELS)];
  const values = new Float32Array(height * width);
  const across = Uint16Array.from({ length: columns }, (_, column) => Math.floor(column * width / columns));
  for (let row = 0, at = 0; row < rows; row += 1) {
    const line = Math.floor(row * height / rows) * width;
    for (let column = 0; column < columns; column += 1, at += 1) {
      const place = line + across[column];
      if (weights[at] > values[place]) values[place] = weights[at];
    }
  }
  return { values, width, height };
}
