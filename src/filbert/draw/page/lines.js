// One head in; its two columns of words with a line from each to those it looks at, as strong as the weight, out.

import { paints, themeNow } from './colours.js';
import { element, framed, sized } from './dom.js';
import { pointable, stacked, tint } from './tokens.js';
import { say } from './words.js';

const ROW = 25; // pixels; as in style.css
const FAINTEST = 0.03; // of the strongest line; weaker ones are not drawn
const SHADES = 24;

/** The lines of the head that is chosen. Only those in sight are drawn, on a canvas as high as what is in sight. */
export function linesView(ctx) {
  const { rows, columns } = ctx.now();
  const [left, right] = [stacked(rows, say('who_asks'), 'asks'), stacked(columns, say('who_answers'), 'answers')];
  const canvas = element('canvas', { 'aria-hidden': 'true' });
  const between = element('div.between', {}, canvas);
  const node = element('div.lines', {}, left.node, between, right.node);
  pointable(left.node, ctx, () => 'row');
  pointable(right.node, ctx, () => 'column');
  const paint = framed(() => {
    const { weights } = ctx.now();
    const lit = ctx.lit();
    const on = (side) => (lit?.side === side ? lit.index : -1);
    tint(left.nodes, lit?.side === 'column' ? ctx.column(lit.index) : null, on('row'), true);
    tint(right.nodes, lit?.side === 'row' ? ctx.row(lit.index) : null, on('column'), true);
    node.classList.toggle('pointed', Boolean(lit));
    const [width, height] = [between.clientWidth, Math.min(node.clientHeight, Math.max(rows.length, columns.length) * ROW)];
    const pen = sized(canvas, width, height);
    if (weights) stroked(pen, { weights, lit, count: columns.length, width, height, top: node.scrollTop }, ctx);
  });
  ctx.store.on(node, ['layer', 'head', 'loaded', 'theme', 'focus', 'pinned'], paint);
  node.addEventListener('scroll', paint);
  new ResizeObserver(paint).observe(between);
  return node;
}

/** Lines of like strength share one path: a stroke each would be a thousand times slower. */
function stroked(pen, { weights, lit, count, width, height, top }, ctx) {
  const paths = Array.from({ length: SHADES }, () => new Path2D());
  const numRows = weights.length / count;
  const [firstRow, lastRow] = lit?.side === 'row' ? [lit.index, lit.index + 1] : [0, numRows];
  const [firstColumn, lastColumn] = lit?.side === 'column' ? [lit.index, lit.index + 1] : [0, count];
  const strongest = most(weights, count, firstRow, lastRow, firstColumn, lastColumn);
  for (let row = firstRow; row < lastRow; row += 1) {
    const from = row * ROW + ROW / 2 - top;
    for (let column = firstColumn; column < lastColumn; column += 1) {
      const share = weights[row * count + column] / strongest;
      const to = column * ROW + ROW / 2 - top;
      if (share < FAINTEST || (from < 0 && to < 0) || (from > height && to > height)) continue;
      const path = paths[Math.min(SHADES - 1, Math.floor(share * SHADES))];
      path.moveTo(0, from);
      path.bezierCurveTo(width / 2, from, width / 2, to, width, to);
    }
  }
  const colour = paints(themeNow(ctx.store.state.theme)).line;
  paths.forEach((path, shade) => {
    const share = (shade + 0.7) / SHADES;
    pen.strokeStyle = `rgba(${colour}, ${share})`;
    pen.lineWidth = 0.8 + 2.2 * share;
    pen.stroke(path);
  });
}

function most(weights, count, firstRow, lastRow, firstColumn, lastColumn) {
  let found = 1e-9;
  for (let row = firstRow; row < lastRow; row += 1) {
    for (let column = firstColumn; column < lastColumn; column += 1) found = Math.max(found, weights[row * count + column]);
  }
  return found;
}
