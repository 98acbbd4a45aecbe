// The name of a sentence in; the sentence in the reader's language, English or Chinese, out.

const SENTENCES = {
  // name: [English, Chinese]
  language: ['Language', '语言'],
  theme: ['Colours', '配色'],
  theme_auto: ['Auto', '自动'],
  theme_light: ['Light', '浅色'],
  theme_dark: ['Dark', '深色'],
  help: ['Help', '帮助'],
  help_key: ['Help and keys (?)', '帮助与按键（?）'],
  close: ['Close', '关闭'],
  trained_for: ['task: {task}', '任务：{task}'],
  empty_text: ['The text is empty.', '文本是空的。'],
  no_views: ['Type or paste a text above to see what the model does with it.', '在上面输入或粘贴一段文本，看看模型如何处理它。'],
  broken: ['This part could not be read: {why}', '这一部分无法读取：{why}'],
  of: ['{one} of {all}', '第 {one} / {all}'],

  prediction: ['What it says', '模型的回答'],
  prediction_about: ['The model’s own scores.', '模型自己给出的分数。'],
  nothing_found: ['Nothing was found in this text.', '在这段文本中没有找到任何内容。'],
  no_answer: ['It found no answer in the text.', '没有在文本中找到答案。'],
  several: ['Labels', '标签'],
  none: ['none', '无'],
  against_random: ['random: {range}', '随机：{range}'],
  more: ['and {count} more', '另有 {count} 个'],
  column_label: ['Label', '标签'],
  column_score: ['Score', '分数'],
  marks_about: ['{count} marked in the text', '文中标出 {count} 处'],

  why: ['Which words decided', '哪些词起了作用'],
  why_about: ['Blue words speak for the answer, orange ones against it.', '蓝色的词支持这个回答，橙色的词反对它。'],
  explained: ['{target}, by {method}', '{target}（{method}）'],
  explanation: ['Explanation', '解释'],
  for_answer: ['for', '支持'],
  against_answer: ['against', '反对'],
  value_baseline: ['The score (log-odds) is {value} for this text and {baseline} for an emptied one.', '这段文本的分数（对数几率）是 {value}，清空后是 {baseline}。'],
  as_table: ['The numbers as a table', '以表格查看数值'],
  column_word: ['Word', '词'],
  certificate: ['How far to trust this', '可信程度'],
  no_certificate: ['Nobody checked whether this picture is true to the model.', '没有检验过这幅图是否忠实于模型。'],
  verdict_faithful: ['Faithful', '可信'],
  verdict_weak: ['Weak', '偏弱'],
  verdict_random: ['No better than random', '不比随机更好'],

  blanks: ['Fill in the blank', '填空'],
  blanks_about: ['What the model would put in each [MASK].', '模型会在每个 [MASK] 处填入什么。'],
  blanks_edit: ['Press a word to change it, and see what that moves.', '点一个词来修改它，看看候选如何变化。'],
  blank: ['Blank {number}', '空 {number}'],
  moved_by: ['changed: {from} → {to}', '改动：{from} → {to}'],
  moved_against: ['arrows: against the other text', '箭头：与另一段文本相比'],
  nothing: ['(nothing)', '（空）'],
  up: ['up by {by}', '上升 {by}'],
  down: ['down by {by}', '下降 {by}'],
  points: ['{by} pp', '{by} 点'],
  fresh: ['new', '新'],
  change_word: ['Change “{word}” to', '将“{word}”改为'],

  attention: ['Where it looks', '它在看哪里'],
  attention_about: ['Attention: how much each word takes from each other word.', '注意力：每个词从其他词获取多少信息。'],
  kind: ['Attention', '注意力'],
  kind_self: ['within the text', '文本内部'],
  kind_written: ['within what it wrote', '所写文本内部'],
  kind_cross: ['from written to read', '从译文到原文'],
  kind_words: ['words of a sentence', '句中的词'],
  kind_sentences: ['sentences', '句子'],
  units: ['Unit', '单位'],
  words: ['Words', '词'],
  tokens: ['Tokens', '词元'],
  direction: ['Pointing shows', '指向时显示'],
  from: ['where it looks', '它看向谁'],
  to: ['who looks at it', '谁看向它'],
  large: ['Drawing', '图形'],
  lines: ['Lines', '连线'],
  matrix: ['Matrix', '矩阵'],
  window: ['Window', '窗口'],
  window_about: ['characters {start}–{end}', '第 {start}–{end} 个字符'],
  window_pair: ['text {part}, characters {start}–{end}', '文本 {part}，第 {start}–{end} 个字符'],
  coverage: ['The windows read {share} of the text.', '各窗口共读取了文本的 {share}。'],
  heads: ['All heads', '所有注意力头'],
  heads_about: ['A row for each layer, a column for each head; counted from 0, as in Python.', '每行一层，每列一个头；与 Python 一样从 0 数起。'],
  measure: ['Show', '显示'],
  measure_none: ['maps only', '仅注意力图'],
  entropy: ['entropy', '熵'],
  distance: ['distance', '距离'],
  importance: ['importance', '重要性'],
  sorted: ['sort by it', '按此排序'],
  head_name: ['Layer {layer}, head {head}', '第 {layer} 层，第 {head} 头'],
  previous_layer: ['Previous layer', '上一层'],
  next_layer: ['Next layer', '下一层'],
  previous_head: ['Previous head', '上一个头'],
  next_head: ['Next head', '下一个头'],
  layer: ['Layer', '层'],
  head: ['Head', '头'],
  loading: ['on its way …', '正在读取……'],
  text_words: ['The words of the text', '文本中的词'],
  who_asks: ['Who looks', '谁在看'],
  who_answers: ['Who is looked at', '被谁看'],
  resting: ['Colour: how much attention each word gets on average. Point at a word, or move to it by keyboard.', '颜色：每个词平均得到的注意力。用鼠标或键盘移到某个词上。'],
  looking_from: ['Colour: where “{word}” looks.', '颜色：“{word}”看向哪里。'],
  looking_to: ['Colour: who looks at “{word}”.', '颜色：谁看向“{word}”。'],
  link: ['{from} → {to}  {weight}', '{from} → {to}  {weight}'],
  strongest: ['Strongest links of this head', '这个头最强的联系'],
  matrix_label: ['Matrix of one head. Rows look at columns. Arrow keys move from cell to cell.', '一个注意力头的矩阵。行看向列。用方向键在格子间移动。'],

  text: ['Text', '文本'],
  second_text: ['Second text of a pair', '文本对的第二段'],
  add_second: ['Add a second text (a pair)', '添加第二段文本（文本对）'],
  drop_second: ['Remove the second text', '移除第二段文本'],
  model: ['Model', '模型'],
  compare: ['Beside it', '并排'],
  compare_none: ['nothing', '无'],
  compare_text: ['another text', '另一段文本'],
  compare_model: ['another model', '另一个模型'],
  other_text: ['The other text', '另一段文本'],
  other_model: ['The other model', '另一个模型'],
  explain_by: ['Explain by', '解释方法'],
  explain_none: ['no method', '不解释'],
  target: ['Explain', '解释对象'],
  target_best: ['its answer', '它的回答'],
  look: ['Look', '查看'],
  look_key: ['Ctrl + Enter', 'Ctrl + Enter'],
  looking: ['Looking …', '正在查看……'],
  closed_no_torch: ['This server runs the model without torch, which a look inside needs; start it with --runtime torch. /predict and the other paths answer as ever.', '此服务器不用 torch 运行该模型，而查看内部需要 torch；请用 --runtime torch 启动。/predict 等路径照常回答。'],
  closed_off: ['This server was started with --no-look, so nobody may look inside its models. /predict and the other paths answer as ever.', '此服务器以 --no-look 启动，不能查看模型内部。/predict 等路径照常回答。'],
  type_first: ['Type a text first.', '请先输入文本。'],
  failed: ['It did not work: {why}', '没有成功：{why}'],
  unreachable: ['The server does not answer.', '服务器没有响应。'],

  keys_about: ['Everything works by keyboard. Tab moves between parts; arrows move inside one.', '所有功能都可用键盘操作。Tab 在各部分之间移动，方向键在部分内移动。'],
  key_arrows: ['next word, head or cell', '下一个词、头或格子'],
  key_pin: ['keep a word; again to let go', '固定一个词；再按一次松开'],
  key_escape: ['let go of the word; close this', '松开词；关闭此窗口'],
  key_layers: ['layer before, after', '上一层、下一层'],
  key_heads: ['head before, after', '上一个头、下一个头'],
  key_large: ['lines, matrix', '连线、矩阵'],
  key_units: ['words or tokens', '词或词元'],
  key_direction: ['where it looks, or who looks at it', '它看向谁，或谁看向它'],
  key_grid: ['to the heads, to the text', '转到注意力头、文本'],
  key_theme: ['dark or light', '深色或浅色'],
  key_language: ['English or Chinese', '英文或中文'],
  key_help: ['this help', '本帮助'],
};

/** What the numbers of a certificate (infer/certificate.py) mean, in plain words: [name, meaning] in both languages. */
const NUMBERS = {
  words: [['words', 'how many words of the text were ranked'], ['词数', '参与排序的词的数量']],
  completeness_gap: [['completeness gap', 'how far the words’ numbers are from summing to what they should; 0 is exact'], ['完整性误差', '各词数值之和与应有分数之差；0 为精确']],
  lift: [['lift', 'how far the score lies above that of random words'], ['提升', '分数比随机的词高出多少']],
  lift_p: [['p of the lift', 'the chance that random words do as well; small is good'], ['提升的 p 值', '随机的词同样好的概率；越小越好']],
  comprehensiveness: [['comprehensiveness', 'how far the score falls without the first words; high is good'], ['全面性', '去掉排在前面的词，分数下降多少；越高越好']],
  sufficiency: [['sufficiency', 'how far the score falls with the first words alone; low is good'], ['充分性', '只留排在前面的词，分数下降多少；越低越好']],
  order_p: [['p of the order', 'the share of random orders that do as well; small is good'], ['次序的 p 值', '同样好的随机次序的比例；越小越好']],
  same_over_seeds: [['same over seeds', 'how alike the ranks are with another seed; 1 is the same'], ['换种子的一致性', '换随机种子后排序的一致程度；1 为相同']],
  same_over_baselines: [['same over baselines', 'how alike the ranks are with another stand-in for missing words; 1 is the same'], ['换基线的一致性', '换一种方式表示缺词后排序的一致程度；1 为相同']],
  agreement_with: [['agreement with {other}', 'how alike that method ranks the words; 1 is the same'], ['与 {other} 的一致性', '该方法对词排序的一致程度；1 为相同']],
};

let spoken = 'en';

export const LANGUAGES = [['en', 'English'], ['zh', '中文']];

/** Sets the language of all sentences. */
export function speak(language) {
  spoken = language === 'zh' ? 'zh' : 'en';
  document.documentElement.lang = spoken === 'zh' ? 'zh-Hans' : 'en';
}

/** The language that is spoken now. */
export function spokenNow() {
  return spoken;
}

/** The language to begin with: the scene's, or else the browser's. */
export function firstLanguage(scene) {
  return scene.language ?? (navigator.language.startsWith('zh') ? 'zh' : 'en');
}

/** A sentence, with {names} filled in. */
export function say(name, values = {}) {
  const sentence = SENTENCES[name]?.[spoken === 'zh' ? 1 : 0] ?? name;
  return sentence.replace(/\{(\w+)\}/g, (hole, key) => values[key] ?? hole);
}

/** [name, meaning] of a number of a certificate; a name we do not know stands as it is. */
export function meaning(name) {
  const other = /^agreement_with_(\w+)$/.exec(name)?.[1].replaceAll('_', '-');
  const known = NUMBERS[other ? 'agreement_with' : name]?.[spoken === 'zh' ? 1 : 0];
  return known ? [known[0].replace('{other}', other), known[1]] : [name.replaceAll('_', ' '), ''];
}

/** A number for reading: three digits that count. */
export function figure(value) {
  if (value === null || value === undefined) return '–';
  if (Array.isArray(value)) return `${figure(value[0])} … ${figure(value[1])}`;
  if (typeof value !== 'number') return String(value);
  if (Number.isInteger(value)) return value.toLocaleString('en');
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 1 : size >= 1 ? 2 : size >= 0.0995 ? 3 : 4).replace('-', '−');
}

/** A weight of attention for reading. It came as one of 256 levels, so that two digits are what is known: 12 %. */
export function coarse(weight) {
  return `${(100 * weight).toFixed(weight < 0.0995 ? 1 : 0)} %`;
}

/** A share for reading: 12.3 %. */
export function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %`;
}

/** A number with its sign. */
export function signed(value) {
  return value > 0 ? `+${figure(value)}` : figure(value);
}
