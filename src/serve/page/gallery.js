
// ---- the gallery: players, comparison, failures -------------------------------------------------------

const contentPath = (job, variant) => `/v1/videos/${job.id}/content` + (variant ? '?variant=' + variant : '');

// A player needs a URL without headers: with a token, the bytes are fetched first.
async function contentUrl(job) {
  if (!stored.read('token', '')) return contentPath(job);
  const answer = await fetch(contentPath(job), { headers: headers() });
  if (!answer.ok) throw new Error('The video cannot be read.');
  return URL.createObjectURL(await answer.blob());
}

async function player(job) {
  const video = make('video', { controls: true, loop: true, muted: true, playsInline: true, preload: 'metadata' });
  video.setAttribute('aria-label', job.request.prompt.slice(0, 200));
  video.src = await contentUrl(job);
  if (!video.src.startsWith('blob:')) video.poster = contentPath(job, 'thumbnail'); // shown before the player has read the video
  return video;
}

async function download(job) {
  const link = make('a', { href: await contentUrl(job), download: job.id + '.mp4' });
  document.body.append(link);
  link.click();
  link.remove();
}

// Players exist near the visible part of the page only: a browser has a limit of players.
const nearby = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.isNear = entry.isIntersecting;
    showPlayer(entry.target);
  }
}, { rootMargin: '800px' });

function showPlayer(li) {
  const wanted = li.isNear && !li.leaves && li.job.status === 'completed', shown = li.holder.firstChild;
  if (wanted && !shown && !li.loads) {
    li.loads = true;
    player(li.job).then((video) => { if (li.isNear) li.holder.replaceChildren(video); })
      .catch((e) => toast(e.message)).finally(() => { li.loads = false; });
  } else if (!wanted && shown && (li.leaves || shown.paused !== false)) {
    if (shown.src.startsWith('blob:')) URL.revokeObjectURL(shown.src);
    shown.removeAttribute('poster'); // ends its request
    shown.removeAttribute('src'); // frees the player's memory
    shown.load();
    li.holder.replaceChildren();
  }
}

function createVideo(job) {
  const li = make('li'), now = () => li.job;
  li.holder = make('div', { className: 'holder' });
  li.holder.style.aspectRatio = `${job.request.width} / ${job.request.height}`;
  li.words = make('p', { className: 'words' });
  li.chip = make('span', { className: 'chip' });
  li.facts = make('span');
  li.why = make('p', { className: 'why', hidden: true });
  li.choice = make('input', { type: 'checkbox' });
  li.choice.addEventListener('change', showChoice);
  li.choose = make('label', { className: 'check' }, li.choice, ' compare');
  li.save = button('Download', () => download(now()));
  li.again = button('Try again', () => post(now(), 'resume'));
  li.append(li.holder, li.words, make('p', { className: 'meta' }, li.chip, li.facts), li.why, make('p', { className: 'buttons wide' },
    li.choose, li.save, li.again, button('Reuse settings', () => reuse(now())), li.alike = button('Compare variants', () => compare(alike(now())), 'Videos of this prompt that differ in seed or values'),
    button('Delete', async () => {
      if (!confirm('Delete this video and its files?')) return;
      li.leaves = true; // its files are not read any more
      showPlayer(li);
      try {
        await ask('DELETE', '/v1/jobs/' + now().id);
      } catch (e) {
        li.leaves = false;
        throw e;
      }
      known.finals.delete(now().id);
      await refresh(true);
    })));
  li.setAttribute('data-id', job.id);
  li.job = job;
  nearby.observe(li);
  return li;
}

function updateVideo(li, job) {
  const done = job.status === 'completed';
  li.job = job;
  setText(li.words, job.request.prompt);
  setText(li.chip, job.status);
  li.chip.className = 'chip ' + job.status;
  setText(li.facts, ` · ${settings(job.request)}` + (done ? ` · ${duration(job.seconds_spent)}, predicted ${duration(job.price.seconds)}` : ''));
  li.why.hidden = !job.error || job.status === 'cancelled';
  setText(li.why, job.error ? job.error.message : '');
  li.choose.hidden = li.save.hidden = !done;
  li.alike.hidden = !done || ($('videos').groups.get(groupOf(job)) || []).length < 2;
  li.again.hidden = !['failed', 'parked'].includes(job.status);
  li.holder.hidden = !done;
  showPlayer(li);
}

function showGallery(all) {
  const jobs = all.filter(isFinal).sort((a, b) => (b.completed_at || 0) - (a.completed_at || 0));
  const groups = new Map();
  for (const job of jobs.filter((j) => j.status === 'completed'))
    groups.set(groupOf(job), [...(groups.get(groupOf(job)) || []), job]);
  $('videos').groups = groups;
  show($('videos'), jobs, (job) => job.id, createVideo, updateVideo);
  $('gallery-empty').hidden = jobs.length > 0;
  showChoice();
}

// ---- comparison -----------------------------------------------------------------------------------------

const chosen = () => [...$('videos').children].filter((li) => li.choice.checked && li.job.status === 'completed').map((li) => li.job);

function showChoice() {
  const count = chosen().length;
  $('compare').disabled = count < 2;
  setText($('compare'), count ? `Compare selected (${count})` : 'Compare selected');
}

// Videos of one prompt and size are variants. They differ in:
const VARIED = ['seed', 'guidance_scale', 'steps', 'sampler', 'frames', 'strength', 'lora', 'precision', 'vae_precision', 'weights'];
const MOST_COMPARED = 16;
const groupNames = new WeakMap();

function groupOf(job) {
  if (!groupNames.has(job)) groupNames.set(job, JSON.stringify({ ...job.request, preview: 0, ...Object.fromEntries(VARIED.map((name) => [name, 0])) }));
  return groupNames.get(job);
}

const valueOf = (job, name) => job.request[name] ?? '';
const order = (a, b) => a < b ? -1 : a > b ? 1 : 0;

// The newest variants, by their values and then by their seeds.
function alike(job) {
  const all = ($('videos').groups.get(groupOf(job)) || []).slice(0, MOST_COMPARED);
  return all.sort((a, b) => [...VARIED.slice(1), 'seed'].reduce((found, name) => found || order(valueOf(a, name), valueOf(b, name)), 0));
}

function caption(job, names) {
  const differs = names.map((name) => `${name.replace('_', ' ')} ${valueOf(job, name) === '' ? 'none' : valueOf(job, name)}`);
  return [...differs, job.request.prompt.slice(0, 120), settings(job.request)].join(' · ');
}

async function compare(jobs) {
  const names = VARIED.filter((name) => new Set(jobs.map((job) => valueOf(job, name))).size > 1);
  const seeds = new Set(jobs.map((job) => job.request.seed)).size;
  const figures = await Promise.all(jobs.map(async (job) => make('figure', {}, await player(job), make('figcaption', { textContent: caption(job, names) }))));
  // a grid: a row for each value, a column for each seed
  $('side').style.setProperty('--columns', names.length === 2 && names[0] === 'seed' && jobs.length % seeds === 0 ? seeds : 'auto-fit');
  $('side').replaceChildren(...figures);
  $('both-seek').value = 0;
  $('comparison').showModal();
}

const sideVideos = () => [...$('side').querySelectorAll('video')];

function startGallery() {
  $('compare').addEventListener('click', () => compare(chosen()).catch((e) => toast(e.message)));
  $('both-play').addEventListener('click', () => sideVideos().forEach((video) => { video.currentTime = 0; video.play(); }));
  $('both-pause').addEventListener('click', () => sideVideos().forEach((video) => video.pause()));
  $('both-seek').addEventListener('input', () => sideVideos().forEach((video) => {
    video.pause();
    if (video.duration) video.currentTime = video.duration * $('both-seek').value / 1000;
  }));
  $('both-close').addEventListener('click', () => $('comparison').close());
  $('comparison').addEventListener('close', () => $('side').replaceChildren());
}
