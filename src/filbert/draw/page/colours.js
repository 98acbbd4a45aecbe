// A theme and weights in; colours that colour-blind readers can tell apart (Okabe and Ito; core/page.py) out.

import { hurry } from './dom.js';

const PAINTS = {
  light: { from: [255, 255, 255], middle: [86, 180, 233], to: [0, 52, 92], line: '0, 114, 178', ink: '#20242a', soft: '#5c6570', mark: '#d55e00' },
  dark: { from: [24, 28, 34], middle: [0, 114, 178], to: [214, 240, 255], line: '86, 180, 233', ink: '#e6e9ed', soft: '#a3abb5', mark: '#ff9a4d' },
};
const systemDark = window.matchMedia('(prefers-color-scheme: dark)');
let printing = false;

/** "light" or "dark": what was chosen, or what the system likes; paper is light. */
export function themeNow(chosen) {
  if (printing) return 'light';
  return chosen === 'auto' ? (systemDark.matches ? 'dark' : 'light') : chosen;
}

/** Calls act() when the system's theme turns, and around printing. */
export function watchTheme(act) {
  systemDark.addEventListener('change', act);
  const turn = (now) => { printing = now; hurry(now); act(); hurry(false); };
  window.addEventListener('beforeprint', () => turn(true));
  window.addEventListener('afterprint', () => turn(false));
}

/** The paints of a theme: for lines, ink and marks on a canvas. */
export function paints(theme) {
  return PAINTS[theme];
}

const scales = {};

/** 256 colours as pixels, for 0 … 255 of a weight's square root. */
export function scale(theme) {
  scales[theme] ??= Uint32Array.from({ length: 256 }, (_, code) => {
    const { from, middle, to } = PAINTS[theme];
    const [low, high, share] = code < 128 ? [from, middle, code / 128] : [middle, to, (code - 128) / 127];
    const [red, green, blue] = low.map((value, at) => Math.round(value + (high[at] - value) * share));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
  return scales[theme];
}

/** A small image of a map, a pixel for each value of 0 … 1. */
export function imaged(values, width, height, theme) {
  const colours = scale(theme);
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < pixels.length; at += 1) pixels[at] = colours[Math.min(255, Math.round(255 * Math.sqrt(values[at])))];
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [width, height];
  canvas.getContext('2d').putImageData(image, 0, 0);
  return canvas;
}
