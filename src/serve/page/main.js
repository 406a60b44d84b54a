
// ---- reading the server: the page shows its state, which survives reloads and restarts ----------------------

const PAGE = 100;         // jobs of one answer
const MOST_QUEUED = 2000; // jobs of the queue that the page reads
const known = { finals: new Map(), queued: [], signature: '', reads: 0, more: false, moreQueued: false };
let reads = 0, readTimer = 0, wasLost = false, version = '';

const list = (part, query) => ask('GET', `/v1/jobs?limit=${PAGE}&part=${part}${query}`);

// Jobs of the queue, the oldest first. Further pages change rarely, so that each fifth reading has them.
async function readQueue(all) {
  const page = await list('unfinished', '&order=asc');
  let jobs = page.data, more = page.has_more;
  if (more && !all && known.reads % 5) {
    const seen = new Set(jobs.map((job) => job.id));
    jobs = [...jobs, ...known.queued.filter((job) => !seen.has(job.id) && !known.finals.has(job.id))];
    more = known.moreQueued;
  } else {
    while (more && jobs.length < MOST_QUEUED) {
      const next = await list('unfinished', '&order=asc&after=' + jobs[jobs.length - 1].id);
      jobs = [...jobs, ...next.data];
      more = next.has_more;
    }
  }
  Object.assign(known, { queued: jobs, moreQueued: more });
}

// Finished jobs, the newest first. A job that is newer than the last one of the page, and not on it, was deleted.
async function readFinals() {
  const page = await list('final', ''), ids = new Set(page.data.map((job) => job.id));
  const last = page.has_more ? page.data[page.data.length - 1].created_at : -Infinity;
  if (known.finals.size <= page.data.length) known.more = page.has_more;
  for (const [id, job] of known.finals) if (!ids.has(id) && job.created_at > last) known.finals.delete(id);
  for (const job of page.data) known.finals.set(job.id, job);
}

async function read(all, number) {
  const machine = await ask('GET', '/v1/machine');
  await readQueue(all);
  const signature = known.queued.map((job) => job.id).join();
  if (all || signature !== known.signature || known.reads % 10 === 0) await readFinals();
  if (signature !== known.signature) predict(); // the start of a further video
  known.signature = signature;
  known.reads++;
  const waits = new Set(known.queued.map((job) => job.id));
  for (const id of waits) known.finals.delete(id); // was resumed
  if (number !== reads) return; // a later reading shows more
  $('older').hidden = !known.more;
  showQueue(known.queued, known.moreQueued);
  showGallery([...known.finals.values()]);
  showMachine(machine, known.queued);
}

// Another start of the server may have other models, and another page.
async function meet(machine) {
  if (version && machine.version !== version) $('reload').hidden = false;
  version = machine.version;
  capabilities = await ask('GET', '/capabilities');
  useCapabilities();
  predict();
}

// Reads at once, and again after a second; every 10 s while the page is hidden.
async function refresh(all) {
  const number = ++reads;
  clearTimeout(readTimer);
  try {
    if (wasLost) await meet(await ask('GET', '/v1/machine'));
    await read(all || wasLost, number);
    wasLost = false;
  } catch (e) {
    wasLost = wasLost || e instanceof LostError || e.status === 503;
    setText($('state'), e instanceof LostError ? e.message + ' Trying again.' : e.message);
    if (!(e instanceof LostError) && !(e instanceof ServerError)) console.error(e);
  }
  if (number === reads && !$('login').open) readTimer = setTimeout(() => refresh(), document.hidden ? 10000 : 1000);
}

function showMachine(m, jobs) {
  const running = jobs.filter((job) => job.status === 'running').length, waiting = jobs.filter((job) => job.status === 'queued').length;
  setText($('state'), `${running ? 'generating' : 'idle'}, ${waiting} waiting`);
  const facts = {
    Version: m.version,
    Processors: `${m.processors}, load ${m.load.toFixed(1)}`,
    Memory: `${size(m.available_bytes)} of ${size(m.memory_bytes)} free`,
    Worker: m.worker_bytes ? size(m.worker_bytes) : 'not running',
    Disk: `${size(m.disk_free_bytes)} free`,
    Workers: `${m.workers_started} started, ${m.workers_crashed} crashed`,
    Loaded: m.loaded.length ? `${size(m.loaded_bytes)}: ` + m.loaded.map((w) => `${w.part} of ${w.model}` + (w.adapters ? ` with ${w.adapters}` : '')).join(', ') : 'no weights',
    Models: capabilities.models.map((model) => model.id).join(', '),
  };
  const failed = [...known.finals.values()].filter((job) => ['failed', 'parked'].includes(job.status))
    .sort((a, b) => (b.completed_at || 0) - (a.completed_at || 0))[0];
  if (failed && failed.error) facts['Last failure'] = failed.error.message;
  version = version || m.version;
  show($('facts'), Object.entries(facts).flatMap(([name, value]) => [['dt', name, name], ['dd', name, value]]),
    (item) => item[0] + item[1], (item) => make(item[0]), (node, item) => setText(node, item[2]));
}

async function showOlder() {
  const oldest = [...known.finals.values()].reduce((a, b) => a.created_at <= b.created_at ? a : b);
  const page = await list('final', '&after=' + oldest.id);
  for (const job of page.data) known.finals.set(job.id, job);
  known.more = page.has_more;
  await refresh();
}

function startTheme() {
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    setText($('theme'), 'Theme: ' + (theme || 'system'));
  };
  apply(stored.read('theme', ''));
  $('theme').addEventListener('click', () => {
    const next = { '': 'light', light: 'dark', dark: '' }[stored.read('theme', '')] ?? '';
    stored.write('theme', next);
    apply(next);
  });
}

async function start() {
  startTheme();
  startGallery();
  startFiles();
  $('older').addEventListener('click', () => showOlder().catch((e) => toast(e.message)));
  $('queue-all').addEventListener('click', () => { $('queue-all').all = !$('queue-all').all; refresh(); });
  $('reload').addEventListener('click', () => location.reload());
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
  for (;;) {
    try {
      capabilities = await ask('GET', '/capabilities');
      break;
    } catch (e) {
      setText($('state'), e.message);
      if (e.status === 401) return;
      await new Promise((resolve) => { setTimeout(resolve, 1000); });
    }
  }
  await startForm();
  refresh(true);
}
start();
