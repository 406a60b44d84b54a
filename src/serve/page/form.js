
// ---- the form: legal values of the model, the job that is edited ----------------------------------
let capabilities = { models: [], loras: [] };
let edited = null;  // id of the job whose values the form changes
const form = $('form'), field = form.elements;
const NUMBERS = ['width', 'height', 'frames', 'steps', 'seed', 'guidance_scale', 'fps', 'preview', 'priority'];

// Selects of the types of numbers, and the types of weft without an option.
const COMPUTE = { precision: 'f32', vae_precision: 'f32', weights: 'stored' };

const currentModel = () => capabilities.models.find((m) => m.id === field.model.value) || capabilities.models[0];

function setLegal(input, least, step) {
  Object.assign(input, { min: least, step });
  input.title = step > 1 ? `${least}, ${least + step}, ${least + 2 * step} ...` : '';
}

// A refined video has twice the frames of its coarse video, or the same.
function setLegalFrames() {
  const m = currentModel(), refines = has('refine');
  if (!m) return;
  const step = !refines ? m.frames.step : field.refine_frames.value === 'same' ? 1 : 2, least = refines ? 2 * step : m.frames.least;
  field.fps.placeholder = refines ? 'of the file' : m.fps;
  if (Number(field.frames.min) === least && Number(field.frames.step) === step) return;
  setLegal(field.frames, least, step);
  snap(field.frames);
}

// The legal value of a field that is nearest to a number.
function nearest(input, value) {
  const least = Number(input.min) || 0, step = Number(input.step), most = Number(input.max) || Infinity;
  if (!(step > 0)) return Math.min(Math.max(value, least), most);
  return Math.min(least + Math.max(0, Math.round((value - least) / step)) * step, most);
}

// Only legal values are sent.
function snap(input) {
  if (input.value !== '' && Number.isFinite(Number(input.value))) input.value = nearest(input, Number(input.value));
}

function setOptions(select, options, value) {
  select.replaceChildren(...options.map(([id, text]) => make('option', { value: id, textContent: text })));
  select.value = options.some(([id]) => id === value) ? value : options[0] ? options[0][0] : '';
}

function useModel(defaults) {
  const m = currentModel();
  if (!m) return;
  setLegal(field.width, m.width.multiple_of, m.width.multiple_of);
  setLegal(field.height, m.height.multiple_of, m.height.multiple_of);
  setOptions(field.sampler, [['', "model's own"], ...m.samplers.map((name) => [name, name])], field.sampler.value);
  for (const name of Object.keys(COMPUTE))
    setOptions(field[name], m[name].values.map((value) => [value, value]), field[name].value || m[name].default);
  listOptions();
  setLegalFrames();
  showInputs();
  if (!defaults) return;
  field.width.value = m.width.default || 16 * m.width.multiple_of;
  field.height.value = m.height.default || 16 * m.height.multiple_of;
  field.frames.value = nearest(field.frames, m.frames.default || m.frames.least + 4 * m.frames.step);
  Object.entries({ steps: m.steps, seed: 0, grid: 1, guidance_scale: has('refine') ? 1 : m.guidance_scale, fps: '', preview: 0, priority: 0, sampler: '', vary: '',
    varied: '', strength: '' }).forEach(([name, value]) => { field[name].value = value; });
  for (const name of Object.keys(COMPUTE)) field[name].value = m[name].default;
  setLoras('');
  fillOptions({});
  showVaried();
}

// ---- LoRA adapters ------------------------------------------------------------------------------

const loraRows = () => [...$('loras').children];

function listLoras() {
  $('lora-row').hidden = !capabilities.loras.length;
  $('loras').replaceChildren(...capabilities.loras.map((lora) => {
    const row = make('li'), chosen = make('input', { type: 'checkbox' });
    const weight = make('input', { type: 'number', min: -10, max: 10, step: 'any', value: 1, disabled: true, required: true });
    weight.setAttribute('aria-label', 'Weight of ' + lora.id);
    chosen.addEventListener('change', () => {
      weight.disabled = !chosen.checked;
      if (lora.steps) useSettings();
      changed();
    });
    Object.assign(row, { lora: lora.id, chosen, weight });
    row.append(make('label', { className: 'check' }, chosen, ' ' + lora.id), weight);
    return row;
  }));
}

// Steps and guidance of the first chosen adapter that is distilled, or of the model.
function useSettings() {
  const chosen = loraRows().filter((row) => row.chosen.checked).map((row) => row.lora), m = currentModel();
  const own = capabilities.loras.find((lora) => lora.steps && chosen.includes(lora.id));
  field.steps.value = (own || m).steps;
  field.guidance_scale.value = own ? own.guidance_scale : has('refine') ? 1 : m.guidance_scale;
}

const loraText = () => loraRows().filter((row) => row.chosen.checked).map((row) => `${row.lora}:${Number(row.weight.value)}`).join(',');

// Chooses the adapters of "style:0.8,grain". Adapters that the server does not have are ignored.
function setLoras(text) {
  const wanted = new Map(text.split(',').filter(Boolean).map((part) => {
    const [name, weight] = part.split(':');
    return [name, weight === undefined ? 1 : Number(weight)];
  }));
  for (const row of loraRows()) {
    row.chosen.checked = wanted.has(row.lora);
    row.weight.disabled = !row.chosen.checked;
    row.weight.value = wanted.has(row.lora) ? wanted.get(row.lora) : 1;
  }
}

// ---- values -------------------------------------------------------------------------------------

function values() {
  const out = { model: field.model.value, prompt: field.prompt.value, negative_prompt: field.negative_prompt.value };
  for (const name of NUMBERS) if (field[name].value !== '') out[name] = Number(field[name].value);
  if (field.sampler.value) out.sampler = field.sampler.value;
  for (const name of Object.keys(COMPUTE)) out[name] = field[name].value;
  if (loraText()) out.lora = loraText();
  Object.assign(out, optionValues());
  if (has('video') && field.strength.value !== '') out.strength = Number(field.strength.value);
  if (field.webhook.value && capabilities.webhooks) out.webhook = field.webhook.value;
  return out;
}

// Sets the form to the values of a request. The model comes first: it determines the legal values.
function fill(request) {
  if (capabilities.models.some((m) => m.id === request.model)) field.model.value = request.model;
  useModel(false);
  for (const name of ['prompt', 'negative_prompt', 'sampler', 'webhook', ...NUMBERS])
    if (request[name] !== undefined) field[name].value = name === 'fps' && !request.fps ? '' : request[name];
  // a job has the types that are not the ones of weft; a file has none
  for (const [name, own] of Object.entries(COMPUTE))
    field[name].value = request[name] || (request.model ? own : currentModel()[name].default);
  setLoras(request.lora || '');
  fillOptions(request);
  field.strength.value = request.strength || '';
  if (request.preview === undefined) field.preview.value = 0;
  field.lines.checked = Boolean(request.lines);
  field.grid.value = request.grid || 1;
  field.vary.value = request.vary || '';
  field.varied.value = request.varied || '';
  showVaried();
  changed();
}

function body(request) {
  const sent = sentInputs();
  if (!sent.length) return request;
  const data = new FormData();
  for (const [name, value] of Object.entries(request)) data.append(name, value);
  for (const { name } of sent) data.append(name, files[name], files[name].name);
  return data;
}

// ---- the job that the form changes, or whose settings it gets ----------------------------------------

async function edit(job) {
  const inputs = job ? await filesOf(job) : await shelf.all();
  edited = job ? job.id : null;
  $('editing').hidden = $('edit-end').hidden = !job;
  setText($('editing'), job ? 'The form changes a job of the queue.' +
    (Object.keys(inputs).length ? ' Its files stay; duplicate a job to change them.' : '') : '');
  setText($('submit'), job ? 'Save changes' : 'Add to queue');
  for (const name of ['grid', 'lines', 'model', 'vary', 'varied']) field[name].disabled = Boolean(job);
  if (job) {
    setFiles(inputs);
    fill({ ...job.request, priority: job.priority, webhook: job.webhook ? job.webhook.url : '' });
    field.prompt.focus();
  } else {
    files = inputs;
    fill(stored.read('form', {}));
  }
}

async function reuse(job) {
  const inputs = await filesOf(job);
  if (edited) await edit(null);
  setFiles(inputs);
  fill({ ...job.request, priority: 0 });
  field.prompt.focus();
  toast('The form has the settings of the video.');
}

// ---- after a start of the server ---------------------------------------------------------------------

// Lists what the server has, and keeps the values of the form.
function useCapabilities() {
  const before = values();
  setOptions(field.model, capabilities.models.map((m) => [m.id, m.id]), field.model.value);
  listLoras();
  setLoras(before.lora || '');
  $('webhook-row').hidden = !capabilities.webhooks;
  setOptions(field.vary, [['', 'nothing else'], ['guidance_scale', 'Guidance'], ['steps', 'Steps'], ['sampler', 'Sampler'], ['frames', 'Frames'],
    ['strength', 'Strength'], ['precision', 'Precision'], ['vae_precision', 'VAE precision'], ['weights', 'Weights'],
    ...capabilities.loras.map((lora) => ['lora ' + lora.id, `Weight of ${lora.id}`])], field.vary.value);
  useModel(before.model !== field.model.value);
}
