
// ---- files: the settings of a dropped video, and the queue as JSON lines ---------------------------------

const HEAD_BYTES = 4 << 20; // the index of a video of weft comes first

// The boxes of an MP4 file between two offsets.
function boxes(view, at, end) {
  const found = [];
  while (at + 8 <= end) {
    const bytes = view.getUint32(at);
    if (bytes < 8 || at + bytes > end) break;
    found.push({ type: letters(view, at + 4, at + 8), number: view.getUint32(at + 4), start: at + 8, end: at + bytes });
    at += bytes;
  }
  return found;
}
const letters = (view, start, end) => new TextDecoder().decode(new Uint8Array(view.buffer, start, end - start));

// The tags that weft wrote into an MP4 file: names in moov/udta/meta/keys, values in its ilst.
function tagsOf(view) {
  let list = boxes(view, 0, view.byteLength);
  const enter = (type, skip) => {
    const box = list.find((b) => b.type === type);
    list = box ? boxes(view, box.start + skip, box.end) : [];
  };
  enter('moov', 0);
  enter('udta', 0);
  enter('meta', 4);
  const keys = list.find((b) => b.type === 'keys'), values = list.find((b) => b.type === 'ilst'), tags = {};
  if (!keys || !values) return tags;
  const names = boxes(view, keys.start + 8, keys.end).map((b) => letters(view, b.start, b.end));
  for (const item of boxes(view, values.start, values.end)) {
    const data = boxes(view, item.start, item.end).find((b) => b.type === 'data');
    if (data && names[item.number - 1]) tags[names[item.number - 1]] = letters(view, data.start + 8, data.end);
  }
  return tags;
}

// Width and height of a video, by the browser's own decoder.
function sidesOf(file) {
  return new Promise((resolve) => {
    const video = make('video', { preload: 'metadata', src: URL.createObjectURL(file) });
    const end = () => {
      URL.revokeObjectURL(video.src);
      resolve(video.videoWidth ? { width: video.videoWidth, height: video.videoHeight } : {});
    };
    video.addEventListener('loadedmetadata', end);
    video.addEventListener('error', end);
  });
}

async function reuseFile(file) {
  const tags = tagsOf(new DataView(await file.slice(0, HEAD_BYTES).arrayBuffer()));
  if (tags.title === undefined || tags.steps === undefined) return toast('The file has no settings of weft.');
  const request = { prompt: tags.title, negative_prompt: tags.negative || '', sampler: tags.sampler || '', ...await sidesOf(file) };
  for (const [name, tag] of Object.entries({ seed: 'seed', steps: 'steps', guidance_scale: 'guidance', frames: 'frames' }))
    if (Number.isFinite(Number(tags[tag]))) request[name] = Number(tags[tag]);
  if (![...field.sampler.options].some((option) => option.value === request.sampler)) request.sampler = '';
  if (edited) await edit(null);
  fill(request);
  toast('The form has the settings of the file.');
}

// ---- export and import -------------------------------------------------------------------------------------

// A line per waiting job, in the order of the queue: the body of a request.
function exportQueue() {
  const jobs = $('jobs').waiting.filter((job) => ['queued', 'paused'].includes(job.status));
  const lines = jobs.map((job) => {
    const request = { ...COMPUTE, ...job.request, priority: job.priority };
    for (const name of ['fps', 'sampler', 'negative_prompt']) if (!request[name]) delete request[name];
    for (const { key } of INPUTS) delete request[key];
    if (!job.request.video) delete request.strength;
    return JSON.stringify(request) + '\n';
  });
  const link = make('a', { href: URL.createObjectURL(new Blob(lines, { type: 'application/jsonl' })), download: 'queue.jsonl' });
  link.click();
  toast(`Jobs exported: ${lines.length}. Images and videos are not part of the file.`);
}

async function importQueue(file) {
  const lines = (await file.text()).split('\n');
  let count = 0;
  for (const [i, line] of lines.entries()) {
    if (!line.trim()) continue;
    try {
      await ask('POST', '/v1/jobs', JSON.parse(line));
      count++;
    } catch (e) {
      throw new Error(`Line ${i + 1} of ${file.name}: ${e.message} Jobs added before: ${count}.`);
    }
  }
  toast('Jobs added to the queue: ' + count);
  refresh(true);
}

function useFile(file) {
  const use = /\.(jsonl|ndjson)$/.test(file.name) ? importQueue : reuseFile;
  use(file).catch((e) => toast(e.message));
}

function startFiles() {
  $('queue-export').addEventListener('click', exportQueue);
  $('queue-import').addEventListener('change', () => {
    if ($('queue-import').files[0]) useFile($('queue-import').files[0]);
    $('queue-import').value = '';
  });
  // anywhere on the page; a file must not replace it
  for (const name of ['dragover', 'drop']) window.addEventListener(name, (event) => event.preventDefault());
  window.addEventListener('drop', (event) => {
    const file = event.dataTransfer && event.dataTransfer.files[0];
    if (file && (file.type === 'video/mp4' || /\.(mp4|jsonl|ndjson)$/.test(file.name))) useFile(file);
  });
}
