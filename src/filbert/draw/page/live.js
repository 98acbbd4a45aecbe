// What the reader types in; requests to the server beside the page, and their views, out.

import { chooser, element } from './dom.js';
import { takeIn } from './scene.js';
import { say } from './words.js';

/** Asks the server: a view, or an error whose message can be shown. */
export async function look(request, signal) {
  let answer;
  try {
    answer = await fetch('look', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(request), signal });
  } catch (error) {
    throw signal?.aborted ? error : new Error(say('unreachable'));
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error ?? `${answer.status}`);
  return found;
}

/** Fetches the layers that are not here yet, the nearest to the chosen one first, one at a time. */
export async function fetchLayers(request, view, chosenLayer, told, signal) {
  const missing = new Set(view.windows.flatMap(({ kinds }) => kinds.flatMap((maps) => maps.layers.filter((layer) => !maps.planes.has(layer)))));
  while (missing.size && !signal.aborted) {
    const layer = [...missing].sort((one, other) => Math.abs(one - chosenLayer()) - Math.abs(other - chosenLayer()) || one - other)[0];
    missing.delete(layer);
    const more = await look({ ...request, layers: [layer], explain: null }, signal);
    view.windows.forEach((window, at) => { if (more.windows[at]) takeIn(window, more.windows[at]); });
    await told(view);
  }
}

/** The form at the top: texts, model, what to set beside it, how to explain. `ask(requests)` gets one for each view. */
export function composer(live, draft, ask) {
  const models = live.models ?? [];
  const form = element('form.composer', { onsubmit: (event) => { event.preventDefault(); submit(); } });
  const status = element('p.status', { role: 'status' });
  const shut = () => [draft.model, ...(draft.beside === 'model' ? [draft.otherModel] : [])].map((name) => models.find((own) => own.name === name)?.closed).find(Boolean);
  const submit = () => {
    if (shut()) return;
    if (!draft.texts[0].trim()) { status.textContent = say('type_first'); return; }
    ask(requests(draft, models));
  };
  const go = element('button.go', { type: 'submit', title: say('look_key') }, say('look'));
  const told = () => {
    go.disabled = Boolean(shut());
    status.textContent = shut() ? say(`closed_${shut()}`) : '';
  };
  const build = () => { fill(); told(); };
  const fill = () => form.replaceChildren(
    element('div.fields', {}, field(draft.texts, 0, say('text'), submit),
      draft.texts.length > 1 && field(draft.texts, 1, say('second_text'), submit),
      draft.beside === 'text' && field(draft.others, 0, say('other_text'), submit)),
    element('div.toolbar', {},
      models.length > 1 && chooser(say('model'), models.map(({ name }) => [name, name]), draft.model, (model) => { draft.model = model; build(); }),
      chooser(say('compare'), ['none', 'text', ...(models.length > 1 ? ['model'] : [])].map((kind) => [kind, say(`compare_${kind}`)]), draft.beside, (kind) => { draft.beside = kind; build(); }),
      draft.beside === 'model' && chooser(say('other_model'), models.map(({ name }) => [name, name]), draft.otherModel, (model) => { draft.otherModel = model; told(); }),
      ...explainers(draft, models, build),
      element('button.link', { type: 'button', onclick: () => { draft.texts = draft.texts.length > 1 ? draft.texts.slice(0, 1) : [draft.texts[0], '']; build(); } }, say(draft.texts.length > 1 ? 'drop_second' : 'add_second')),
      go), status);
  build();
  return { node: form, told: (text) => { status.textContent = text; } };
}

function field(texts, at, label, submit) {
  const area = element('textarea', { rows: 3, dir: 'auto', spellcheck: 'false', value: texts[at], oninput: () => { texts[at] = area.value; } });
  area.addEventListener('keydown', (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); } });
  return element('label.field', {}, element('span', {}, label), area);
}

function explainers(draft, models, build) {
  const model = models.find(({ name }) => name === draft.model);
  if (!model?.methods?.length) return [];
  const methods = [['', say('explain_none')], ...model.methods.map((method) => [method, method])];
  const targets = [['', say('target_best')], ...(model.labels ?? []).map((label) => [label, label])];
  return [chooser(say('explain_by'), methods, draft.method, (method) => { draft.method = method; build(); }),
    draft.method && targets.length > 1 && chooser(say('target'), targets, draft.target, (target) => { draft.target = target; })];
}

/** What the form holds at first: what the scene shows. */
export function draftOf(scene) {
  const [first, second] = scene.views ?? [];
  const names = (scene.live.models ?? []).map(({ name }) => name);
  const model = names.includes(first?.model) ? first.model : names[0] ?? null;
  return {
    texts: [...(first?.texts ?? [''])], others: [second?.texts[0] ?? ''], model,
    otherModel: names.find((name) => name !== model) ?? model,
    beside: second ? (second.model === first.model ? 'text' : 'model') : 'none', method: '', target: '',
  };
}

function requests(draft, models) {
  const asked = (model, texts) => {
    const methods = models.find(({ name }) => name === model)?.methods ?? [];
    const explain = methods.includes(draft.method) ? { method: draft.method, target: draft.target || null } : null;
    return { model, texts, explain };
  };
  const first = asked(draft.model, [...draft.texts]);
  if (draft.beside === 'text') return [first, asked(draft.model, [draft.others[0], ...draft.texts.slice(1)])];
  return draft.beside === 'model' ? [first, asked(draft.otherModel, [...draft.texts])] : [first];
}
