
// ---- further options of the model, as /capabilities lists them: empty fields have the default ------------

// Some options need a coarse video.
const optionsOf = () => (currentModel() || { options: [] }).options.filter(({ name }) => !name.startsWith('refine_') || has('refine'));

function createOption(option) {
  const input = option.values ? make('select', { name: option.name })
    : make('input', { name: option.name, type: option.type === 'string' ? 'text' : 'number', maxLength: 256 });
  const label = make('label', { title: option.about }, option.name.replace(/_/g, ' ').replace(/^./, (c) => c.toUpperCase()) + ' ', input);
  label.input = input;
  return label;
}

// Shows the fields of the model. A value that it does not take is lost.
function listOptions() {
  show($('options'), optionsOf(), (option) => option.name, createOption, (label, option) => {
    const { input } = label, own = option.default === undefined ? '' : String(option.default);
    if (option.values) return setOptions(input, option.values.map((value) => [value, value]), input.value || own);
    input.placeholder = own;
    if (option.type !== 'string') Object.assign(input, { min: option.minimum, max: option.maximum, step: option.type === 'integer' ? 1 : 'any' });
  });
}

// The values that are not defaults; with `all`, also the defaults of empty fields.
function optionValues(all) {
  const out = {};
  for (const { name, type, default: own } of optionsOf().filter((option) => field[option.name])) {
    const text = field[name].value.trim();
    const value = text === '' ? own ?? (type === 'string' ? '' : undefined) : type === 'string' ? text : Number(text);
    if (value !== undefined && (all || (text !== '' && value !== own))) out[name] = value;
  }
  return out;
}

function fillOptions(request) {
  for (const { name, values, default: own } of optionsOf())
    field[name].value = request[name] !== undefined && request[name] !== own ? request[name] : values ? own : '';
  if (Object.keys(optionValues()).length) $('more').open = true;
}
