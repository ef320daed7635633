// The sheet: an expert's answers as CSV (RFC 4180), written and read.
const columnsOf = (questions) => ['item', ...questions.map(({ name }) => name), 'note', 'seconds', 'page'];
const valuesOf = ({ choices }) => choices.map(({ value }) => value);

// A spreadsheet runs a cell that starts with these as a formula, so writing adds an apostrophe and reading removes it.
const FORMULA = /^'*([=@\t\r]|[+-](?![\d.,eE+\-% ]*$))/;
const unguarded = (text) => (text.startsWith("'") && FORMULA.test(text) ? text.slice(1) : text);

function csvCell(value) {
  const plain = String(value);
  const text = FORMULA.test(plain) ? `'${plain}` : plain;
  return /[",;\t\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

// The mark at the start tells spreadsheets that the text is UTF-8.
function toCsv(questions, rows) {
  return '\ufeff' + [columnsOf(questions), ...rows].map((row) => row.map(csvCell).join(',') + '\r\n').join('');
}

// Rows of cells. A spreadsheet may have saved with ; or tabs between them.
function parseCsv(text) {
  const body = text.replace(/^\ufeff/, '');
  const head = body.split(/\r|\n/, 1)[0];
  const mark = [',', ';', '\t'].find((each) => head.includes(each)) || ',';
  const rows = [];
  let row = [];
  let cell = '';
  let quoted = false;
  for (let at = 0; at < body.length; at += 1) {
    const letter = body[at];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (body[at + 1] === '"') { cell += '"'; at += 1; } else quoted = false;
    } else if (letter === '"' && cell === '') quoted = true;
    else if (letter === mark) { row.push(cell); cell = ''; }
    else if (letter === '\n' || letter === '\r') {
      if (letter === '\r' && body[at + 1] === '\n') at += 1;
      rows.push([...row, cell]);
      row = [];
      cell = '';
    } else cell += letter;
  }
  if (cell !== '' || row.length) rows.push([...row, cell]);
  return rows.filter((each) => each.some((value) => value.trim() !== ''));
}

// {item: {values, note, seconds}} of a sheet of this page; throws an Error whose message says what is wrong.
function fromCsv(text, page, known, questions) {
  const [head, ...rows] = parseCsv(text);
  const missing = columnsOf(questions).filter((name) => !(head || []).includes(name));
  if (missing.length) throw new Error(`This is not a sheet of this page: it has no column ${missing.join(', ')}.`);
  const found = {};
  rows.forEach((cells, index) => {
    const value = Object.fromEntries(head.map((name, at) => [name, (cells[at] || '')]));
    const item = value.item.trim();
    const where = `Row ${index + 2}`;
    if (value.page.trim() !== page) throw new Error(`${where} is of another page (${value.page}); this one is ${page}.`);
    if (!known.has(item)) throw new Error(`${where}: there is no item ${item} here.`);
    const values = {};
    for (const question of questions) {
      const told = value[question.name].trim().toLowerCase();
      if (told && !valuesOf(question).includes(told)) throw new Error(`${where}: ${told} is no answer for ${question.name}.`);
      if (told) values[question.name] = told;
    }
    found[item] = { values, note: unguarded(value.note), seconds: Number(value.seconds) || 0 };
  });
  return found;
}
