// The page of one expert: the shown item, the answers, and how both are stored.
const byId = (id) => document.getElementById(id);
const made = (tag, ...parts) => {
  const element = document.createElement(tag);
  element.append(...parts);
  return element;
};
const { page, expert, form, items } = JSON.parse(byId('data').textContent);
const { questions } = form;
const known = new Set(items.map(({ item }) => item));
const kept = `cxr-ils-review:${page}`;
const view = new View(byId('canvas'), showView);
const pictures = new Map();
const undone = [];
const choices = [];
const ONCE = new Set(['u', 's']);
let answers = {};
let at = 0;
let since = performance.now();
let unsaved = false;
let stored = false;

// ---- what is kept ---------------------------------------------------------------------------------------------------

function answer(item) {
  return (answers[item] ||= { values: {}, note: '', seconds: 0 });
}

// Whether all questions about an item are answered.
function judgedItem({ item }) {
  return questions.every(({ name }) => answers[item]?.values[name]);
}

// Damaged answers, and answers of another page, are ignored.
function restore() {
  try {
    const found = JSON.parse(localStorage.getItem(kept) || '{}');
    answers = {};
    for (const [item, { values, note, seconds }] of Object.entries(found.answers || {})) {
      if (!known.has(item)) continue;
      const told = questions.filter((question) => valuesOf(question).includes(values?.[question.name]));
      answers[item] = {
        values: Object.fromEntries(told.map(({ name }) => [name, values[name]])), note: String(note || ''),
        seconds: Number(seconds) || 0,
      };
    }
    at = Math.min(items.length - 1, Math.max(0, Math.trunc(Number(found.at)) || 0));
    localStorage.setItem(`${kept}:`, '');
    localStorage.removeItem(`${kept}:`);
    stored = true;
  } catch {
    stored = false;
  }
}

function keep() {
  try {
    localStorage.setItem(kept, JSON.stringify({ at, answers }));
    stored = true;
  } catch {
    stored = false;
  }
  showStorage();
}

function showStorage() {
  byId('storage').textContent = stored
    ? 'Your answers stay in this browser when you close the page. Send the saved sheet when all items are judged.'
    : 'This browser keeps nothing for this page: save the sheet before you close it, and resume from that sheet later.';
}

// Seconds for which the item was in front of the expert.
function count() {
  const now = performance.now();
  if (document.visibilityState === 'visible') answer(items[at].item).seconds += (now - since) / 1000;
  since = now;
}

// ---- what is shown --------------------------------------------------------------------------------------------------

function pictureOf(number) {
  if (!pictures.has(number)) {
    if (pictures.size > 7) pictures.delete(pictures.keys().next().value);
    pictures.set(number, pixelsOf(byId(`picture-${number}`).textContent.trim()));
  }
  return pictures.get(number);
}

// A report without the line breaks that only limit its width; those of paragraphs and lists stay.
function flowing(text) {
  const lines = (part) => part.split('\n').map((line) => line.trim()).filter(Boolean);
  const joined = (part) => lines(part).reduce((all, line) => all + (/^(\d+[.)]|[-*\u2022])/.test(line) ? '\n' : ' ') + line, '').trim();
  return text.replaceAll('\r', '').split(/\n[ \t]*\n/).map(joined).filter(Boolean).join('\n\n');
}

async function show() {
  const shown = items[at];
  const number = at;
  const { mask, picture, also } = shown;
  byId('where').textContent = `Item ${at + 1} of ${items.length} · ${shown.item}`;
  byId('question').textContent = shown.question;
  byId('hint').textContent = shown.hint;
  byId('facts').replaceChildren(...shown.facts.map(([name, label, value]) => {
    const fact = made('div', made('dt', label), made('dd', value));
    fact.lastChild.id = name;
    return fact;
  }));
  byId('head').textContent = shown.head;
  byId('report').textContent = flowing(shown.text);
  byId('report').hidden = !shown.text;
  byId('note').value = answer(shown.item).note;
  byId('canvas').setAttribute('aria-label', shown.alt);
  for (const id of ['mask', 'outline', 'opacity']) byId(id).disabled = !mask;
  byId('besides').disabled = !also;
  document.querySelector('.sides').hidden = shown.sides === false;
  byId('back').disabled = at === 0;
  byId('next').disabled = at === items.length - 1;
  showAnswer();
  view.clear();
  try {
    const layers = [mask, also].map((url) => (url ? maskOf(url) : null));
    const [levels, ...areas] = await Promise.all([pictureOf(picture), ...layers]);
    if (number !== at) return;
    view.show(levels, ...areas);
    if (items[at + 1]) pictureOf(items[at + 1].picture).catch(() => {});
  } catch (error) {
    if (number === at) say(error.message);
  }
}

function showAnswer() {
  const { values } = answer(items[at].item);
  for (const [button, name, value] of choices) button.setAttribute('aria-pressed', values[name] === value);
  const judged = items.filter(judgedItem).length;
  Object.assign(byId('progress'), { max: items.length, value: judged });
  byId('judged').textContent = `${judged} of ${items.length} judged`;
  byId('undo').disabled = !undone.length;
  byId('open').disabled = judged === items.length;
  return judged;
}

function showView() {
  byId('mask').setAttribute('aria-pressed', view.shown);
  byId('outline').setAttribute('aria-pressed', view.outline);
  byId('besides').setAttribute('aria-pressed', view.besides);
  byId('opacity').value = Math.round(100 * view.opacity);
  byId('window').value = view.window;
  byId('level').value = view.level;
  byId('levels').textContent = `${view.window} / ${view.level}`;
  byId('zoom').textContent = `${Math.round(100 * view.zoom)} %`;
}

function say(text) {
  byId('status').textContent = text;
}

// ---- what is done ---------------------------------------------------------------------------------------------------

function go(to) {
  if (to < 0 || to >= items.length || to === at) return;
  count();
  at = to;
  keep();
  say('');
  show();
}

function judge(name, value) {
  count();
  const { values } = answer(items[at].item);
  undone.push({ at, name, before: values[name] });
  values[name] = value;
  unsaved = true;
  keep();
  const judged = showAnswer();
  const number = at + 1;
  const left = questions.find((question) => !values[question.name]);
  if (left) {
    say(`Item ${number}: ${value}. ${left.text}`);
    return;
  }
  if (at < items.length - 1) go(at + 1);
  const open = items.length - judged;
  const more = open === 0 ? ' All items are judged: save the sheet.' : at === number - 1 ? ` ${open} others are open: J.` : '';
  say(`Item ${number}: ${value}.${more}`);
}

function undo() {
  const last = undone.pop();
  if (!last) return;
  count();
  at = last.at;
  const { values } = answer(items[at].item);
  if (last.before) values[last.name] = last.before;
  else delete values[last.name];
  unsaved = true;
  keep();
  show();
  say(`Item ${at + 1}: the answer was undone.`);
}

function nextOpen() {
  const open = (index) => !judgedItem(items[index]);
  const order = items.map((_, step) => (at + 1 + step) % items.length);
  const found = order.find(open);
  if (found !== undefined) go(found);
}

function save() {
  count();
  const rows = items.map(({ item }) => {
    const { values, note, seconds } = answer(item);
    return [item, ...questions.map(({ name }) => values[name] || ''), note, Math.round(seconds), page];
  });
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([toCsv(questions, rows)], { type: 'text/csv' }));
  link.download = `${form.sheet}_${expert}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  unsaved = false;
  const left = items.length - showAnswer();
  say(left ? `Saved; ${left} items have no verdict yet.` : 'Saved, complete.');
}

async function load(file) {
  try {
    const found = fromCsv(await file.text(), page, known, questions);
    count();
    answers = { ...answers, ...found };
    undone.length = 0;
    keep();
    show();
    say(`${Object.keys(found).length} items were read from the sheet.`);
  } catch (error) {
    say(error.message);
  }
}

function toggle(what) {
  if (!items[at][what === 'besides' ? 'also' : 'mask']) return;
  view[what] = !view[what];
  view.draw();
}

function fade(by) {
  view.opacity = Math.min(1, Math.max(0, view.opacity + by));
  view.draw();
}

const ACTIONS = {
  arrowright: () => go(at + 1),
  arrowleft: () => go(at - 1),
  u: undo,
  j: nextOpen,
  m: () => toggle('shown'),
  o: () => toggle('outline'),
  c: () => toggle('besides'),
  '[': () => fade(-0.1),
  ']': () => fade(0.1),
  '+': () => view.zoomBy(ZOOM.step),
  '=': () => view.zoomBy(ZOOM.step),
  '-': () => view.zoomBy(1 / ZOOM.step),
  0: () => { view.reset(); view.draw(); },
  n: () => byId('note').focus(),
  s: save,
};
const BUTTONS = {
  next: 'arrowright', back: 'arrowleft', undo: 'u', open: 'j', mask: 'm', outline: 'o', besides: 'c', in: '+', out: '-',
  reset: '0', save: 's',
};

// A button and a key for each answer, and their line in the list of keys.
function addChoices() {
  const lines = questions.map((question) => {
    const wide = question.choices.length < 3;
    const buttons = question.choices.map(({ value, label, key, id, mark }) => {
      const button = made('button', ...(mark ? [made('span', mark)] : []), ` ${label} `, made('kbd', key.toUpperCase()));
      Object.assign(button, { type: 'button', id: id || `${question.name}-${value}`, className: `${wide ? 'wide' : 'answer'} ${id}` });
      button.setAttribute('aria-keyshortcuts', key.toUpperCase());
      if (mark) button.firstChild.setAttribute('aria-hidden', 'true');
      ACTIONS[key] = () => judge(question.name, value);
      ONCE.add(key);
      button.addEventListener('click', ACTIONS[key]);
      choices.push([button, question.name, value]);
      return button;
    });
    byId('back').before(...(question.text ? [made('p', question.text)] : []), ...buttons);
    const keys = question.choices.flatMap(({ key }) => [made('kbd', key.toUpperCase()), ' ']);
    const told = question.choices.map(({ label }) => label.toLowerCase()).join(', ');
    return made('div', made('dt', ...keys), made('dd', told));
  });
  lines.at(-1).lastChild.append('; then the next item comes');
  byId('keys').prepend(...lines);
  for (const each of document.querySelectorAll('.overlay')) each.hidden = !items.some(({ mask }) => mask);
  for (const each of document.querySelectorAll('.besides')) each.hidden = !items.some(({ also }) => also);
  view.outline = Boolean(form.outline);
  byId('verdict').classList.toggle('many', questions.length > 1);
}

function listen() {
  document.addEventListener('keydown', (event) => {
    const { target } = event;
    if (target === byId('note')) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    const key = event.key.toLowerCase();
    const undoing = (event.ctrlKey || event.metaKey) && key === 'z';
    if (!undoing && (event.ctrlKey || event.metaKey || event.altKey)) return;
    if (target.matches('input') && key.startsWith('arrow')) return;
    const action = undoing ? undo : ACTIONS[key];
    if (!action || (event.repeat && ONCE.has(key))) return; // a key held down judges once
    event.preventDefault();
    action();
  });
  for (const [id, key] of Object.entries(BUTTONS)) byId(id).addEventListener('click', () => ACTIONS[key]());
  byId('opacity').addEventListener('input', ({ target }) => { view.opacity = target.value / 100; view.draw(); });
  for (const id of ['window', 'level']) {
    byId(id).addEventListener('input', () => view.setWindow(Number(byId('window').value), Number(byId('level').value)));
  }
  for (const radio of document.getElementsByName('drag')) {
    radio.addEventListener('change', () => { view.drag = radio.value; });
  }
  byId('note').addEventListener('input', ({ target }) => {
    answer(items[at].item).note = target.value;
    unsaved = true;
    keep();
  });
  byId('load').addEventListener('change', ({ target }) => {
    if (target.files.length) load(target.files[0]);
    target.value = '';
  });
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'hidden') {
      answer(items[at].item).seconds += (performance.now() - since) / 1000;
      keep();
    }
    since = performance.now();
  });
  // the same page in another tab
  window.addEventListener('storage', ({ key }) => {
    if (key !== kept) return;
    const here = at;
    restore();
    at = here;
    showAnswer();
    if (document.activeElement !== byId('note')) byId('note').value = answer(items[at].item).note;
  });
  window.addEventListener('beforeunload', (event) => {
    if (unsaved && !stored) event.preventDefault();
  });
}

addChoices();
if (items.length) {
  listen();
  restore();
  showStorage();
  show();
} else say('There is nothing to review on this page.');
